"""`carbon tune` on two processes: one group, of which each draws and measures a half."""

import json
import subprocess

import pytest

from carbon.genome.sequences import read_records
from carbon.model import save_model
from carbon.run_folder import read_lines
from tests.helpers.warm import warm_python

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


def tune(folder, output, *more, oracle="gc", processes=2):
    command = [
        warm_python(), "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "-m",
        "carbon", "tune", "--model", "base", "--oracle", f"python:shares:{oracle}",
        "--length", "30", "--group", "6", "--steps", "4", "--probe", "2", "--rate", "0.01",
        "--device", "cpu", "--output", output, *more,
    ]  # fmt: skip
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("tuning")
    save_model(network, folder / "base")
    (folder / "shares.py").write_text(ORACLE)
    for name in ("one", "two"):
        done = tune(folder, name)
        assert done.returncode == 0, done.stderr[-3000:]
        assert len(done.stdout.splitlines()) == 1
    return folder


def test_the_same_settings_give_the_same_adapter(folder):
    assert json.loads((folder / "one/tune.json").read_text())["processes"] == 2
    for name in ("adapter/adapter_model.safetensors", "model/model.safetensors", "metrics.jsonl"):
        assert (folder / "one" / name).read_bytes() == (folder / "two" / name).read_bytes(), name

    line = read_lines(folder / "one").steps[-1]
    bases = [record.bases for record in read_records(folder / "one/samples/step_000004.fa")]
    assert len(bases) == 6 and len(set(bases)) > 3  # the halves are no copies of one another
    gc = [sum(map(each.count, "GC")) / 30 for each in bases]
    assert line["gc"] == pytest.approx(sum(gc) / 6)


def test_one_process_draws_what_two_draw(folder):
    """Until rounding parts the weights: the first group is the same."""
    done = tune(folder, "alone", processes=1)
    assert done.returncode == 0, done.stderr[-3000:]
    alone, both = (read_lines(folder / name).steps for name in ("alone", "one"))
    assert alone[0]["gc"] == pytest.approx(both[0]["gc"], abs=1e-12)
    assert alone[0]["reward_std"] == pytest.approx(both[0]["reward_std"], abs=1e-12)
    assert alone[0]["reward_std"] > 0


def test_an_oracle_that_fails_ends_all_and_they_go_on(folder):
    (folder / "broken").touch()
    done = tune(folder, "moody", oracle="moody")
    assert done.returncode != 0
    assert "oracle 'moody': sample_" in done.stderr
    (folder / "broken").unlink()
    done = tune(folder, "moody", "--resume", oracle="moody")
    assert done.returncode == 0, done.stderr[-3000:]
    name = "adapter/adapter_model.safetensors"
    assert (folder / "moody" / name).read_bytes() == (folder / "one" / name).read_bytes()
