"""Builders: what they make of genomes written by hand, and what they refuse."""

import importlib
import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carbon.errors import UserError
from eval.tasks import TASKS
from eval.tasks.common.building import Source
from eval.tasks.genomic_niah.build import DEPTHS, LEVELS, slots
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.tasks_build import rows_of


@pytest.fixture(scope="module")
def niah(tmp_path_factory) -> tuple[str, list[dict]]:
    folder = tmp_path_factory.mktemp("niah")
    genome = random_bases(9000, seed=31)
    fasta = write_fasta(folder / "g.fa", {"c1": genome[:4000] + "N" * 50 + genome[4000:]})
    output = folder / "n.parquet"
    TASKS["genomic_niah"].build(
        output, sources=[Source("x", fasta)], context_length_tokens=[400, 500], num_examples=10
    )
    return genome, rows_of(output)


def test_keys_stand_at_their_depth(niah):
    _, rows = niah
    assert len(rows) == 4 * 2 * 10 and len({row["uid"] for row in rows}) == 80
    assert Counter(row["depth"] for row in rows) == {depth: 16 for depth in DEPTHS}
    for row in rows:
        body = row["prompt"][:-24]
        at = body.index(row["key"] + row["value"])
        assert row["prompt"].endswith(row["key"]) and body.count(row["key"]) == 1
        assert at % 6 == 0 and abs(at - row["depth"] * len(body)) <= 3
        # Prompt and value and `<dna>` are the context.
        assert len(row["prompt"]) + 24 == 6 * (row["context_length_tokens"] - 1)
        assert row["positive_sequence"] == row["prompt"] + row["value"]
        wrong = row["negative_sequence"][len(row["prompt"]) :]
        assert row["negative_sequence"].startswith(row["prompt"]) and len(wrong) == 24
        assert not any(a == b for a, b in zip(wrong, row["value"], strict=True))


def test_near_duplicates_differ_in_so_many_bases(niah):
    _, rows = niah
    for row in rows:
        edits = LEVELS[row["level"]]
        others = row["distractor_keys"]
        assert len(others) == len(set(others)) == (8 if edits else 0)
        body = row["prompt"][:-24]
        for other, start in zip(others, row["needle_starts"][1:], strict=True):
            assert sum(a != b for a, b in zip(other, row["key"], strict=True)) == edits
            assert body[start : start + 24] == other and start % 6 == 0
            assert body[start + 24 : start + 48] != row["value"]


def test_levels_differ_in_their_distractors_alone(niah):
    """Taken out again, the needles leave one stretch of the genome, the same for all levels."""
    genome, rows = niah
    stretches: dict[str, set[str]] = {}
    for row in rows:
        body = row["prompt"][:-24]
        for start in sorted(row["needle_starts"], reverse=True):
            body = body[:start] + body[start + 48 :]
        assert body in genome[:4000] or body in genome[4000:]
        name = row["uid"].partition("-")[2]
        stretches.setdefault(f"{name} {row['key']} {row['value']}", set()).add(body[:600])
    assert len(stretches) == 20 and all(len(bodies) == 1 for bodies in stretches.values())


@given(st.integers(300, 500), st.sampled_from(DEPTHS), st.integers(0, 8), st.integers(0, 99))
def test_slots_never_overlap(tokens, depth, num_distractors, seed):
    body_bp = 6 * tokens
    starts = slots(body_bp, depth, num_distractors, np.random.default_rng(seed))
    assert len(starts) == 1 + num_distractors and abs(starts[0] - depth * body_bp) <= 3 + 48
    ordered = sorted(starts)
    assert all(b - a >= 48 for a, b in itertools.pairwise(ordered))
    assert all(start % 6 == 0 and 0 <= start <= body_bp - 48 for start in starts)


def test_long_haystacks_are_stitched(tmp_path, monkeypatch):
    module = importlib.import_module("eval.tasks.genomic_niah.build")
    monkeypatch.setattr(module, "_CONTIGUOUS_TOKENS", 320)
    contigs = {"a": random_bases(1500, seed=1), "b": "N" * 50 + random_bases(1500, seed=2) + "NN"}
    contigs["b"] += "ACGT" * 100  # a run that is too short to be taken
    source = Source("x", write_fasta(tmp_path / "g.fa", contigs))
    output = tmp_path / "n.parquet"
    build = TASKS["genomic_niah"].build
    build(output, sources=[source], context_length_tokens=[330, 450], num_examples=5)
    rows = [row for row in rows_of(output) if row["level"] == "plain"]
    assert len(rows) == 10
    a, b = contigs["a"], contigs["b"][50:1550]
    for row in rows:
        start = row["needle_starts"][0]
        hay = row["prompt"][:start] + row["prompt"][start + 48 : -24]
        assert hay in a + b or hay in b + a
    with pytest.raises(UserError, match="left out: 20 genome_too_short"):
        build(output, sources=[source], context_length_tokens=[900], num_examples=5)
    with pytest.raises(UserError, match="100 tokens: give 320 or more"):
        build(output, sources=[source], context_length_tokens=[100])
