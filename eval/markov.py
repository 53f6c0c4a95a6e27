"""Order-k Markov models of DNA: the baselines that stand beside every network."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

MAX_ORDER = 6
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
        counts = np.zeros(4 ** (order + 1), dtype=np.int64)
        for sequence in sequences:
            words, known = _words(base_codes(sequence), order + 1)
            counts += np.bincount(words[known], minlength=len(counts))
        table = counts.reshape(-1, 4) + 1.0
        self.log_probability = np.log(table / table.sum(axis=1, keepdims=True))

    def log_likelihoods(self, sequence: str) -> NDArray[np.float64]:
        """Return log p of every base (length of the sequence); NaN where the context is unknown."""
        result = np.full(len(sequence), np.nan)
        words, known = _words(base_codes(sequence), self.order + 1)
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


def _words(codes: NDArray[np.int64], length: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return every word of `length` bases as a base-4 number, and whether all of it is known."""
    num_words = max(len(codes) - length + 1, 0)
    words = np.zeros(num_words, dtype=np.int64)
    known = np.ones(num_words, dtype=bool)
    for place in range(length):
        part = codes[place : place + num_words]
        words = 4 * words + part % 4
        known &= part < 4
    return words, known
