"""A run folder has one run: workers without a launcher end, and a second run is refused."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from carbon.config import to_toml
from carbon.locks import locked_folder
from tests.helpers.runs import BATCH_TOKENS, make_config, make_corpus
from tests.helpers.warm import warm_python
from train.__main__ import main as train

ROOT = Path(__file__).parents[2]
STEPS = 20  # of each of the two stages
LONG = tuple(f"stages.{number}.tokens={STEPS * BATCH_TOKENS}" for number in (0, 1))
CLOCKED = ("tokens_per_second", "mfu")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return make_corpus(tmp_path_factory.mktemp("corpus"))


def words_for(config) -> list[str]:
    path = Path(config.output).with_suffix(".toml")
    path.write_text(to_toml(config))
    return ["--config", str(path), "--resume", "auto"]


def launch(config) -> subprocess.Popen:
    """Start a run of two processes under `torchrun`."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.Popen(
        [*torchrun, "--nproc-per-node", "2", "-m", "train", *words_for(config)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHON_EXEC": warm_python()},
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process) -> str:
    """Wait for the end of a run, whose workers hold its standard error, and return that."""
    _, errors = process.communicate(timeout=240)
    return errors


def metrics_of(config) -> list[dict]:
    lines = (Path(config.output) / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in CLOCKED} for line in lines]


def export_of(config) -> bytes:
    return (Path(config.output) / "export" / "model.safetensors").read_bytes()


def wait_for_steps(config, count: int) -> None:
    metrics, deadline = Path(config.output) / "metrics.jsonl", time.monotonic() + 120
    while not metrics.exists() or metrics.read_text().count("\n") < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_workers_end_with_a_killed_launcher_and_a_resume_is_right(corpus, tmp_path):
    """The metrics and weights of the resumed run are those of an uninterrupted one, bit for bit."""
    whole = make_config(corpus, tmp_path / "whole", *LONG)
    assert launch(whole).wait(240) == 0
    config = make_config(corpus, tmp_path / "run", *LONG)
    first = launch(config)
    wait_for_steps(config, 10)
    killed = time.monotonic()
    first.kill()
    second = launch(config)  # at once
    said = ended(first)  # its pipe closes when the last of its workers has ended
    assert time.monotonic() - killed < 10
    assert said.count(f"the launcher (process {first.pid}) is gone; its processes end") == 1
    assert len(metrics_of(config)) < 2 * STEPS, "the workers had finished before they ended"
    said = ended(second)
    if second.returncode:  # refused, while the workers ended
        assert "in use by process" in said
        second = launch(config)
        said = ended(second)
    assert second.returncode == 0, said
    assert "resume" in (Path(config.output) / "events.jsonl").read_text()
    assert metrics_of(config) == metrics_of(whole)
    assert export_of(config) == export_of(whole)


def test_a_second_run_is_refused_and_changes_nothing(corpus, tmp_path, capsys):
    config = make_config(corpus, tmp_path / "run")
    assert train(words_for(config)) == 0
    before = {path: path.read_bytes() for path in files_of(config)}
    with locked_folder(config.output):
        assert train(words_for(config)) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"error: {config.output}: in use by process {os.getpid()} on ")
    assert said.endswith("; wait or end it")
    assert {path: path.read_bytes() for path in files_of(config)} == before


def files_of(config) -> list[Path]:
    return [path for path in Path(config.output).rglob("*") if path.is_file()]


def test_processes_of_a_launch_are_refused_together(corpus, tmp_path):
    """They end with one error, without waiting for one another, and write nothing."""
    config = make_config(corpus, tmp_path / "run")
    with locked_folder(config.output):
        run = launch(config)
        said = ended(run)
    assert run.returncode != 0 and said.count("error: ") == 1, said
    assert f"{config.output}: in use by process {os.getpid()}" in said
    assert not Path(config.output).exists()
