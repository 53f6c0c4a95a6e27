import itertools
import pickle
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.corpus import (
    SpanRows,
    ordered_rows,
)
from carbon.corpus import packing as packing_module
from carbon.genome import reverse_complement
from carbon.tokenizer import NATIVE, Kmers, decode_kmers, encode
from tests.helpers.corpus import make_rows, open_table, packing_of
from tests.helpers.files import random_bases


def test_an_epoch_reads_every_row_once():
    order, _, _ = make_rows(num_rows=400)
    seen = Counter()
    for i in range(400):
        sample = order[i]
        seen[sample.source, sample.epoch, sample.row] += 1
    assert set(seen.values()) == {1}
    epochs = {key[:2] for key in seen}
    for source, epoch in epochs:
        if (source, epoch + 1) in epochs:
            rows = {key[2] for key in seen if key[:2] == (source, epoch)}
            assert rows == set(range(len(rows))) and len(rows) > 5


def test_counters_go_on_across_stages_and_later_stages_change_nothing():
    first, second = {"dna": 0.75, "rna": 0.25}, {"dna": 0.5, "rna": 0.5}
    alone, _, _ = make_rows((first,), 30)
    both, _, _ = make_rows((first, second), 30)
    other, _, _ = make_rows((first, {"rna": 1.0}), 30)
    for i in range(30):
        assert alone[i] == both[i] == other[i]
    drawn = Counter()
    for i in range(60):
        sample = both[i]
        rows = 1 + max(both[j].row for j in range(60) if both[j].source == sample.source)
        drawn[sample.source] += 1
        assert sample.span == i // 30
        assert sample.epoch <= drawn[sample.source] // max(rows - 1, 1)
    per_source = Counter((both[i].source, both[i].epoch, both[i].row) for i in range(60))
    assert set(per_source.values()) == {1}


def test_rows_are_a_function_of_their_number_alone():
    _, forward, _ = make_rows()
    _, backward, _ = make_rows()
    expected = [forward[i] for i in range(60)]
    for i in reversed(range(60)):
        for a, b in zip(expected[i], backward[i], strict=True):
            assert np.array_equal(a, b)
    _, other, _ = make_rows(seed=1)
    assert any(not np.array_equal(expected[i].input_ids, other[i].input_ids) for i in range(5))


def pieces_of(row):
    """Cut a row where positions begin anew; give each piece's ids, targets and mask."""
    starts = [*np.flatnonzero(row.position_ids == 0), len(row.input_ids)]
    for a, b in itertools.pairwise(starts):
        if row.input_ids[a] != NATIVE.pad:
            yield row.input_ids[a:b], row.targets[a:b], row.known[a:b]


def test_rows_hold_the_bases_of_the_records():
    order, rows, records = make_rows(num_rows=200)
    texts = records["sequence"].to_pylist()
    strands, frames, forms = Counter(), Counter(), Counter()
    for i in range(200):
        for ids, targets, known in pieces_of(rows[i]):
            opening = int(np.flatnonzero(ids == NATIVE.dna_start)[0])
            kmers = Kmers(targets[opening:-1], known[opening:-1])
            bases = decode_kmers(kmers).rstrip("N")
            assert bases and "N" not in bases
            forward = any(bases in text for text in texts)
            backward = any(bases in reverse_complement(text) for text in texts)
            assert forward or (backward and order[i].source == "dna")
            whole = encode(bases)
            assert np.array_equal(ids[opening:], whole.ids)
            assert known[-1] == 0 and not known[:opening].any()
            strands[order[i].source, forward] += 1
            forms[opening] += 1
            frames[min((t.find(bases) % 6 for t in texts if bases in t), default=-1)] += 1
    assert strands["rna", False] == 0 and strands["dna", False] > 20
    assert {0, 1, 2, 3, 4, 5} <= set(frames)
    # Half bare, a sixth with both tags, a third with one; a record without a gene tag has fewer.
    assert forms[0] > forms[1] > forms[2] > 0


records_of = st.lists(
    st.tuples(
        st.text(alphabet="ACGTNacgtRY", min_size=1, max_size=90),
        st.sampled_from(["cds", "tRNA", "unheard", None]),
        st.sampled_from(["fng", "mam", None]),
    ),
    min_size=1,
    max_size=12,
)


