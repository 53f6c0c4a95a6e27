"""How much of the held-out sequence also occurs in the training records."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carbon.genome.kmers import UInt64s, canonical_kmers

K = 31


def overlap_with_train(train: Iterable[str], test: Sequence[str]) -> dict[str, Any]:
    """Count the 31-mers of held-out records that occur in training records, on either strand.

    A 31-mer that occurs at two places of the held-out records counts twice; 31-mers with an unknown
    base are left out.

    Args:
        train: all sequences that the model may have been trained on.
        test: held-out records.

    Returns:
        `value`, the share, None if no record has a 31-mer; `num_shared` of `num_kmers`;
        `num_records_half_shared` of `num_samples`, the records of which at least half is shared;
        `k`.
    """
    kmers = [canonical_kmers(record, K) for record in test]
    known, numbers = np.unique(
        np.concatenate([np.zeros(0, dtype=np.uint64), *kmers]), return_inverse=True
    )
    owners = np.repeat(np.arange(len(test)), [len(each) for each in kmers])
    shared = _occurring(known, train)[numbers] if len(known) else np.zeros(0, dtype=np.bool_)
    sizes = np.bincount(owners, minlength=len(test))
    of_record = np.bincount(owners[shared], minlength=len(test))
    return {
        "value": float(shared.mean()) if len(shared) else None,
        "num_shared": int(shared.sum()),
        "num_kmers": len(shared),
        "num_records_half_shared": int(((sizes > 0) & (2 * of_record >= sizes)).sum()),
        "num_samples": len(test),
        "k": K,
    }


def _occurring(known: UInt64s, sequences: Iterable[str]) -> NDArray[np.bool_]:
    """Return which of the sorted k-mers occur in any sequence."""
    found = np.zeros(len(known), dtype=np.bool_)
    for sequence in sequences:
        kmers = canonical_kmers(sequence, K)
        places = np.minimum(np.searchsorted(known, kmers), len(known) - 1)
        found[places[known[places] == kmers]] = True
    return found


def overlap_clause(overlap: dict[str, Any] | None) -> str:
    """Return what is known of the overlap, as the end of a sentence about held-out sequence."""
    if overlap is None:
        return "how much of it also occurs in the training records was not measured"
    if overlap["value"] is None:
        return f"it is too short to look for {overlap['k']}-mers of it in the training records"
    if not overlap["num_shared"]:
        return (
            f"none of its {overlap['num_kmers']:,} {overlap['k']}-mers occurs in training records"
        )
    share = overlap["value"]
    shown = f"{share:.1%}" if share >= 0.001 else "less than 0.1%"
    return (
        f"{shown} of its {overlap['k']}-mers also occur in the training records "
        f"({overlap['num_shared']:,} of {overlap['num_kmers']:,})"
    )
