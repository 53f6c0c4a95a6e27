"""The soak test in `bench/`: trials of every kind end in order."""

import argparse
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.nightly
def test_trials_end_in_order(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    arguments = argparse.Namespace(
        trials=60, seed=1, limit_seconds=300, load_seconds=0, serve_seconds=0
    )
    assert import_module("soak").soak(arguments) == 0
