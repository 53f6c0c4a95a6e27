"""What a corpus is on disk, and the order in which a run reads it."""

from carbon.corpus.order import SHARE_UNITS, Blend, Sample, SampleOrder, SpanRows, Stream, permuted
from carbon.corpus.packing import Packing, open_packing, pack
from carbon.corpus.rows import (
    PackedSource,
    Piece,
    Reading,
    Row,
    TokenRows,
    open_packed,
    ordered_rows,
)
from carbon.corpus.schema import (
    BOTH_STRANDS,
    SCHEMA,
    Split,
    read_manifest,
    read_source,
    reads_both_strands,
    source_files,
)
from carbon.corpus.store import Store, open_store

__all__ = [
    "BOTH_STRANDS",
    "SCHEMA",
    "SHARE_UNITS",
    "Blend",
    "PackedSource",
    "Packing",
    "Piece",
    "Reading",
    "Row",
    "Sample",
    "SampleOrder",
    "SpanRows",
    "Split",
    "Store",
    "Stream",
    "TokenRows",
    "open_packed",
    "open_packing",
    "open_store",
    "ordered_rows",
    "pack",
    "permuted",
    "read_manifest",
    "read_source",
    "reads_both_strands",
    "source_files",
]
