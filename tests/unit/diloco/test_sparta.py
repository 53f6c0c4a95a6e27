"""Positions that SPARTA draws: how many, where, and how often each."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from train.diloco.sparta import SpartaWorker, chosen


@given(
    numel=st.integers(0, 3000),
    share=st.floats(1e-4, 1),
    seed=st.integers(0, 2**70),
    step=st.integers(0, 2**40),
)
def test_positions_are_ascending_and_as_many_as_the_share_says(numel, share, seed, step):
    found = chosen("w", numel, share, seed, step).numpy()
    assert found.dtype == np.int64 and abs(len(found) - share * numel) < 1
    assert (np.diff(found) > 0).all() and ((found >= 0) & (found < numel)).all()
    assert np.array_equal(found, chosen("w", numel, share, seed, step))


def test_a_share_of_one_is_all():
    assert chosen("w", 1000, 1.0, 3, 7).tolist() == list(range(1000))
    assert chosen("w", 0, 1.0, 3, 7).tolist() == []


@pytest.mark.parametrize(("numel", "share"), [(60, 0.1), (7, 0.3), (3, 0.05)])
def test_each_position_is_drawn_equally_often(numel, share):
    """Within 5 standard deviations; with lengths that runs do not divide."""
    steps = 4000
    counts = np.bincount(
        np.concatenate([chosen("w", numel, share, 0, step) for step in range(steps)]),
        minlength=numel,
    )
    spread = np.sqrt(steps * share * (1 - share))
    assert np.abs(counts - steps * share).max() < 5 * spread
    assert abs(counts.sum() - steps * share * numel) < 5 * spread * np.sqrt(numel)


def test_names_seeds_and_steps_draw_other_positions():
    draws = [("w", 0, 0), ("v", 0, 0), ("w", 1, 0), ("w", 0, 1)]
    found = {tuple(chosen(name, 1000, 0.05, seed, step).tolist()) for name, seed, step in draws}
    assert len(found) == 4


@pytest.mark.parametrize("count", [2, 3, 7, 1000])
def test_the_mean_of_equal_numbers_is_that_number(count, monkeypatch):
    """So rows that are frozen stay as they are, and ends of tied weights equal."""
    worker = SpartaWorker.__new__(SpartaWorker)
    worker._ranks = SimpleNamespace(num_workers=count, sync_group="all")

    def all_reduce(numbers, group):
        numbers.copy_(sum(numbers.clone() for _ in range(count)))

    monkeypatch.setattr("torch.distributed.all_reduce", all_reduce)
    numbers = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    assert torch.equal(worker._mean(numbers).float(), numbers)
