"""A MinHash of a record's canonical 12-mers, in bands of two hashes."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from carbon.genome.kmers import canonical_kmers

UInt32s = NDArray[np.uint32]

SKETCH_K = 12
_NUM_PERM = 256
_HASHED_AT_ONCE = 256  # so that their hashes stay in the processor's cache
NUM_BANDS = 128  # of two hashes each


@cache
def _factors_and_addends() -> UInt32s:
    both: UInt32s = np.random.default_rng(1).integers(2**32, size=(2, _NUM_PERM), dtype=np.uint32)
    both[0] |= np.uint32(1)
    return both


def sketch_of(sequence: str) -> bytes:
    """Return the MinHash of a sequence's canonical 12-mers, 1,024 bytes."""
    kmers = canonical_kmers(sequence, SKETCH_K)
    # Codes that differ in their last bits must not stay near one another.
    mixed = (kmers * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)).astype(np.uint32)
    factors, addends = _factors_and_addends()
    smallest = np.full(_NUM_PERM, 2**32 - 1, dtype=np.uint32)
    room = np.empty((min(len(mixed), _HASHED_AT_ONCE), _NUM_PERM), dtype=np.uint32)
    for at in range(0, len(mixed), _HASHED_AT_ONCE):
        some = mixed[at : at + _HASHED_AT_ONCE, None]
        hashes = np.multiply(some, factors, out=room[: len(some)])
        hashes += addends
        np.minimum(smallest, np.minimum.reduce(hashes), out=smallest)
    return smallest.astype("<u4").tobytes()
