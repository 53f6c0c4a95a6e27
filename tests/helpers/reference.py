"""Slow and obvious forms of what the library does fast."""

import itertools
import math

KMERS = ["".join(bases) for bases in itertools.product("ATCG", repeat=6)]
INDEX = {kmer: i for i, kmer in enumerate(KMERS)}


def softmax(z: list[float]) -> list[float]:
    top = max(z)
    weights = [math.exp(x - top) for x in z]
    total = sum(weights)
    return [w / total for w in weights]


def marginal(p: list[float], place: int, base: str) -> float:
    return sum(q for kmer, q in zip(KMERS, p, strict=True) if kmer[place] == base)


def mass(p: list[float], pattern: str) -> float:
    """Sum over the 6-mers that agree with a pattern such as `AC?T??`."""
    return sum(
        q
        for kmer, q in zip(KMERS, p, strict=True)
        if all(want in ("?", have) for want, have in zip(pattern, kmer, strict=True))
    )


def chunks(sequence: str) -> list[str]:
    return [sequence[i : i + 6] for i in range(0, len(sequence), 6)]
