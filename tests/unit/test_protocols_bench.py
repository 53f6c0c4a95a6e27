"""`bench/protocols.py`: AUROCs and their differences; rows that exist are not measured again."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from carbon.genome import Variant

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bench():
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(ROOT / "bench"))
        return import_module("protocols"), import_module("known_variants")


def test_variants_without_a_delta_are_left_out_of_both(bench):
    protocols, known_variants = bench
    compared = known_variants.Comparison(
        [0, 1, 2, 3, 5], np.array([1, 1, 0, 0, 1]), ["a", "b", "c", "d", "e"]
    )
    deltas = np.array([-3.0, -1.0, -2.0, 0.0, 9.0, np.nan])
    others = np.array([-3.0, np.nan, -4.0, 0.0, 9.0, 1.0])
    # The last has no delta: -3 and -1 are below -2 and 0 in 3 of 4 pairs.
    assert protocols.auroc_of(deltas, compared).value == pytest.approx(0.75)
    # Both have the first alone of label 1: 2 of 2 pairs, and 1 of 2.
    found = protocols.auroc_of(deltas, compared, others)
    assert found.value == pytest.approx(0.5) and found.num_samples == 3


def test_a_row_is_measured_once(bench, model, tmp_path, monkeypatch):
    protocols, _ = bench
    measured = []

    def scored(model, genome, variants, method):
        measured.append(method)
        return {"deltas": [0.5], "tokens": 1.0, "cpu_ms": 1.0}

    monkeypatch.setattr(protocols, "scored", scored)
    variants = [Variant("c", 3, "A", "C")]
    rows = list(protocols.measured(model, None, variants, tmp_path / "rows.jsonl"))
    # 47 tokens of 6 bases are a window.
    assert [row["window_bp"] for row in rows[:2]] == [282, 256]
    assert {row["protocol"] for row in rows[2:]} == {"tiled"} and len(rows) == len(measured)
    assert list(protocols.measured(model, None, variants, tmp_path / "rows.jsonl")) == rows
    assert len(measured) == len(rows)
    with pytest.raises(SystemExit, match="other variants"):
        list(protocols.measured(model, None, variants * 2, tmp_path / "rows.jsonl"))
