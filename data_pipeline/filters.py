"""What a sequence is made of, and why a record of it is left out."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.kmers import NO_BASE, digits_of
from data_pipeline.limits import KeepConfig

_TRIMERS = 64
_IS_KNOWN = digits_of(np.arange(256, dtype=np.uint8)) < NO_BASE
_IS_LOWER = np.zeros(256, dtype=bool)
_IS_LOWER[ord("a") : ord("z") + 1] = True


class Composition(NamedTuple):
    """Of one sequence.

    Attributes:
        length_bp: all letters.
        num_known: letters that are one of ACGT, in either case.
        num_masked: lower-case letters: soft-masked repeats.
        complexity: entropy of its trimers over that of the most even ones there can be.
    """

    length_bp: int
    num_known: int
    num_masked: int
    complexity: float


def composition_of(sequence: str) -> Composition:
    """Count a sequence's letters and trimers."""
    letters = np.frombuffer(sequence.encode("ascii", errors="replace"), dtype=np.uint8)
    counts = np.bincount(letters, minlength=256)
    digits = digits_of(letters)
    num_known = int(counts[_IS_KNOWN].sum())
    num_masked = int(counts[_IS_LOWER].sum())
    return Composition(len(letters), num_known, num_masked, _complexity(digits))


def _complexity(digits: NDArray[np.uint8]) -> float:
    whole = digits < NO_BASE
    inside = whole[:-2] & whole[1:-1] & whole[2:]
    trimers = (digits[:-2] * np.uint8(16) + digits[1:-1] * np.uint8(4) + digits[2:])[inside]
    if len(trimers) < 2:
        return 0.0
    counts = np.bincount(trimers, minlength=_TRIMERS)
    p = counts[counts > 0] / len(trimers)
    return float(-(p * np.log2(p)).sum() / np.log2(min(len(trimers), _TRIMERS)))


def why_not(found: Composition, digest: int, keep: KeepConfig, *, joined: bool) -> str:
    """Return the reason to leave a record out, or an empty string.

    A soft-masked record is down-weighted by its own digest, so that a rerun decides as before;
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
    if digest / 2**64 >= chance:
        return "repeats_down_weighted"
    return ""
