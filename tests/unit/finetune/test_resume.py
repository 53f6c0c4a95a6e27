"""A fine-tuning that is killed at any checkpoint ends as one that is not."""

import dataclasses
import itertools
import shutil

import pytest
import torch

from carbon.finetune import train
from carbon.finetune.config import MethodConfig
from carbon.finetune.predict import ValidationScore
from carbon.finetune.train import last_checkpoint, train_weights, trained_of
from tests.helpers.finetune import BINARY, examples_of, finetuned_of

# Weights of classes that differ, so that the steps of an epoch have different total weights; 12
# examples in steps of 5 leave a last step of 2.
QUESTION = dataclasses.replace(BINARY, class_weights=(1.0, 7.0))
WAY = MethodConfig(
    name="lora", rank=4, dropout=0.3, batch=5, micro_batch=3, epochs=1.5, learning_rate=1e-2,
    validations_per_epoch=3, patience=100,
)  # fmt: skip


@pytest.fixture
def run(base):
    """Train in a folder; return the weights and the history."""
    examples = examples_of(QUESTION)

    def run(method, folder, *, resume=False):
        finetuned, _ = finetuned_of(base, QUESTION, method)
        splits = examples.split("train"), examples.split("validation")
        training = train_weights(finetuned, *splits, method, 0, folder, resume=resume)
        return trained_of(finetuned.network), training

    return run


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Keep what a kill after each checkpoint would leave, in a folder by its step."""
    save = train._Trainer._save_checkpoint

    def save_and_keep(self, *args):
        save(self, *args)
        folder = tmp_path / f"killed-{self.state.global_step}"
        if not folder.exists():
            shutil.copytree(self.args.output_dir, folder)

    monkeypatch.setattr(train._Trainer, "_save_checkpoint", save_and_keep)


def assert_same(one, other):
    assert one[1] == other[1]
    assert all(torch.equal(one[0][name], other[0][name]) for name in one[0] | other[0])


# 12 examples in steps of 5 are 3 steps an epoch; 1.5 epochs are 5 steps, each validated: the
# first is within an epoch, the third ends one.
@pytest.mark.parametrize(
    ("name", "steps"), [("lora", (1, 3)), pytest.param("full", (4,), marks=pytest.mark.nightly)]
)
def test_killed_at_a_checkpoint(tmp_path, run, kept, name, steps):
    method = WAY.replace(name=name)
    whole = run(method, tmp_path / "whole")
    assert [each.step for each in whole[1].validations] == [1, 2, 3, 4, 5]
    for step in steps:
        assert_same(run(method, tmp_path / f"killed-{step}", resume=True), whole)


def test_training_that_ended_does_not_train_again(tmp_path, run, monkeypatch):
    method = WAY.replace(epochs=0.3)
    whole = run(method, tmp_path)
    monkeypatch.setattr(train._Trainer, "train", None)  # calling it would fail
    assert_same(run(method, tmp_path, resume=True), whole)


def score_after(step, monkeypatch):
    """Let scores of later validations rise up to step 1 and fall from there."""
    steps = itertools.count(step + 1)
    monkeypatch.setattr(train, "validate", lambda *_: ValidationScore(-abs(next(steps) - 1.0), 0.0))


def test_patience_that_was_used_up_stays_so(tmp_path, run, kept, monkeypatch):
    method = WAY.replace(patience=2, epochs=3)
    score_after(0, monkeypatch)
    whole = run(method, tmp_path / "whole")
    # The best validation is the first; two more without a better one, and that is the end.
    assert [each.step for each in whole[1].validations] == [1, 2, 3]
    assert whole[1].best.step == 1
    score_after(2, monkeypatch)
    assert_same(run(method, tmp_path / "killed-2", resume=True), whole)


def test_a_checkpoint_that_a_kill_tore_is_passed_over(tmp_path, run, kept, monkeypatch):
    score_after(0, monkeypatch)  # the first validation is the best, so that its checkpoint stays
    run(WAY, tmp_path / "whole")
    for name in ("trainer_state.json", "trained.safetensors", "optimizer.pt", "scheduler.pt"):
        folder = tmp_path / f"without-{name}"
        shutil.copytree(tmp_path / "killed-4", folder)
        for foreign in ("checkpoint-9 (copy)", "checkpoint-00000009.bak", "checkpoint-x"):
            shutil.copytree(folder / "checkpoint-4", folder / foreign)
        assert last_checkpoint(folder) == folder / "checkpoint-4"
        (folder / "checkpoint-4" / name).unlink()
        assert last_checkpoint(folder) == folder / "checkpoint-1"
        assert not (folder / "checkpoint-4").exists()
    state = tmp_path / "killed-1" / "checkpoint-1" / "trainer_state.json"
    state.write_text(state.read_text()[:100])
    assert last_checkpoint(tmp_path / "killed-1") is None
