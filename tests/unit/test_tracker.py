"""Where metrics go beside metrics.jsonl, read back with what reads it."""

import json
import math
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from carbon.errors import UserError
from tests.helpers.ranks import run_ranks
from train.__main__ import main
from train.runs.trackers import TRACKERS, check_installed, open_tracker

ROOT = Path(__file__).parents[2]


def log_and_resume(name, folder):
    """Six steps; steps 4 to 6 a second time after a resume; step 5 anew after a rollback."""
    config = {"model": {"preset": "tiny"}, "note": "seed = 3\n"}
    for steps, shift in ((range(1, 7), 0), (range(4, 7), 100)):
        tracker = open_tracker(name, folder, config)
        for step in steps:
            line = {"step": step, "loss": step + shift, "mfu": None, "objective": "ce"}
            tracker.log(step, line | {"norm": math.nan, "tokens": 16 * step})
        tracker.log(steps[-1], {"recovery": 0.25})
        if shift:
            tracker.log(5, {"loss": 1000.0})
        tracker.close()
        tracker.close()


def test_none_writes_nothing(tmp_path):
    log_and_resume("none", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_shows_each_step_once(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log_and_resume("tensorboard", tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert set(events.Tags()["scalars"]) == {"loss", "tokens", "recovery"}
    found = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in ("loss", "tokens")}
    assert found["loss"] == [(1, 1), (2, 2), (3, 3), (4, 104), (5, 1000)]
    assert found["tokens"] == [(1, 16), (2, 32), (3, 48), (4, 64)]
    (text,) = events.Tensors("note/text_summary")[0].tensor_proto.string_val
    assert text.decode() == "```\nseed = 3\n\n```"


@pytest.mark.nightly
def test_trackio_writes_into_the_run_folder_alone(tmp_path):
    """In another process: Trackio reads its folder once, when it is imported."""
    pytest.importorskip("trackio")
    code = (
        "import sys; from pathlib import Path\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.unit.test_tracker import log_and_resume\n"
        "log_and_resume('trackio', Path('run'))\n"
    )
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TRACKIO_", "HF_"))}
    environment = kept | {"HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert {path.name for path in tmp_path.iterdir()} <= {"run", "home"}
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["trackio"]
    (path,) = (tmp_path / "run" / "trackio").glob("*.db")
    with sqlite3.connect(path) as database:
        query = "SELECT run_name, step, metrics FROM metrics ORDER BY id"
        rows = database.execute(query).fetchall()
        (config,) = database.execute("SELECT config FROM configs").fetchone()
    losses = [(name, step, json.loads(text).get("loss")) for name, step, text in rows]
    first, second, third = "run from step 1", "run from step 4", "run from step 5"
    assert losses == [
        *((first, step, step) for step in range(1, 7)), (first, 6, None),
        *((second, step, 100 + step) for step in range(4, 7)), (second, 6, None),
        (third, 5, 1000),
    ]  # fmt: skip
    assert json.loads(rows[0][2]) == {"loss": 1, "tokens": 16}
    assert json.loads(config)["model"] == {"preset": "tiny"}


def test_wandb_has_a_run_for_each_beginning(tmp_path, monkeypatch):
    """Against a stand-in: W&B drops steps below the last one of a run."""
    runs = []

    def init(**arguments):
        run = SimpleNamespace(lines=[], ends=0)
        run.log = lambda values, step: run.lines.append((step, values["loss"]))
        run.finish = lambda: setattr(run, "ends", run.ends + 1)
        runs.append((arguments, run))
        return run

    package = SimpleNamespace(init=init, finish=lambda: runs[-1][1].finish())
    monkeypatch.setitem(sys.modules, "wandb", package)
    tracker = open_tracker("wandb", tmp_path / "run", {"seed": 3})
    for step in (1, 2, 3, 2, 3):
        tracker.log(step, {"loss": float(step)})
    tracker.close()
    assert [run.lines for _, run in runs] == [[(1, 1), (2, 2), (3, 3)], [(2, 2), (3, 3)]]
    assert [run.ends for _, run in runs] == [1, 1]
    expected = {"project": "carbon", "group": "run", "dir": str(tmp_path / "run")}
    for (arguments, _), step in zip(runs, (1, 2), strict=True):
        name = f"run from step {step}"
        assert arguments == expected | {"name": name, "config": {"seed": 3}}


def test_a_tracker_that_does_not_start_ends_a_run_with_one_line(tmp_path, monkeypatch):
    def init(**arguments):
        raise RuntimeError("api_key not configured (no-tty).\nmore")

    package = SimpleNamespace(init=init, finish=lambda: None)
    monkeypatch.setitem(sys.modules, "wandb", package)
    tracker = open_tracker("wandb", tmp_path / "run", {})
    with pytest.raises(UserError, match=r"'wandb' does not start \(api_key .*\); log in"):
        tracker.log(1, {"loss": 1.0})
    tracker.close()


@pytest.mark.parametrize("name", [name for name, kind in TRACKERS.items() if kind.package])
def test_a_missing_package_is_named_before_a_run_reads_its_corpus(
    name, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("TRACKIO_DIR", "unchanged")
    package = TRACKERS[name].package
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(UserError, match=f"'{name}': .* `pip install {package}`"):
        open_tracker(name, tmp_path, {})
    assert os.environ["TRACKIO_DIR"] == "unchanged"
    with pytest.raises(UserError, match=f"'{name}': .* `pip install {package}`"):
        check_installed(name)
    check_installed("none")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text((ROOT / "train/recipes/tiny.toml").read_text())
    words = [f"tracker={name}", f"output={tmp_path / 'run'}", f"data.corpus={tmp_path / 'absent'}"]
    assert main(["--config", str(recipe), *(f"--set={word}" for word in words)]) == 2
    assert f"pip install {package}" in capsys.readouterr().err  # before the corpus is read
    assert list(tmp_path.iterdir()) == [recipe]


def open_all(ranks, folder):
    """Return the number of threads before and after a tracker is opened and has logged."""
    torch.set_num_threads(3)
    os.environ.pop("OMP_NUM_THREADS", None)
    os.environ |= {"RANK": str(ranks.rank), "LOCAL_RANK": str(ranks.rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    tracker = open_tracker("tensorboard", folder / str(ranks.rank), {})
    tracker.log(1, {"loss": 1.0})
    tracker.close()
    return torch.get_num_threads(), len(list((folder / str(ranks.rank)).rglob("events.*")))


@pytest.mark.nightly
def test_a_tracker_changes_no_number_of_threads_on_any_process(tmp_path):
    pytest.importorskip("tensorboard")
    assert run_ranks(2, open_all, tmp_path, apart=True) == [(3, 1), (3, 1)]
