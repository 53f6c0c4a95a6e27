"""`carbon tune` on two processes: one group, of which each draws and measures a half."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from carbon.cli import main
from carbon.genome.sequences import read_records
from carbon.model import save_model
from carbon.run_folder import read_lines

ROOT = Path(__file__).parents[2]
ORACLE = """
import pathlib
def gc(sequences):
    return [(s.count("G") + s.count("C")) / len(s) for s in sequences]
calls = 0
def moody(sequences):
    global calls
    calls += 1
    if calls == 4 and pathlib.Path("broken").exists():
        raise ValueError("no")
    return gc(sequences)
"""


def words(output, *more, oracle="gc"):
    return [
        "tune", "--model", "base", "--oracle", f"python:shares:{oracle}", "--length", "30",
        "--group", "6", "--steps", "4", "--probe", "2", "--rate", "0.01", "--device", "cpu",
        "--output", output, *more,
    ]  # fmt: skip


def tune_on_two(folder, *given, **more):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*launcher, "-m", "carbon", *words(*given, **more)],
        cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("tuning")
    save_model(network, folder / "base")
    (folder / "shares.py").write_text(ORACLE)
    done = tune_on_two(folder, "two")
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stdout.splitlines()) == 1
    return folder


def test_one_process_draws_what_two_draw(folder, monkeypatch):
    """Until rounding parts the weights: the first group is the same."""
    monkeypatch.chdir(folder)
    assert main(words("one")) == 0
    one, two = (read_lines(folder / name).steps for name in ("one", "two"))
    assert one[0]["gc"] == pytest.approx(two[0]["gc"], abs=1e-12)
    assert one[0]["reward_std"] == pytest.approx(two[0]["reward_std"], abs=1e-12)
    assert one[0]["reward_std"] > 0

    assert json.loads((folder / "two/tune.json").read_text())["processes"] == 2
    bases = [record.bases for record in read_records(folder / "two/samples/step_000004.fa")]
    assert len(bases) == 6 and len(set(bases)) > 3  # the halves are no copies of one another
    gc = [sum(map(each.count, "GC")) / 30 for each in bases]
    assert two[-1]["gc"] == pytest.approx(sum(gc) / 6)


@pytest.mark.nightly
def test_an_oracle_that_fails_ends_all_and_they_go_on_with_the_same_bytes(folder):
    (folder / "broken").touch()
    done = tune_on_two(folder, "moody", oracle="moody")
    assert done.returncode != 0
    assert "oracle 'moody': sample_" in done.stderr
    (folder / "broken").unlink()
    done = tune_on_two(folder, "moody", "--resume", oracle="moody")
    assert done.returncode == 0, done.stderr[-3000:]
    for name in ("adapter/adapter_model.safetensors", "model/model.safetensors"):
        assert (folder / "moody" / name).read_bytes() == (folder / "two" / name).read_bytes(), name
