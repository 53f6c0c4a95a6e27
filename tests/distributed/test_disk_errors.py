"""Errors of a disk that one process of two meets: both act alike, and neither waits."""

import errno
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from torch import nn

from carbon.errors import ModelError
from tests.helpers.ranks import run_ranks
from train import checkpoint, saved
from train.checkpoint import Checkpoints
from train.config import CheckpointConfig
from train.diloco.sync import OuterSync
from train.saved import RunState


def bare(ranks, folder) -> Checkpoints:
    """Return checkpoints of a weight of each process in the place of a network."""
    found = object.__new__(Checkpoints)
    found._folder, found._settings, found._ranks = folder, {}, ranks
    found._config = SimpleNamespace(checkpoint=CheckpointConfig(every_steps=1, background=True))
    found._sync, found._modules = OuterSync(), nn.ModuleList()
    found._writing, found._error = None, None
    found._tensors = lambda *_, **__: {f"model.weight{ranks.rank}": torch.ones(2)}
    return found


def failing(module, name: str, times: int, wrong: OSError):
    """Let the first calls of a function fail."""
    real, left = getattr(module, name), [wrong] * times

    def call(*given):
        if left:
            raise left.pop()
        return real(*given)

    return mock.patch.object(module, name, call)


def save_twice(ranks, folder, rank: int, name: str, times: int) -> str:
    """Save the same step twice; return what is newest afterwards, or the error."""
    checkpoints = bare(ranks, folder)
    full = OSError(errno.ENOSPC, "No space left on device")
    with failing(checkpoint, name, times * (ranks.rank == rank), full):
        try:
            checkpoints.save(RunState(step=1))
            checkpoints.save(RunState(step=1))
            checkpoints.finish()
        except OSError as error:
            return error.strerror
    return checkpoints.newest()[0].name


@pytest.mark.parametrize(("rank", "name"), [(0, "_made_anew"), (1, "_on_disk")])
def test_a_failed_checkpoint_does_not_cost_the_next(tmp_path, rank, name):
    """Its error is reported, and raised only if the next cannot be written either."""
    passing = run_ranks(2, save_twice, tmp_path / "passing", rank, name, 1)
    assert passing == ["step-00000001"] * 2
    lasting = run_ranks(2, save_twice, tmp_path / "lasting", rank, name, 2)
    assert lasting == ["No space left on device"] * 2
    assert not list((tmp_path / "lasting").glob("step-*"))


def newest_for(ranks, folder, rank: int) -> str:
    wrong = OSError(errno.ESTALE, "Stale file handle")
    with failing(saved, "sha256_of_file", ranks.rank == rank, wrong):
        try:
            return bare(ranks, folder).newest()[0].name
        except ModelError as error:
            return str(error)


def test_one_process_that_cannot_read_stops_all(tmp_path):
    run_ranks(2, save_twice, tmp_path, 0, "_on_disk", 0)
    said = run_ranks(2, newest_for, tmp_path, 1)
    assert said == [said[0]] * 2
    assert "step-00000001: cannot be read (Stale file handle)" in said[0]
    assert run_ranks(2, newest_for, tmp_path, 2) == ["step-00000001"] * 2
