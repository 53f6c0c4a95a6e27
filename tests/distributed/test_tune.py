"""`carbon tune` on two processes: one group, of which each draws and measures a half."""

import json
import subprocess
import sys

import pytest

from carbon.genome.sequences import read_records
from carbon.model import save_model
from carbon.run_folder import read_lines

ORACLE = """
import pathlib
def gc(sequences):
    return [(s.count("G") + s.count("C")) / len(s) for s in sequences]
def fails(sequences):
    raise ValueError("no")
"""


def tune(folder, output, oracle="gc", steps=4, processes=2, *more):
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "-m",
        "carbon", "tune", "--model", "base", "--oracle", f"python:shares:{oracle}",
        "--length", "30", "--group", "6", "--steps", str(steps), "--probe", "2", "--rate", "0.01",
        "--device", "cpu", "--output", output, *more,
    ]  # fmt: skip
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("tuning")
    save_model(network, folder / "base")
    (folder / "shares.py").write_text(ORACLE)
    return folder


def test_the_same_settings_give_the_same_adapter(folder):
    for name in ("one", "two"):
        done = tune(folder, name)
        assert done.returncode == 0, done.stderr[-3000:]
        assert len(done.stdout.splitlines()) == 1
    assert json.loads((folder / "one/tune.json").read_text())["processes"] == 2
    for name in ("adapter/adapter_model.safetensors", "model/model.safetensors", "metrics.jsonl"):
        assert (folder / "one" / name).read_bytes() == (folder / "two" / name).read_bytes(), name

    line = read_lines(folder / "one").steps[-1]
    bases = [record.bases for record in read_records(folder / "one/samples/step_000004.fa")]
    assert len(bases) == 6 and len(set(bases)) > 3  # the halves are no copies of one another
    gc = [sum(map(each.count, "GC")) / 30 for each in bases]
    assert line["gc"] == pytest.approx(sum(gc) / 6)


def test_an_oracle_that_fails_ends_all(folder):
    done = tune(folder, "failed", "fails")
    assert done.returncode != 0
    assert "oracle 'fails': sample_" in done.stderr
