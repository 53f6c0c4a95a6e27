"""What the tests of corpus share."""

import tempfile
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from carbon.corpus import (
    SpanRows,
    open_packed,
    open_store,
    ordered_rows,
)
from tests.helpers.files import random_bases

shares = st.lists(st.integers(1, 60), min_size=1, max_size=5).map(
    lambda parts: {
        f"s{i}": part / 10_000 for i, part in enumerate([*parts[:-1], 10_000 - sum(parts[:-1])])
    }
)


RECORDS = pa.table(
    {
        "sequence": [random_bases(n, n) for n in (700, 130, 55, 6, 300)],
        "gene_type": ["cds", "tRNA", "", None, "<cds>"],
        "species_type": ["fng"] * 5,
    }
)


def open_table(table, row_tokens, flip=False, folder=None):
    """Write a table as Parquet and open it as the source of a run."""
    folder = folder or Path(tempfile.mkdtemp())
    pq.write_table(table, folder / "train-0.parquet", row_group_size=3)
    store = open_store({str(folder / "train-0.parquet"): None}, folder / "cache", "source")
    return open_packed(store, [row_tokens], flip)


@cache
def source_of(name, row_tokens):
    return open_table(RECORDS, row_tokens, name == "dna")


def packing_of(source):
    (packing,) = source.packings.values()
    return packing


def make_rows(mixtures=({"dna": 0.75, "rna": 0.25},), num_rows=60, seed=0, row_tokens=40):
    records = RECORDS
    sources = {name: source_of(name, row_tokens) for name in ("dna", "rna")}
    rows = ordered_rows(seed, [SpanRows(num_rows, m, row_tokens) for m in mixtures], sources)
    return rows.order, rows, records
