"""A fine-tuning that is killed at any checkpoint ends as one that is not."""

import dataclasses
import itertools
import shutil

import pytest
import torch

from carbon.adapt import tuning
from carbon.adapt.checkpoints import last_checkpoint, trained_of
from carbon.adapt.config import WayConfig
from carbon.adapt.measuring import Measured
from carbon.adapt.tuning import tune
from tests.helpers.adapt import BINARY, adapted_of, base_folder, examples_of

# Weights of classes that differ, so that the steps of an epoch have different total weights; 12
# examples in steps of 5 leave a last step of 2.
QUESTION = dataclasses.replace(BINARY, class_weights=(1.0, 7.0))
WAY = WayConfig(
    name="lora", rank=4, dropout=0.3, batch=5, micro_batch=3, epochs=1.5, learning_rate=1e-2,
    looks_per_epoch=3, patience=3,
)  # fmt: skip


# 12 examples in steps of 5 are 3 steps an epoch; 1.5 epochs are 5 steps, each with a look.
STEPS = range(1, 6)


@pytest.fixture
def run(tmp_path, network):
    """Tune in a folder; return the weights, and the looks."""
    base = base_folder(tmp_path, network)
    examples = examples_of(QUESTION)

    def run(way, folder, *, resume=False):
        adapted, _ = adapted_of(base, QUESTION, way)
        parts = examples.part("train"), examples.part("validation")
        tuned = tune(adapted, *parts, way, 0, folder, resume=resume)
        return trained_of(adapted.network), tuned

    return run


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Keep what a kill after each checkpoint would leave, in a folder by its step."""
    save = tuning._Trainer._save_checkpoint

    def save_and_keep(self, *args):
        save(self, *args)
        folder = tmp_path / f"killed-{self.state.global_step}"
        if not folder.exists():
            shutil.copytree(self.args.output_dir, folder)

    monkeypatch.setattr(tuning._Trainer, "_save_checkpoint", save_and_keep)


def assert_same(one, other):
    assert one[1] == other[1]
    assert all(torch.equal(one[0][name], other[0][name]) for name in one[0] | other[0])


@pytest.mark.parametrize("name", ["lora", "full"])
def test_killed_at_every_checkpoint(tmp_path, run, kept, name):
    way = dataclasses.replace(WAY, name=name, patience=100)
    whole = run(way, tmp_path / "whole")
    assert [look.step for look in whole[1].looks] == list(STEPS)
    for step in STEPS:
        assert_same(run(way, tmp_path / f"killed-{step}", resume=True), whole)


def score_after(step, monkeypatch):
    """Let scores of later looks rise up to step 1 and fall from there."""
    steps = itertools.count(step + 1)
    monkeypatch.setattr(tuning, "measured", lambda *_: Measured(-abs(next(steps) - 1.0), 0.0))


def test_patience_that_was_used_up_stays_so(tmp_path, run, kept, monkeypatch):
    way = dataclasses.replace(WAY, patience=2, epochs=3)
    score_after(0, monkeypatch)
    whole = run(way, tmp_path / "whole")
    # The best look is the first; two more without a better one, and that is the end.
    assert [look.step for look in whole[1].looks] == [1, 2, 3] and whole[1].best.step == 1
    for step in (1, 2, 3):
        score_after(step, monkeypatch)
        assert_same(run(way, tmp_path / f"killed-{step}", resume=True), whole)


def test_a_checkpoint_that_a_kill_tore_is_passed_over(tmp_path, run, kept, monkeypatch):
    way = dataclasses.replace(WAY, patience=100)
    score_after(0, monkeypatch)  # the first look is the best, so that its checkpoint stays
    whole = run(way, tmp_path / "whole")
    folder = tmp_path / "killed-4"
    assert last_checkpoint(folder) == folder / "checkpoint-4"
    (folder / "checkpoint-4" / "trainer_state.json").unlink()
    score_after(1, monkeypatch)
    assert_same(run(way, folder, resume=True), whole)


FILES = ["trainer_state.json", "trained.safetensors", "optimizer.pt", "scheduler.pt"]


def test_a_checkpoint_is_whole_or_removed(tmp_path, run, kept):
    run(dataclasses.replace(WAY, epochs=0.3), tmp_path / "whole")
    for name in FILES:
        folder = tmp_path / f"without-{name}"
        shutil.copytree(tmp_path / "killed-1", folder)
        (folder / "checkpoint-1" / name).unlink()
        assert last_checkpoint(folder) is None and not list(folder.iterdir())
    state = tmp_path / "killed-1" / "checkpoint-1" / "trainer_state.json"
    state.write_text(state.read_text()[:100])
    assert last_checkpoint(tmp_path / "killed-1") is None