@given(records_of, st.integers(16, 60), st.booleans(), st.integers(0, 9))
@settings(max_examples=25)
def test_a_row_is_its_records_and_nothing_else(records, row_tokens, flip, seed):
    """Every base of a row against the records, by the slow way: strings and `encode`."""
    columns = dict(
        zip(("sequence", "gene_type", "species_type"), zip(*records, strict=True), strict=True)
    )
    source = open_table(pa.table({k: list(v) for k, v in columns.items()}), row_tokens, flip)
    packing = packing_of(source)
    count = packing.num_rows
    rows = ordered_rows(seed, [SpanRows(2 * count, {"s": 1.0}, row_tokens)], {"s": source})
    for i in range(2 * count):
        sample = rows.order[i]
        reading = rows.reading(sample)
        assert flip or not reading.reverse
        ids, targets, known, positions = [], [], [], []
        for piece in range(*packing.row_start[sample.row : sample.row + 2]):
            bases, gene, species = records[packing.record[piece]]
            start = packing.start[piece] + reading.frame
            bases = bases[start : start + 6 * packing.num_kmers[piece]]
            bases = reverse_complement(bases) if reading.reverse else bases
            tags = {"fng": "<fungi_species>", "mam": "<mammalian_species>", None: None}[species]
            drawn = [tags] if reading.with_species and tags else []
            tags = {"cds": "<protein_coding_region>", "tRNA": "<transfer_rna>"}.get(gene)
            drawn += [tags] if reading.with_gene and tags else []
            whole = encode(bases, tags=tuple(drawn))
            ids += whole.ids.tolist()
            targets += [*whole.kmers[1:].tolist(), 0]
            known += [*whole.known[1:].tolist(), 0]
            positions += range(len(whole.ids))
        found = rows[i]
        assert len(ids) <= row_tokens and found.input_ids[: len(ids)].tolist() == ids
        assert (found.input_ids[len(ids) :] == NATIVE.pad).all()
        assert found.targets.tolist() == targets + [0] * (row_tokens - len(ids))
        assert found.known.tolist() == known + [0] * (row_tokens - len(ids))
        assert found.position_ids[: len(ids)].tolist() == positions


@given(st.lists(st.integers(1, 400), min_size=1, max_size=60), st.integers(16, 70))
@settings(max_examples=25)
def test_packing_by_blocks_covers_every_base_once(lengths_bp, row_tokens):
    table = pa.table({"sequence": [random_bases(n, i) for i, n in enumerate(lengths_bp)]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing_module, "_RECORDS_A_BLOCK", 7)
        source = open_table(table, row_tokens)
    packing = packing_of(source)
    covered = [np.zeros(n, dtype=int) for n in lengths_bp]
    for row in range(packing.num_rows):
        pieces = range(*packing.row_start[row : row + 2])
        assert sum(packing.num_kmers[p] + 3 for p in pieces) <= row_tokens
        assert len({packing.record[p] // 7 for p in pieces}) == 1
        for p in pieces:
            start = packing.start[p]
            covered[packing.record[p]][start : start + 6 * packing.num_kmers[p]] += 1
    assert all((places == 1).all() for places in covered)


def test_rows_travel_as_folders():
    _, rows, _ = make_rows(num_rows=200)
    packed = pickle.dumps(rows)
    assert len(packed) < 20_000 and random_bases(55, 55).encode() not in packed
    again = pickle.loads(packed)
    for i in (0, 7, 199):
        for one, other in zip(rows[i], again[i], strict=True):
            assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("workers", "more"),
    [
        (0, {}),
        (2, {"prefetch_factor": 1}),
        (3, {"prefetch_factor": 4, "persistent_workers": True}),
        (1, {"multiprocessing_context": "spawn"}),
    ],
)
def test_workers_and_prefetch_are_invisible(workers, more):
    """`torch.utils.data.DataLoader` over any numbers of samples, in their order."""
    from torch.utils.data import DataLoader

    _, rows, _ = make_rows(num_rows=60)
    numbers = range(20, 60)
    loader = DataLoader(rows, batch_size=4, sampler=numbers, num_workers=workers, **more)
    found = [batch.input_ids for batch in loader]
    assert [len(batch) for batch in found] == [4] * 10
    for at, i in enumerate(numbers):
        assert found[at // 4][at % 4].tolist() == rows[i].input_ids.tolist()


@given(st.integers(0, 99), st.sampled_from([1, 2, 3, 4, 6, 12]), st.integers(0, 4))
@settings(max_examples=30)
def test_ranks_together_read_what_one_would(seed, ranks, step):
    """Batch k is samples kG to (k + 1)G, whoever reads which of them."""
    order, _, _ = make_rows(num_rows=60, seed=seed)
    batch = 12
    whole = order.lookup(np.arange(step * batch, (step + 1) * batch))
    share = batch // ranks
    parts = [
        order.lookup(np.arange(step * batch + r * share, step * batch + (r + 1) * share))
        for r in range(ranks)
    ]
    for column, pieces in zip(whole, zip(*parts, strict=True), strict=True):
        assert column.tolist() == np.concatenate(pieces).tolist()
