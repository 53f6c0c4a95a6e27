"""The share of held-out sequence that also occurs in the training records."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.genome.kmers import UInt64s, canonical_kmers

OVERLAP_K = 31


class Overlap(NamedTuple):
    """The 31-mers of a record.

    Attributes:
        kmers: number, without 31-mers with an unknown base; repeats count each time.
        shared_kmers: number that also occurs in training records, on either strand.
    """

    kmers: int
    shared_kmers: int


def overlaps_with_train(train: Iterable[str], test: Sequence[str]) -> list[Overlap]:
    """Count the 31-mers of held-out records that occur in training records.

    Args:
        train: all sequences that the model may have been trained on.
        test: held-out records.
    """
    kmers = [canonical_kmers(record, OVERLAP_K) for record in test]
    known, numbers = np.unique(
        np.concatenate([np.zeros(0, dtype=np.uint64), *kmers]), return_inverse=True
    )
    owners = np.repeat(np.arange(len(test)), [len(each) for each in kmers])
    shared = _occurring(known, train)[numbers] if len(known) else np.zeros(0, dtype=np.bool_)
    of_record = np.bincount(owners[shared], minlength=len(test)).tolist()
    return [Overlap(len(each), count) for each, count in zip(kmers, of_record, strict=True)]


def _occurring(known: UInt64s, sequences: Iterable[str]) -> NDArray[np.bool_]:
    """Return which of the sorted k-mers occur in any sequence."""
    found = np.zeros(len(known), dtype=np.bool_)
    for sequence in sequences:
        kmers = canonical_kmers(sequence, OVERLAP_K)
        places = np.minimum(np.searchsorted(known, kmers), len(known) - 1)
        found[places[known[places] == kmers]] = True
    return found


def overlap_clause(num_shared: int, num_kmers: int) -> str:
    """Return the overlap as a clause about the measured sequence."""
    if not num_kmers:
        return f"no {OVERLAP_K}-mer was looked up in the training records"
    if not num_shared:
        return f"none of its {num_kmers:,} {OVERLAP_K}-mers occurs in the training records"
    share = num_shared / num_kmers
    shown = f"{share:.1%}" if share >= 0.001 else "less than 0.1%"
    return (
        f"{shown} of its {OVERLAP_K}-mers also occur in the training records "
        f"({num_shared:,} of {num_kmers:,})"
    )
