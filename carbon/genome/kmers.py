"""Canonical k-mers as numbers, for sketches that detect equal and nearly equal sequences."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

UInt64s = NDArray[np.uint64]

BASES = "ATCG"
"""The base of each digit, in the order of `carbon.tokenizer.BASES`; it determines sketches."""
NO_BASE = 4
_DIGIT = np.full(256, NO_BASE, dtype=np.uint8)
for _i, _base in enumerate(BASES):
    _DIGIT[[ord(_base), ord(_base.lower())]] = _i


def digits_of(letters: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the tokenizer's digit of each letter, in either case; 4 for letters outside ACGT."""
    return _DIGIT[letters]


def canonical_kmers(sequence: str, k: int) -> UInt64s:
    """Return the k-mers of a sequence, each as the smaller code of its two strands.

    K-mers with other letters than ACGT are left out; k is at most 31.
    """
    letters = np.frombuffer(sequence.encode("ascii", errors="replace"), dtype=np.uint8)
    digits = digits_of(letters)
    count = len(digits) - k + 1
    if count < 1:
        return np.zeros(0, dtype=np.uint64)
    known = digits < NO_BASE
    forward, reverse = _codes(digits & np.uint8(3), k)
    smaller = np.minimum(forward, reverse)
    if not known.all():
        unknown = np.concatenate([[0], np.cumsum(~known)])
        smaller = smaller[unknown[k:] == unknown[:-k]]
    wide: UInt64s = smaller.astype(np.uint64)
    return wide


def _codes(digits: NDArray[np.uint8], k: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the codes of all k-mers and of their reverse complements, in the narrowest type.

    Codes are joined from the codes of both halves of a k-mer, to pass over the sequence less often.
    """
    if k == 1:
        return digits, digits ^ np.uint8(1)
    left, right = k // 2, k - k // 2
    forward, reverse = _codes(digits, right)
    if left == right:
        first_forward, first_reverse = forward, reverse
    else:
        first_forward, first_reverse = _codes(digits, left)
    count = len(digits) - k + 1
    wide = _width_of(k)
    both = first_forward[:count].astype(wide) << wide(2 * right) | forward[left : left + count]
    back = reverse[left : left + count].astype(wide) << wide(2 * left) | first_reverse[:count]
    return both, back


@cache
def _width_of(k: int) -> type[np.unsignedinteger[Any]]:
    """Return the narrowest type that holds two bits for each of k bases."""
    narrow = (np.uint8, np.uint16, np.uint32, np.uint64)
    return next(each for each in narrow if 2 * k <= np.dtype(each).itemsize * 8)
