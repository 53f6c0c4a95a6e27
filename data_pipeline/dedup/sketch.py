"""A MinHash of a record's canonical 12-mers, in bands of two hashes."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from carbon.genome.kmers import canonical_kmers

UInt32s = NDArray[np.uint32]
Lengths = NDArray[np.int64]

SKETCH_K = 12
NUM_HASHES = 256
NUM_BANDS = 128
"""Bands of two hashes, as one 64-bit number each."""
SKETCH_BYTES = 4 * NUM_HASHES
EQUAL_HASHES = 16
"""Records with fewer equal hashes are not aligned: at 90 % identity 42 are expected."""
_HASHED_AT_ONCE = 256  # so that their hashes stay in the processor's cache


@cache
def _factors_and_addends() -> UInt32s:
    both: UInt32s = np.random.default_rng(1).integers(2**32, size=(2, NUM_HASHES), dtype=np.uint32)
    both[0] |= np.uint32(1)
    return both


def sketch_of(sequence: str) -> bytes:
    """Return the MinHash of a sequence's canonical 12-mers, SKETCH_BYTES."""
    kmers = canonical_kmers(sequence, SKETCH_K)
    # Codes that differ in their last bits must not stay near one another.
    mixed = (kmers * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)).astype(np.uint32)
    factors, addends = _factors_and_addends()
    smallest = np.full(NUM_HASHES, 2**32 - 1, dtype=np.uint32)
    room = np.empty((min(len(mixed), _HASHED_AT_ONCE), NUM_HASHES), dtype=np.uint32)
    for at in range(0, len(mixed), _HASHED_AT_ONCE):
        part = mixed[at : at + _HASHED_AT_ONCE, None]
        hashes = np.multiply(part, factors, out=room[: len(part)])
        hashes += addends
        np.minimum(smallest, np.minimum.reduce(hashes), out=smallest)
    return smallest.astype("<u4").tobytes()


def similar(one: UInt32s, other: UInt32s) -> NDArray[np.bool_]:
    """Return which sketches have EQUAL_HASHES in common; shapes broadcast to (n, 256) -> (n,)."""
    matches: NDArray[np.int64] = np.count_nonzero(one == other, axis=1)
    return matches >= EQUAL_HASHES


def most_edits(longer_bp: Lengths, identity: float) -> Lengths:
    """Return the most edits between near-duplicates, from the length of the longer one."""
    edits: Lengths = np.floor((1 - identity) * longer_bp + 1e-9).astype(np.int64)
    return edits
