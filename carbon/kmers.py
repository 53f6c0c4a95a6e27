"""K-mers of either strand as numbers: what tells equal and nearly equal sequences."""

import numpy as np
from numpy.typing import NDArray

from carbon.tokenizer import BASES

UInt64s = NDArray[np.uint64]

NO_BASE = 4
_DIGIT = np.full(256, NO_BASE, dtype=np.uint8)
for _i, _base in enumerate(BASES):
    _DIGIT[[ord(_base), ord(_base.lower())]] = _i


def digits_of(letters: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the digit of each letter, in either case, as the tokenizer has it; 4 for no base."""
    return _DIGIT[letters]


def canonical_kmers(sequence: str, k: int) -> UInt64s:
    """Return the k-mers of a sequence, each as the smaller of its two strands' codes.

    K-mers with anything but ACGT inside are left out; k is at most 31.
    """
    letters = np.frombuffer(sequence.encode("ascii", errors="replace"), dtype=np.uint8)
    digits = digits_of(letters)
    count = len(digits) - k + 1
    if count < 1:
        return np.zeros(0, dtype=np.uint64)
    forward = np.zeros(count, dtype=np.uint64)
    reverse = np.zeros(count, dtype=np.uint64)
    for i in range(k):
        digit = (digits[i : i + count] & 3).astype(np.uint64)
        forward = forward << np.uint64(2) | digit
        reverse |= (digit ^ np.uint64(1)) << np.uint64(2 * i)
    unknown = np.concatenate([[0], np.cumsum(digits == NO_BASE)])
    whole = unknown[k:] == unknown[:-k]
    smaller: UInt64s = np.minimum(forward, reverse)[whole]
    return smaller
