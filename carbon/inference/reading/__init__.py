"""Networks read in batches that fit into memory, and the distribution behind a context."""

from carbon.inference.reading.checks import (
    EVERY_FRAME,
    NotFinite,
    check_finite,
    check_layer,
    check_window,
    checked_frames,
)
from carbon.inference.reading.next_token import (
    NextToken,
    all_kmers,
    kmer_index,
    near_misses,
    next_token,
)
from carbon.inference.reading.passages import Branch, Passage, branch_of, stem_of
from carbon.inference.reading.reader import Measure, Reader

__all__ = [
    "EVERY_FRAME",
    "Branch",
    "Measure",
    "NextToken",
    "NotFinite",
    "Passage",
    "Reader",
    "all_kmers",
    "branch_of",
    "check_finite",
    "check_layer",
    "check_window",
    "checked_frames",
    "kmer_index",
    "near_misses",
    "next_token",
    "stem_of",
]
