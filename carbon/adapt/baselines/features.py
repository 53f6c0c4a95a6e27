"""What a baseline reads of sequences: composition, counts of k-mers, the bases around a base."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from carbon.adapt.examples import Examples
from carbon.kmers import NO_BASE, canonical_kmers, digits_of

Floats32 = NDArray[np.float32]

LARGEST_K = 6
_AROUND_BP = (25, 101)  # windows around a base whose composition is read
_FLANK_BP = 10  # on either side of a base


def digits(sequence: str) -> NDArray[np.uint8]:
    """Return the digit of each letter, `NO_BASE` of those that are none of ACGT."""
    return digits_of(np.frombuffer(sequence.encode("ascii"), dtype=np.uint8))


def one_hot(sequence: str) -> Floats32:
    """Return (bases, 4); zeros where a base is unknown."""
    return _ROWS[digits(sequence)]


_ROWS = np.vstack([np.eye(NO_BASE, dtype=np.float32), np.zeros((1, NO_BASE), dtype=np.float32)])


def composition(examples: Examples) -> Floats32:
    """Return length, and shares of G or C and of unknown bases, (rows, features).

    Of a base: place in the sequence, from 0 to 1, too, and the shares in windows around the base.
    """
    if not examples.per_base:
        return np.array([_composition(each) for each in examples.sequences], dtype=np.float32)
    return np.concatenate([_composition_around(each) for each in examples.sequences])


def _composition(sequence: str) -> tuple[float, float, float]:
    unknown = 1 - sum(map(sequence.count, "ACGT")) / len(sequence)
    return np.log(len(sequence)), _gc(sequence), unknown


def _gc(sequence: str) -> float:
    known = sum(map(sequence.count, "ACGT"))
    return (sequence.count("G") + sequence.count("C")) / known if known else 0.5


def _composition_around(sequence: str) -> Floats32:
    hot = one_hot(sequence)
    bases = np.array([base in "GC" for base in sequence], dtype=np.float64)
    columns = [
        np.full(len(hot), np.log(len(hot))),
        np.linspace(0, 1, len(hot)),
        *(_share_around(bases, width) for width in _AROUND_BP),
        1 - hot.sum(axis=1),
    ]
    return np.stack(columns, axis=1).astype(np.float32)


def _share_around(values: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Return the mean of a window around each value, cut at the ends."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    first, last = np.maximum(at - width // 2, 0), np.minimum(at + width // 2 + 1, len(values))
    shares: NDArray[np.float64] = (sums[last] - sums[first]) / (last - first)
    return shares


def kmers(examples: Examples) -> Floats32:
    """Return log1p of the counts of 1- to 6-mers, those of both strands as one, (rows, 2,772).

    Of a base: which bases are up to ten to its left and right, as zeros and ones.
    """
    if examples.per_base:
        return np.concatenate([_bases_around(each) for each in examples.sequences])
    tables = [_canonical_codes(k) for k in range(1, LARGEST_K + 1)]
    found = [_kmers_of(sequence, tables) for sequence in examples.sequences]
    return np.log1p(np.array(found, dtype=np.float32).reshape(len(found), -1))


def _canonical_codes(k: int) -> NDArray[np.uint64]:
    """Return the codes of the k-mers that are no larger than their reverse complements'."""
    codes = np.arange(4**k, dtype=np.uint64)
    reverse, left = np.zeros_like(codes), codes.copy()
    for _ in range(k):
        reverse = reverse << np.uint64(2) | (left & np.uint64(3)) ^ np.uint64(1)
        left >>= np.uint64(2)
    return codes[codes <= reverse]


def _kmers_of(sequence: str, tables: Sequence[NDArray[np.uint64]]) -> Floats32:
    counts = [
        np.bincount(canonical_kmers(sequence, k).astype(np.int64), minlength=4**k)[table]
        for k, table in enumerate(tables, start=1)
    ]
    return np.concatenate(counts).astype(np.float32)


def _bases_around(sequence: str) -> Floats32:
    padded = np.pad(one_hot(sequence), ((_FLANK_BP, _FLANK_BP), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * _FLANK_BP + 1, axis=0)
    return np.ascontiguousarray(windows).reshape(len(sequence), -1)
