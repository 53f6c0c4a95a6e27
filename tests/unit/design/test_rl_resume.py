"""A run of `carbon rl` that was stopped goes on, and has the bytes of one that was left alone."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

import carbon
from carbon.cli import main
from carbon.rl.folder import last_checkpoint
from carbon.run_folder import read_lines

KILLER = """
import os, pathlib, signal
calls = 0
def gc(sequences):
    global calls
    calls += 1
    if calls == 4 and pathlib.Path("kills").exists():
        os.kill(os.getppid(), signal.SIGKILL)
    return [(s.count("G") + s.count("C")) / len(s) for s in sequences]
"""


def words(start, output, *more):
    return [
        "rl", "--model", str(start), "--function", "python:killer:gc", "--length", "30",
        "--steps", "5", "--group", "4", "--rate", "0.01", "--save-steps", "2", "--device", "cpu",
        "--output", output, *more,
    ]  # fmt: skip


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def killed(start, tmp_path_factory):
    """A folder with a run that was killed in its fourth step, two steps after a checkpoint."""
    folder = tmp_path_factory.mktemp("killed")
    (folder / "killer.py").write_text(KILLER)
    (folder / "kills").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = subprocess.run([sys.executable, "-m", "carbon", *words(start, "stopped")])
        assert done.returncode == -signal.SIGKILL
        (folder / "kills").unlink()
        assert main(words(start, "whole")) == 0
    return folder


@pytest.mark.nightly
def test_a_run_that_was_killed_goes_on_with_the_same_bytes(start, killed, monkeypatch, capsys):
    monkeypatch.chdir(killed)
    stopped, whole = killed / "stopped", killed / "whole"
    assert len(read_lines(stopped).steps) == 3 and not (stopped / "model").exists()
    assert main(words(start, "stopped")) == 2
    assert "exists already" in capsys.readouterr().err
    other = words(start, "stopped", "--resume")
    other[other.index("0.01")] = "0.02"
    assert main(other) == 2
    assert "the earlier run differs in: rate" in capsys.readouterr().err

    assert last_checkpoint(stopped, 1) == stopped / "checkpoint-2"
    assert last_checkpoint(stopped, 2) is None  # the random numbers of one process are missing
    for torn, name in (("checkpoint-4", "trainer_state.json"), ("checkpoint-6", "rng_state.pth")):
        shutil.copytree(stopped / "checkpoint-2", stopped / torn)
        os.truncate(stopped / torn / name, (stopped / torn / name).stat().st_size // 2)
    foreign = shutil.copytree(stopped / "checkpoint-2", stopped / "checkpoint-9 (copy)")
    assert last_checkpoint(stopped, 1) == stopped / "checkpoint-2"
    assert main(words(start, "stopped", "--resume", "--timeout", "60")) == 0
    told = json.loads(capsys.readouterr().out)
    shutil.rmtree(foreign)  # left alone
    assert contents(stopped) == contents(whole)
    assert not list(stopped.glob("checkpoint*"))
    steps = read_lines(whole).steps
    assert told["first"] == {"gc": steps[0]["gc"]} and told["last"] == {"gc": steps[-1]["gc"]}

    before = contents(stopped)
    assert main(words(start, "stopped", "--resume")) == 0  # there is nothing left to do
    assert contents(stopped) == before


def test_resume_of_nothing_begins(start, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "killer.py").write_text(KILLER)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/mine.txt").touch()
    assert main(words(start, "other", "--resume")) == 2
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["mine.txt"]


def test_from_python_with_a_callable(start, tmp_path):
    seen = []

    def gc(sequences):
        seen.extend(sequences)
        return [sum(map(each.count, "GC")) / len(each) for each in sequences]

    options = {"device": "cpu", "length_bp": 30, "steps": 1, "group": 4}
    tuned = carbon.rl.run(start, [gc], tmp_path / "tuned", **options)
    assert len(seen) == 4 and all(len(each) == 30 for each in seen)
    (line,) = read_lines(tmp_path / "tuned").steps
    assert line["gc"] == pytest.approx(sum(gc(list(seen))) / 4)
    (drawn,) = tuned.generate([""], 30, seed=1)
    assert len(drawn) == 30
    assert json.loads((tmp_path / "tuned/rl.json").read_text())["functions"] == "gc=callable:gc"
