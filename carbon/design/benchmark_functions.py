"""Scoring functions whose maximum is known to be 1, to benchmark a search.

Each takes sequences and returns a number for each. On a command line, name one as
`python:carbon.design.benchmark_functions:gc_window`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from carbon.genome.alphabet import GENETIC_CODE, adaptation_index, adaptation_weights
from carbon.genome.codon_usage import codon_usage
from carbon.genome.genome import Genome
from carbon.pretrained import BUNDLED_MODELS

FIRST, SECOND, BETWEEN_BP = "TGACTCA", "CACGTG", 20  # the pair of motifs
CHANCE_NATS = math.log(4)  # per base, for random bases


def gc_window(sequences: Sequence[str]) -> list[float]:
    """Return the mean of two shares: G and C in the middle fifth, A and T in the rest.

    >>> gc_window(["AAAAGCAAAA", "GCGCGCGCGC"])
    [1.0, 0.5]
    """
    return [_gc_window(bases) for bases in sequences]


def motif_pair(sequences: Sequence[str]) -> list[float]:
    """Return the matching share of the letters of two motifs, 20 bases apart, at their best place.

    >>> motif_pair(["TGACTCA" + "C" * 20 + "CACGTG"])
    [1.0]
    """
    return [_motif_pair(bases) for bases in sequences]


def codon_adaptation(usage: Mapping[str, float]) -> Callable[[Sequence[str]], list[float]]:
    """Return a scoring function: codon adaptation index for a codon usage (Sharp and Li 1987).

    Args:
        usage: counts or relative frequencies of codons. A codon that never occurs has half the
            least value of the others, at most 0.5.

    Returns:
        A function that returns the index of each sequence; 0 if every amino acid of the sequence
        has only one codon.

    >>> codon_adaptation({"GCT": 8, "GCC": 2})(["GCTGCT", "GCCGCT", "ATGGCCGCT"])
    [1.0, 0.5, 0.5]
    """
    absent = min(0.5, min(filter(None, usage.values()), default=1) / 2)
    weights = adaptation_weights({codon: usage.get(codon) or absent for codon in GENETIC_CODE})

    def index(sequences: Sequence[str]) -> list[float]:
        values = [adaptation_index(bases[: len(bases) // 3 * 3], weights) for bases in sequences]
        return [0.0 if math.isnan(value) else value for value in values]

    return index


def yeast_codons(sequences: Sequence[str]) -> list[float]:
    """Return the codon adaptation index for the genes of the bundled yeast chromosome.

    Raises:
        ModelError: this installation lacks the bundled model.
    """
    return _yeast()(sequences)


@cache
def _yeast() -> Callable[[Sequence[str]], list[float]]:
    entry = BUNDLED_MODELS["yeast"].require()
    return codon_adaptation(codon_usage(Genome.open(entry.genome, entry.annotation)))


def _gc_window(bases: str) -> float:
    start, end = 2 * len(bases) // 5, 3 * len(bases) // 5
    inside, outside = bases[start:end], bases[:start] + bases[end:]
    gc = sum(map(inside.count, "GC")) / max(len(inside), 1)
    return (gc + sum(map(outside.count, "AT")) / max(len(outside), 1)) / 2


def _motif_pair(bases: str) -> float:
    second_at = len(FIRST) + BETWEEN_BP
    starts = range(max(len(bases) - second_at - len(SECOND), 0) + 1)
    return max(
        _matches(FIRST, bases[at:]) + _matches(SECOND, bases[at + second_at :]) for at in starts
    ) / len(FIRST + SECOND)


def _matches(motif: str, bases: str) -> int:
    return sum(a == b for a, b in zip(motif, bases, strict=False))
