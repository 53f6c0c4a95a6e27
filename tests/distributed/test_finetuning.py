"""`carbon finetune` and `carbon rl` on two processes against one; workers of `carbon rl`."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import carbon
from carbon.cli import main
from carbon.finetune.job import as_config
from carbon.genome.sequences import read_records
from carbon.model import save_model
from carbon.run_folder import read_lines
from tests.helpers.finetune import (
    BASES,
    BINARY,
    base_folder,
    examples_of,
    run_config,
    strict_json,
    write_rows,
)
from tests.helpers.launched import run_on
from tests.helpers.processes import waits_for, workers_of

ROOT = Path(__file__).parents[2]


def by_torchrun(number, words, folder):
    """Run a command on several processes as users do."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*launcher, str(number), "-m", "carbon", *words],
        cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def summary_in(text):
    """Return the one line of JSON in what a command says."""
    (line,) = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(line)


def write_run(folder, network, task):
    """Write a model, a table with the parts, and two configurations that differ in the output."""
    base_folder(folder, network)
    examples = examples_of(task, 60)
    rows = []
    for n, name in enumerate(examples.names):
        labels = examples.labels[examples.rows_of(n), 0].astype(int)
        label = "".join(task.names[i][0] for i in labels) if task.per_base else labels[0]
        rows.append((name, examples.sequences[n], label, examples.splits[n]))
    write_rows(folder / "data.csv", rows, ("id", "sequence", "label", "split"))
    config = run_config(folder, task.type, name="lora", epochs=2.0, batch=7, learning_rate=3e-3)
    config["data"]["split"] = {"by": "column", "column": "split"}
    for output in ("one", "two"):
        config["output"] = str(folder / output)
        (folder / f"{output}.toml").write_text(as_config(config).to_toml())


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("task", "launch"),
    [(BASES, run_on), (BINARY, by_torchrun)],
    ids=["bases", "binary"],
)
def test_two_processes_and_one_learn_the_same_labels(tmp_path, network, capsys, task, launch):
    write_run(tmp_path, network, task)
    assert main(["finetune", "--config", str(tmp_path / "one.toml")]) == 0
    told = summary_in(launch(2, ["finetune", "--config", "two.toml"], tmp_path))
    assert told["score"] == json.loads(capsys.readouterr().out)["score"]
    folders = tmp_path / "one", tmp_path / "two"
    validations = [
        strict_json(folder / "results.json")["seeds"][0]["validations"] for folder in folders
    ]
    for key in ("loss", "score", "validation_loss"):
        found = [[step[key] for step in each] for each in validations]
        np.testing.assert_allclose(*found, rtol=1e-3, atol=1e-5)
    sequences = examples_of(task, 8).sequences
    said = [list(carbon.load_finetuned(folder).predict(sequences)) for folder in folders]
    for one, two in zip(*said, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-4)


FUNCTION = """
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


@pytest.fixture
def folder(tmp_path, network, monkeypatch):
    save_model(network, tmp_path / "base")
    (tmp_path / "shares.py").write_text(FUNCTION)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tune(*words, function="gc", steps=4):
    return [
        "rl", "--model", "base", "--function", f"python:shares:{function}", "--length", "30",
        "--steps", str(steps), "--rate", "0.01", "--device", "cpu", *map(str, words),
    ]  # fmt: skip


def in_halves(output, *more, **options):
    return tune("--group", 6, "--save-steps", 2, "--output", output, *more, **options)


@pytest.mark.nightly
def test_one_process_draws_what_two_draw(folder):
    """Until rounding parts the weights: the first group is the same."""
    summary_in(run_on(2, in_halves("two"), folder))
    assert main(in_halves("one")) == 0
    one, two = (read_lines(folder / name).steps for name in ("one", "two"))
    assert one[0]["gc"] == pytest.approx(two[0]["gc"], abs=1e-12)
    assert one[0]["reward_std"] == pytest.approx(two[0]["reward_std"], abs=1e-12)
    assert one[0]["reward_std"] > 0

    assert json.loads((folder / "two/rl.json").read_text())["processes"] == 2
    bases = [record.bases for record in read_records(folder / "two/samples/step_000004.fa")]
    assert len(bases) == 6 and len(set(bases)) > 3  # the halves are no copies of one another
    gc = [sum(map(each.count, "GC")) / 30 for each in bases]
    assert two[-1]["gc"] == pytest.approx(sum(gc) / 6)


@pytest.mark.nightly
def test_a_function_that_fails_ends_all_and_they_go_on_with_the_same_bytes(folder):
    by_torchrun(2, in_halves("whole"), folder)
    (folder / "broken").touch()
    with pytest.raises(AssertionError, match="function 'moody': sample_"):
        by_torchrun(2, in_halves("moody", function="moody"), folder)
    (folder / "broken").unlink()
    by_torchrun(2, in_halves("moody", "--resume", function="moody"), folder)
    for name in ("adapter/adapter_model.safetensors", "model/model.safetensors"):
        whole, moody = ((folder / run / name).read_bytes() for run in ("whole", "moody"))
        assert whole == moody, name


@pytest.mark.nightly
@pytest.mark.parametrize("stale", [0, 1])
def test_a_worker_that_is_killed_takes_nothing_with_it(folder, start, stale):
    """Two workers, one of which is killed in the middle; no weights are older than allowed."""
    words = tune("--group", 4, "--stale", stale, "--processes", 2, "--output", "out", steps=8)
    places = {"base": f"{folder}/base", "out": f"{folder}/out"}
    command = [sys.executable, "-m", "carbon", *(places.get(word, word) for word in words)]
    learner = start(command, PYTHONPATH=str(folder))
    waits_for((folder / "out/metrics.jsonl").exists)
    os.kill(workers_of(learner)[0], signal.SIGKILL)
    _, said = learner.communicate(timeout=500)
    assert learner.returncode == 0, said
    assert "a worker died (SIGKILL); another one replaces it" in said
    lines = read_lines("out").steps
    assert [line["step"] for line in lines] == list(range(1, 9))
    assert lines[0]["staleness_rounds"] == 0
    assert all(0 <= line["staleness_rounds"] <= stale for line in lines)
    dropped = [line["dropped_groups"] for line in lines]
    assert dropped == sorted(dropped)
    assert (folder / "out/model/model.safetensors").is_file()
