"""Rows of training: what they hold of the records, base by base, whoever reads them."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from carbon.corpus import SpanRows, ordered_rows
from carbon.corpus import packing as packing_module
from carbon.genome import reverse_complement
from carbon.tokenizer import NATIVE, encode
from tests.helpers.corpus import make_rows, open_table, packing_of
from tests.helpers.files import random_bases


def test_rows_are_a_function_of_their_number_alone():
    _, forward, _ = make_rows()
    _, backward, _ = make_rows()
    expected = [forward[i] for i in range(60)]
    for i in reversed(range(60)):
        for a, b in zip(expected[i], backward[i], strict=True):
            assert np.array_equal(a, b)
    _, other, _ = make_rows(seed=1)
    assert any(not np.array_equal(expected[i].input_ids, other[i].input_ids) for i in range(5))


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
    ordering = seed, [SpanRows(2 * count, {"s": 1.0}, row_tokens)], {"s": source}
    rows, masked_rows = ordered_rows(*ordering), ordered_rows(*ordering, soft_masks=True)
    for i in range(2 * count):
        sample = rows.order[i]
        reading = rows.reading(sample)
        assert flip or not reading.reverse
        ids, targets, known, masked, positions = [], [], [], [], []
        for piece in range(*packing.row_start[sample.row : sample.row + 2]):
            bases, gene, species = records[packing.record[piece]]
            start = packing.start[piece] + reading.offset
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
            bits = [sum((c in "acgt") << j for j, c in enumerate(k)) for k in sixes(bases)]
            masked += [*([0] * (len(whole.ids) - len(bits)) + bits)[1:], 0]
            positions += range(len(whole.ids))
        found = rows[i]
        assert len(ids) <= row_tokens and found.input_ids[: len(ids)].tolist() == ids
        assert (found.input_ids[len(ids) :] == NATIVE.pad).all()
        assert found.targets.tolist() == targets + [0] * (row_tokens - len(ids))
        assert found.known.tolist() == known + [0] * (row_tokens - len(ids))
        assert found.position_ids[: len(ids)].tolist() == positions
        assert found.known.dtype == np.uint8
        with_masks = pickle.loads(pickle.dumps(masked_rows))[i]
        assert (with_masks.known & 63).tolist() == found.known.tolist()
        assert (with_masks.known >> 6).tolist() == masked + [0] * (row_tokens - len(ids))
        for a, b in zip(with_masks[:3], found[:3], strict=True):
            assert np.array_equal(a, b)


def sixes(bases):
    return [bases[at : at + 6] for at in range(0, len(bases), 6)]


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


def test_workers_and_prefetch_are_invisible():
    """`torch.utils.data.DataLoader` over any numbers of samples, in their order."""
    _, rows, _ = make_rows(num_rows=60)
    packed = pickle.dumps(rows)
    assert len(packed) < 20_000, "rows travel as folders"
    numbers = range(20, 60)
    loader = DataLoader(rows, batch_size=4, sampler=numbers, num_workers=2, prefetch_factor=1)
    found = [batch.input_ids for batch in loader]
    assert [len(batch) for batch in found] == [4] * 10
    for at, i in enumerate(numbers):
        assert found[at // 4][at % 4].tolist() == rows[i].input_ids.tolist()
