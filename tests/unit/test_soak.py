"""The soak test in `bench/`: trials of every kind end in order."""

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


@pytest.mark.nightly
def test_trials_end_in_order(soak):
    arguments = argparse.Namespace(
        trials=60, seed=1, limit_seconds=300, load_seconds=0, serve_seconds=0
    )
    assert soak.soak(arguments) == 0


@pytest.mark.nightly
def test_a_pipe_ends_in_order_wherever_it_is_offered(soak, tmp_path, monkeypatch):
    """Each reader refuses a pipe, except `tokenize`, to which none is offered.

    Of a folder it is offered in place of a file that the command reads.
    """
    files, draw = soak.Files(tmp_path), Random(0)
    draw.random = lambda: 0.0  # always a pipe
    read = {"config.json", "finetune.json", "manifest.json", "metrics.jsonl"}
    draw.choice = lambda of: next((o for o in of if getattr(o, "name", "") in read), of[0])
    for name, reader in dict(soak.READERS).items():
        monkeypatch.setattr(soak, "READERS", {name: reader})
        ends = {"done", "refused"} if reader.takes_pipes else {"refused"}
        assert files.trial(draw, 300)[1] in ends, name
