"""Counts of words of DNA, and the Markov models with counts plus one of the held-out report."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

MAX_ORDER = 6
_BLOCK_BP = 1_000_000
_CODE = np.full(256, 4, dtype=np.int64)
for _code, _base in enumerate("ACGT"):
    _CODE[ord(_base)] = _CODE[ord(_base.lower())] = _code


def base_codes(sequence: str) -> NDArray[np.int64]:
    """Return A=0 C=1 G=2 T=3, and 4 for anything else."""
    return _CODE[np.frombuffer(sequence.encode("latin-1", errors="replace"), dtype=np.uint8)]


class Markov:
    """The distribution of a base given the `order` bases before it, from counts plus one.

    Attributes:
        order: k.
        log_probability: (4 ** k, 4) natural logarithms; contexts are base-4 numbers, oldest first.
    """

    def __init__(self, order: int, sequences: Iterable[str]) -> None:
        """Count all known (k + 1)-mers of the training sequences."""
        self.order = order
        table = count_words(sequences, order + 1).reshape(-1, 4) + 1.0
        self.log_probability = np.log(table / table.sum(axis=1, keepdims=True))

    def log_likelihoods(self, sequence: str) -> NDArray[np.float64]:
        """Return log p of every base (length of the sequence); NaN where the context is unknown."""
        result = np.full(len(sequence), np.nan)
        words, known = words_of(base_codes(sequence), self.order + 1)
        result[self.order :][known] = self.log_probability.reshape(-1)[words[known]]
        return result

    def continuation(self, prompt: str, length_bp: int) -> str:
        """Append the most likely base, again and again; an unknown one in the prompt is an A."""
        codes = list(base_codes(prompt[len(prompt) - self.order :]) % 4) if self.order else []
        text = ""
        for _ in range(length_bp):
            context = 0
            for code in codes:
                context = 4 * context + int(code)
            best = int(self.log_probability[context].argmax())
            text += "ACGT"[best]
            codes = [*codes, best][1:] if self.order else []
        return text


def count_words(sequences: Iterable[str], length: int) -> NDArray[np.uint32]:
    """Count every known word of `length` bases: (4 ** length,), words as base-4 numbers.

    Four bytes a word: 268 MB for words of 13 bases, which a Markov model of order 12 is made of.
    """
    counts = np.zeros(4**length, dtype=np.uint32)
    for sequence in sequences:
        codes = base_codes(sequence)
        for start in range(0, len(codes), _BLOCK_BP):
            # Blocks overlap, so that no word is lost between them.
            words, known = words_of(codes[start : start + _BLOCK_BP + length - 1], length)
            found, times = np.unique(words[known], return_counts=True)
            counts[found] += times.astype(np.uint32)
    return counts


def words_of(codes: NDArray[np.int64], length: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return every word of `length` bases as a base-4 number, and whether all of it is known."""
    num_words = max(len(codes) - length + 1, 0)
    words = np.zeros(num_words, dtype=np.int64)
    known = np.ones(num_words, dtype=bool)
    for place in range(length):
        part = codes[place : place + num_words]
        words = 4 * words + part % 4
        known &= part < 4
    return words, known
