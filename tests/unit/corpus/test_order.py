"""Which row of which source is read when: shares, epochs, phases; and rows packed of records."""

from collections import Counter
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.corpus import Blend, SampleOrder, SpanRows, pack, permuted
from tests.helpers.corpus import make_rows, shares

GOLDEN = Path(__file__).parents[2] / "golden"


@given(shares)
@settings(max_examples=20)
def test_every_prefix_has_every_share_to_within_one_row(mixture):
    blend = Blend(mixture)
    counts = Counter()
    drawn = [blend.names[source] for source in blend.sources(np.arange(4000))]
    for i in range(4000):
        for name, share in mixture.items():
            assert abs(counts[name] - i * share) < 1 + 1e-9
            if i % 500 == 0:
                assert blend.count(name, i) == counts[name]
        counts[drawn[i]] += 1


@given(st.integers(1, 400), st.integers(0, 2**64 - 1))
def test_permutations_are_bijections(size, key):
    found = permuted(np.arange(size), size, np.uint64(key))
    assert sorted(found.tolist()) == list(range(size))
    assert found.tolist() == [walked(n, size, key) for n in range(size)]


def walked(n, size, key):
    """The same permutation, one number at a time in Python's integers."""

    def mixed(x):
        x = (x + 0x9E3779B97F4A7C15) % 2**64
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
        return x ^ (x >> 31)

    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    while True:
        left, right = n >> half_bits, n % 2**half_bits
        for number in range(4):
            left, right = right, left ^ (mixed(key ^ (right << 8) ^ number) % 2**half_bits)
        n = (left << half_bits) + right
        if n < size:
            return n


@given(st.lists(st.integers(0, 299), min_size=1, max_size=50), st.integers(0, 99))
def test_samples_are_the_same_in_any_company(numbers, seed):
    mixtures = ({"a": 0.6, "b": 0.4}, {"b": 0.3, "c": 0.7})
    spans = [SpanRows(150, mixture, 8) for mixture in mixtures]
    order = SampleOrder(seed, spans, {("a", 8): 7, ("b", 8): 30, ("c", 8): 1000})
    found = order.lookup(np.array(numbers))
    for at, i in enumerate(numbers):
        one = order[i]
        assert one == (
            int(found.span[at]), *order.streams[found.stream[at]], int(found.row[at]),
            int(found.epoch[at]), int(found.noise[at]),
        )  # fmt: skip


@given(st.integers(0, 50), st.integers(1, 80))
def test_every_epoch_reads_every_row_once(seed, size):
    order = SampleOrder(seed, [SpanRows(3 * size, {"a": 1.0}, 8)], {("a", 8): size})
    found = order.lookup(np.arange(3 * size))
    for epoch in range(3):
        rows = found.row[found.epoch == epoch].tolist()
        assert sorted(rows) == list(range(size))


def test_a_phase_that_is_added_changes_no_row_before_it():
    """Be it of a new source, or of rows of another length."""
    first = SpanRows(400, {"a": 0.5, "b": 0.5}, 8)
    sizes = {("a", 8): 60, ("b", 8): 90}
    short = SampleOrder(1, [first], sizes)
    for added, size in (
        (SpanRows(100, {"b": 0.5, "new": 0.5}, 8), {("new", 8): 10}),
        (SpanRows(100, {"a": 0.5, "b": 0.5}, 16), {("a", 16): 30, ("b", 16): 45}),
    ):
        longer = SampleOrder(1, [first, added], sizes | size)
        numbers = np.arange(400)
        for one, other in zip(short.lookup(numbers), longer.lookup(numbers), strict=True):
            assert one.tolist() == other.tolist()


def test_each_length_of_rows_has_a_counter_of_its_own():
    """And a source that returns to a length goes on where it was."""
    spans = [SpanRows(n, {"a": 1.0}, tokens) for n, tokens in ((30, 8), (20, 16), (30, 8))]
    order = SampleOrder(0, spans, {("a", 8): 50, ("a", 16): 20})
    found = order.lookup(np.arange(80))
    short = found.stream == order.streams.index(("a", 8))
    assert short.tolist() == [True] * 30 + [False] * 20 + [True] * 30
    assert found.epoch[short].tolist() == [0] * 50 + [1] * 10
    assert sorted(found.row[short][:50].tolist()) == list(range(50))
    assert sorted(found.row[~short].tolist()) == list(range(20))


