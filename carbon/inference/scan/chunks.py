"""Scanned bases, and what follows from their log-probabilities."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.genome import Interval

Float32s = NDArray[np.float32]

SCANNED_BASES = "ACGT"


class ScanChunk(NamedTuple):
    """Scanned bases of a contig.

    Attributes:
        interval: where they lie.
        bases: the reference, upper-case.
        log_probabilities: (bases, 4) float32, in nats, of A, C, G and T on the forward strand.
        tokens_read: tokens that the network has read since the chunk before, `<dna>` and tags
            included.
    """

    interval: Interval
    bases: str
    log_probabilities: Float32s
    tokens_read: int

    @property
    def is_base(self) -> NDArray[np.bool_]:
        """Tell where the reference has that base: (bases, 4); nowhere in the row of an N."""
        letters = np.frombuffer(self.bases.encode("ascii"), dtype=np.uint8)
        found: NDArray[np.bool_] = letters[:, None] == np.frombuffer(b"ACGT", dtype=np.uint8)
        return found

    @property
    def log_p_ref(self) -> Float32s:
        """Log-probability of the reference base, (bases,); NaN where that is unknown."""
        chosen = np.where(self.is_base, self.log_probabilities, 0).sum(axis=1)
        return np.where(self.is_base.any(axis=1), chosen, np.float32(np.nan))

    @property
    def deltas(self) -> Float32s:
        """Log p(base) - log p(reference base): (bases, 4), 0 for the reference base, or NaN."""
        found: Float32s = self.log_probabilities - self.log_p_ref[:, None]
        return found

    @property
    def mean_delta(self) -> Float32s:
        """Mean of the three SNVs' deltas, (bases,); NaN where the reference is unknown."""
        found: Float32s = self.deltas.sum(axis=1) / np.float32(3)
        return found

    @property
    def worst_delta(self) -> Float32s:
        """Least of the three SNVs' deltas, (bases,); NaN where the reference is unknown."""
        found: Float32s = np.where(self.is_base, np.float32(np.inf), self.deltas).min(axis=1)
        return found

    @property
    def entropy_nats(self) -> Float32s:
        """Entropy of the four bases, (bases,): 0 where one is certain, 1.386 where none is."""
        found: Float32s = -(np.exp(self.log_probabilities) * self.log_probabilities).sum(axis=1)
        return found


def join_chunks(chunks: Iterable[ScanChunk]) -> ScanChunk:
    """Return consecutive chunks as one, for a region that memory holds.

    Raises:
        ValueError: there is no chunk.
    """
    given = list(chunks)
    if not given:
        raise ValueError("no chunk to join: was the interval empty?")
    first, last = given[0].interval, given[-1].interval
    return ScanChunk(
        Interval(first.contig, first.start, last.end),
        "".join(chunk.bases for chunk in given),
        np.concatenate([chunk.log_probabilities for chunk in given]),
        sum(chunk.tokens_read for chunk in given),
    )
