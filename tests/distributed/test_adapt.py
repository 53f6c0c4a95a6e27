"""`carbon adapt` on two processes against one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import carbon
from carbon.adapt.job import as_config
from carbon.cli import main
from carbon.config import to_toml
from tests.helpers.adapt import (
    BASES,
    BINARY,
    base_folder,
    examples_of,
    run_config,
    strict_json,
    write_rows,
)

ROOT = Path(__file__).parents[2]


def write_run(folder, network, question):
    """Write a model, a table with the parts, and two configurations that differ in the output."""
    base_folder(folder, network)
    examples = examples_of(question, 60)
    rows = []
    for n, name in enumerate(examples.names):
        labels = examples.labels[examples.rows_of(n), 0].astype(int)
        label = "".join(question.names[i][0] for i in labels) if question.per_base else labels[0]
        rows.append((name, examples.sequences[n], label, examples.parts[n]))
    write_rows(folder / "data.csv", rows, ("id", "sequence", "label", "part"))
    config = run_config(folder, question.kind, name="lora", epochs=2.0, batch=7, learning_rate=3e-3)
    config["data"]["split"] = {"by": "column", "column": "part"}
    for output in ("one", "two"):
        config["output"] = str(folder / output)
        (folder / f"{output}.toml").write_text(to_toml(as_config(config)))


@pytest.mark.parametrize(
    "question", [BASES, pytest.param(BINARY, marks=pytest.mark.nightly)], ids=lambda q: q.kind
)
def test_two_processes_and_one_learn_the_same(tmp_path, network, question, capsys):
    write_run(tmp_path, network, question)
    words = ["adapt", "--config"]
    assert main([*words, str(tmp_path / "one.toml")]) == 0
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launcher, "-m", "carbon", *words, tmp_path / "two.toml"],
        cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)  # of one process
    assert told["score"] == json.loads(capsys.readouterr().out)["score"]
    folders = tmp_path / "one", tmp_path / "two"
    looks = [strict_json(folder / "results.json")["seeds"][0]["looks"] for folder in folders]
    for key in ("loss", "score", "validation_loss"):
        found = [[look[key] for look in each] for each in looks]
        np.testing.assert_allclose(*found, rtol=1e-3, atol=1e-5)
    sequences = examples_of(question, 8).sequences
    said = [list(carbon.load_adapted(folder).predict(sequences)) for folder in folders]
    for one, two in zip(*said, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-4)