def test_parts_of_a_phase_have_its_shares_together():
    """Twenty spans too short for a share of a tenth; and the order of names says nothing."""
    for mixture in ({"a": 0.9, "b": 0.1}, {"b": 0.1, "a": 0.9}):
        sizes = {("a", 8): 50, ("b", 8): 20}
        parts = SampleOrder(0, [SpanRows(8, mixture, 8)] * 20, sizes)
        whole = SampleOrder(0, [SpanRows(160, mixture, 8)], sizes)
        for one, other in zip(parts[159][1:], whole[159][1:], strict=True):
            assert one == other
        found = parts.lookup(np.arange(160))
        assert (found.stream == 1).sum() == 16
        assert found.row.tolist() == whole.lookup(np.arange(160)).row.tolist()
    first, second = (Blend(m).names for m in ({"b": 0.5, "a": 0.5}, {"a": 0.5, "b": 0.5}))
    assert first == second


def test_the_order_is_what_it_was():
    """Runs go on for weeks: an order that changes changes what has been read already."""
    spans = [SpanRows(40, {"dna": 0.75, "rna": 0.25}, 64), SpanRows(20, {"rna": 1.0}, 128)]
    order = SampleOrder(7, spans, {("dna", 64): 11, ("rna", 64): 5, ("rna", 128): 3})
    found = "".join(f"{' '.join(map(str, order[i]))}\n" for i in range(60))
    assert found == (GOLDEN / "order.txt").read_text()


def test_what_is_random_about_a_row_is_fair():
    _, rows, _ = make_rows(({"dna": 1.0},), num_rows=1500)
    samples = [rows.order[i] for i in range(1500)]
    readings = [rows.reading(sample) for sample in samples]
    drawn = {name: Counter(getattr(r, name) for r in readings) for name in readings[0]._fields}
    # Of 1,500 a count with chance p has a standard deviation of at most 19; five of them are 97.
    for offset in range(6):
        assert abs(drawn["offset"][offset] - 250) < 75
    assert abs(drawn["reverse"][True] - 750) < 97
    for name in ("with_species", "with_gene"):
        assert abs(drawn[name][True] - 500) < 97
    bare = sum(not (r.with_species or r.with_gene) for r in readings)
    assert abs(bare - 750) < 97
    by_row = Counter((sample.row, r.reverse) for sample, r in zip(samples, readings, strict=True))
    assert all(by_row[row, False] and by_row[row, True] for row, _ in by_row)


@given(st.lists(st.integers(1, 900), max_size=25), st.integers(16, 80))
def test_packing_is_best_fit_longest_first(lengths_bp, row_tokens):
    packing = pack(np.array(lengths_bp, dtype=np.int64), row_tokens)
    most = row_tokens - 3  # three tokens are kept for begin, tag and end of a segment
    segments = [
        (record, 6 * first, min(most, kmers - first))
        for record, kmers in enumerate(-(-n // 6) for n in lengths_bp)
        for first in range(0, kmers, most)
    ]
    rows, by_change = [], []  # as they were begun, and the one changed last at the end
    for segment in sorted(segments, key=lambda segment: -segment[2]):
        free = [row_tokens - sum(kmers + 3 for _, _, kmers in row) for row in by_change]
        fits = [row for row, left in enumerate(free) if left >= segment[2] + 3 and left > 3]
        if fits:
            row = by_change.pop(min(fits, key=lambda row: free[row]))
        else:
            rows.append(row := [])
        row.append(segment)
        by_change.append(row)
    found = zip(packing.record, packing.start, packing.num_kmers, strict=True)
    assert list(found) == [segment for row in rows for segment in sorted(row)]
    assert packing.row_start.tolist() == np.cumsum([0, *map(len, rows)]).tolist()
