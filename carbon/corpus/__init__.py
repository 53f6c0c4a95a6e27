"""Training corpora: schema on disk, record stores, packed rows, and the order of samples."""

from carbon.corpus.order import SHARE_UNITS, Blend, Sample, SampleOrder, SpanRows, Stream, permuted
from carbon.corpus.packing import Packing, open_packing, pack
from carbon.corpus.rows import (
    PackedSegment,
    PackedSource,
    Reading,
    TokenRow,
    TokenRows,
    open_packed,
    ordered_rows,
)
from carbon.corpus.schema import (
    BOTH_STRANDS,
    HELD_OUT_NAMES,
    SCHEMA,
    Split,
    check_corpus,
    check_records,
    held_out_of,
    read_manifest,
    read_source,
    reads_both_strands,
    source_files,
)
from carbon.corpus.store import RecordStore, open_store

__all__ = [
    "BOTH_STRANDS",
    "HELD_OUT_NAMES",
    "SCHEMA",
    "SHARE_UNITS",
    "Blend",
    "PackedSegment",
    "PackedSource",
    "Packing",
    "Reading",
    "RecordStore",
    "Sample",
    "SampleOrder",
    "SpanRows",
    "Split",
    "Stream",
    "TokenRow",
    "TokenRows",
    "check_corpus",
    "check_records",
    "held_out_of",
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
