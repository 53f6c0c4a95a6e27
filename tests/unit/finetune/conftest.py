"""Folders that many tests read; a test that changes one copies it."""

from functools import cache, partial

import pytest

import carbon
from carbon.finetune import homology, job, metrics, results
from tests.helpers.artefacts import built
from tests.helpers.finetune import base_folder, motif_rows, run_config, untrained_folder, write_rows


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    """Draw intervals of few resamples: how wide they are is no matter to most tests."""
    monkeypatch.setattr(metrics, "affordable_resamples", lambda num_samples: 60)
    monkeypatch.setattr(results, "_RESAMPLES_OF_GROUP", 60)


@pytest.fixture(autouse=True)
def no_mmseqs(request, monkeypatch):
    """Detect homology without MMseqs2, which takes a second, but in tests of it."""
    if "mmseqs2" not in request.node.name:
        monkeypatch.setattr(homology, "has_mmseqs", lambda: False)


@pytest.fixture
def no_pages(monkeypatch):
    """Leave out report and card, which take most of the time of a small run."""
    monkeypatch.setattr(job, "write_pages", lambda *_: None)


@pytest.fixture(scope="session")
def base(tmp_path_factory, network):
    """The folder of the small network."""
    return base_folder(tmp_path_factory.mktemp("base"), network)


@pytest.fixture(scope="session")
def untrained(tmp_path_factory, base):
    """Return the folder of a fine-tuned model without training, for a task."""
    root = tmp_path_factory.mktemp("untrained")
    return cache(lambda task: untrained_folder(base, task, root / f"{task.type}-{len(task.names)}"))


@pytest.fixture(scope="session")
def finetuned(network):
    """Return the folder that a way made of `motif_rows`, in this run of the tests or an earlier."""

    def fine_tune(folder, method):
        base_folder(folder, network)
        write_rows(folder / "data.csv", motif_rows())
        config = run_config(folder, name=method, epochs=2.0)
        carbon.finetune.run(None, config | {"baselines": ["constant", "composition"]})

    return lambda method: built(f"finetuned-{method}", partial(fine_tune, method=method)) / "out"
