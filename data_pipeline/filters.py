"""Composition of a sequence, and reasons to leave a record out."""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.genome.kmers import NO_BASE, digits_of
from data_pipeline.limits import KeepConfig

_LETTERS_AT_ONCE = 1 << 16
_TRIMERS = 64
_NO_TRIMER = 64  # the digit of a letter other than a base: its trimers have numbers from 64
_DIGITS = digits_of(np.arange(256, dtype=np.uint8))
_DIGITS_OF_BYTES = np.where(_DIGITS < NO_BASE, _DIGITS, _NO_TRIMER).tobytes()
_LOWER_AS_ONE = bytes(ord("a") <= letter <= ord("z") for letter in range(256))


class Composition(NamedTuple):
    """Of one sequence.

    Attributes:
        length_bp: all letters.
        num_known: letters that are one of ACGT, in either case.
        num_masked: lower-case letters: soft-masked repeats.
        complexity: entropy of its trimers over the largest entropy of as many trimers.
    """

    length_bp: int
    num_known: int
    num_masked: int
    complexity: float


def compositions_of(sequences: Sequence[str]) -> list[Composition]:
    """Count the letters and trimers of sequences, in one pass over all their letters."""
    lengths_bp = [len(sequence) for sequence in sequences]
    counts = np.empty((len(lengths_bp), _TRIMERS), dtype=np.int64)
    num_known, num_masked = lengths_bp.copy(), [0] * len(lengths_bp)
    for first, last in _blocks(lengths_bp):
        text = "".join(sequences[first:last]).encode("ascii", errors="replace")
        digits = np.frombuffer(text.translate(_DIGITS_OF_BYTES), dtype=np.uint8)
        ends = list(accumulate(lengths_bp[first:last], initial=0))
        trimers = _trimers(digits)
        for row, (start, end) in zip(counts[first:last], pairwise(ends), strict=True):
            inside = trimers[start : max(start, end - 2)]
            row[:] = np.bincount(inside, minlength=_TRIMERS)[:_TRIMERS]
        if trimers.dtype != np.uint8:
            num_known[first:last] = _sums(digits < NO_BASE, ends)
        if not text.isupper():
            lower = np.frombuffer(text.translate(_LOWER_AS_ONE), dtype=np.bool_)
            num_masked[first:last] = _sums(lower, ends)
    columns = (lengths_bp, num_known, num_masked, _complexities(counts).tolist())
    return list(map(Composition._make, zip(*columns, strict=True)))


def _blocks(lengths_bp: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and past the last of as many sequences as fit the cache of a core."""
    first, size_bp = 0, 0
    for number, length_bp in enumerate(lengths_bp, start=1):
        size_bp += length_bp
        if size_bp >= _LETTERS_AT_ONCE or number == len(lengths_bp):
            yield first, number
            first, size_bp = number, 0


def _sums(are: NDArray[np.bool_], ends: list[int]) -> list[int]:
    return [int(np.count_nonzero(are[start:end])) for start, end in pairwise(ends)]


def _trimers(digits: NDArray[np.uint8]) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """Return the trimer that begins at each letter, 64 or more if a letter is not a base.

    The numbers are bytes if all letters are bases.
    """
    if digits.max(initial=0) >= NO_BASE:
        digits = digits.astype(np.uint16)
    first, second = digits[:-2] << 4, digits[1:-1] << 2
    return first + second + digits[2:]


def _complexities(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the entropy of each row of counts over its maximum, 0 of fewer than two: (n,)."""
    totals = counts.sum(axis=1)
    p = counts / np.maximum(totals, 1)[:, None]
    entropies = -(p * np.log2(np.where(p > 0, p, 1))).sum(axis=1)
    most = np.log2(np.clip(totals, 2, _TRIMERS))
    return np.where(totals < 2, 0.0, entropies / most)


def why_not(found: Composition, digest: int, keep: KeepConfig, *, joined: bool) -> str:
    """Return the reason to leave a record out, or an empty string.

    A soft-masked record is down-weighted by its own bases, so that a rerun decides as before;
    `joined` records may be longer than the others.
    """
    if found.length_bp < keep.min_record_bp:
        return "shorter_than_min_record_bp"
    if found.length_bp > keep.max_record_bp and not joined:
        return "longer_than_max_record_bp"
    if found.num_known == 0:
        return "no_known_base"
    if found.length_bp - found.num_known > keep.max_n_fraction * found.length_bp:
        return "too_many_n"
    if found.complexity < keep.min_complexity:
        return "low_complexity"
    chance = 1 - (1 - keep.repeat_weight) * found.num_masked / found.length_bp
    if chance < 1 and _draw_of_repeat(digest) >= chance:
        return "repeats_down_weighted"
    return ""


def _draw_of_repeat(digest: int) -> float:
    """Return a number in [0, 1) that depends on the digest alone, and not on the split.

    The split compares the digest itself with `test_share`. Without the salt every test record
    would have a low draw here, and none of them would be down-weighted.
    """
    salted = hashlib.blake2b(digest.to_bytes(8, "little"), digest_size=8, salt=b"repeats")
    return int.from_bytes(salted.digest(), "little") / 2**64
