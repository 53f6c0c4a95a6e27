"""Shares of 6-mers as the states of a model that has learned nothing."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carbon.tokenizer import NATIVE, K, encode
from eval.contract import Features, Model

_NO_LAYER = ""


class KmerShares(Model):
    """The shares of 6-mers in a sequence, as its only state."""

    context_bp = None

    def __init__(self, name: str, offsets: Sequence[int]) -> None:
        """Count 6-mers that start at some offsets.

        Args:
            name: of the baseline.
            offsets: bases before the first 6-mer; from each on, every sixth place counts. All six
                offsets give all 6-mers, the first alone gives the tokens that Carbon reads.
        """
        self.name, self._offsets = name, offsets

    def states(self, sequences: Sequence[str]) -> Mapping[str, Features]:
        """Return the share of each 6-mer that occurs: (sequences, 6-mers)."""
        counts = np.array([self._counts(s) for s in sequences], dtype=np.float32)
        shares = counts[:, counts.any(axis=0)] / counts.sum(axis=1, keepdims=True)
        return {self.name: {_NO_LAYER: shares}}

    def _counts(self, sequence: str) -> NDArray[Any]:
        rows = NATIVE.kmer_rows
        parts = []
        for offset in self._offsets:
            whole_bp = (len(sequence) - offset) // K * K
            ids = encode(sequence[offset : offset + whole_bp], NATIVE).ids
            parts.append(ids[(ids >= rows.start) & (ids < rows.stop)] - rows.start)
        return np.bincount(np.concatenate(parts), minlength=rows.stop - rows.start)


KMER_BASELINES = {
    name: partial(KmerShares, name, offsets)
    for name, offsets in (("6-mers", range(K)), ("tokens", (0,)))
}
"""By name functions that make a baseline: of all 6-mers, and of those that are Carbon's tokens."""
