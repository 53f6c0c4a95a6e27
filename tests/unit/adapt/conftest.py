"""Folders that many tests read; a test that changes one copies it."""

import os
from functools import cache

import pytest
from filelock import FileLock

import carbon
from carbon.adapt import details, intervals, outcome
from tests.helpers.adapt import base_folder, motif_rows, run_config, untrained_folder, write_rows


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    """Draw intervals of few resamples: how wide they are is no matter to most tests."""
    monkeypatch.setattr(intervals, "affordable_resamples", lambda num_samples: 60)
    monkeypatch.setattr(details, "_RESAMPLES_OF_GROUP", 60)


@pytest.fixture
def no_pages(monkeypatch):
    """Leave out report and card, which take most of the time of a small run."""
    monkeypatch.setattr(outcome, "write_report", lambda *_: None)
    monkeypatch.setattr(outcome, "write_card", lambda *_: None)


@pytest.fixture(scope="session")
def base(tmp_path_factory, network):
    """The folder of the small network."""
    return base_folder(tmp_path_factory.mktemp("base"), network)


@pytest.fixture(scope="session")
def untrained(tmp_path_factory, base):
    """Return the folder of an adapted model that has learned nothing, for a question."""
    root = tmp_path_factory.mktemp("untrained")
    return cache(lambda question: untrained_folder(base, question, root / question.kind))


@pytest.fixture(scope="session")
def finetuned(tmp_path_factory, network):
    """Return the folder that a way made of `motif_rows`; processes of pytest share it."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    root /= "finetuned"
    root.mkdir(exist_ok=True)

    def run(way):
        with FileLock(root / "lock"):
            if not (root / way).exists():
                base_folder(root, network)
                write_rows(root / "data.csv", motif_rows())
                config = run_config(root, name=way, epochs=2.0)
                config |= {"output": str(root / way), "baselines": ["constant", "composition"]}
                carbon.adapt(config)
        return root / way

    return run
