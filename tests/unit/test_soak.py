"""The soak test in `bench/`: damages take any bytes, and trials of every kind end in order."""

import argparse
from collections import Counter, defaultdict
from importlib import import_module
from pathlib import Path
from random import Random

import httpx
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


def equal_clients(soak, monkeypatch, statuses):
    """Ask a server that answers alike, with the next of these statuses and then with the last."""
    remaining = list(statuses)

    def answer(request):
        status = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        return httpx.Response(status, json={"scores": []})

    client = httpx.Client(transport=httpx.MockTransport(answer))
    counts = defaultdict(Counter)
    with monkeypatch.context() as patch:
        patch.setattr(soak.httpx, "Client", lambda **_: client)
        patch.setattr(soak, "_NUM_EQUAL_CLIENTS", 2)
        soak._ask_equally("http://server/score", "self", 0.2, counts)
    return counts


def test_equal_errors_are_no_equal_answers(soak, monkeypatch):
    assert set(equal_clients(soak, monkeypatch, [200])["requests of 64 clients"]) == {"equal"}
    lost = equal_clients(soak, monkeypatch, [200, 200, 400])
    assert set(lost["requests of 64 clients"]) == {"LOST"}
    for statuses in ([400], [200, 413]):
        with pytest.raises(httpx.HTTPStatusError):
            equal_clients(soak, monkeypatch, statuses)


@pytest.mark.nightly
def test_trials_end_in_order(soak):
    arguments = argparse.Namespace(
        trials=60, seed=1, limit_seconds=300, load_seconds=0, serve_seconds=0
    )
    assert soak.soak(arguments) == 0
