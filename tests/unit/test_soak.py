"""The soak test in `bench/`: damages take any bytes, and trials of every kind end in order."""

import argparse
from importlib import import_module
from pathlib import Path
from random import Random

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def soak(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    return import_module("soak")


@pytest.mark.parametrize("data", [b"", b"\n", bytes(range(256)), b'{"a": [1, "x"]}\n[b]\n'])
def test_every_damage_takes_any_bytes_and_follows_from_the_seed(soak, data):
    for damage in soak.DAMAGES.values():
        first, second = (damage(data, Random(seed)) for seed in (3, 3))
        assert isinstance(first, bytes) and first == second


@pytest.mark.nightly
def test_trials_end_in_order(soak):
    arguments = argparse.Namespace(trials=60, seed=1, limit_seconds=300, load_seconds=0)
    assert soak.soak(arguments) == 0
