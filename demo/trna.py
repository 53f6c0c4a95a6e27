"""The base pairs of a tRNA gene, and whether a dependency map shows them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carbon.genome import Gene, Reference
from carbon.genome.genes import spliced

Pair = tuple[int, int]

_LEAST_PAIRS = 11  # of 12; a gene with fewer has an intron, or another shape
_PAIRED = {"AT", "TA", "CG", "GC", "GT", "TG"}


def stem_pairs(reference: Reference, gene: Gene) -> list[Pair]:
    """Return the paired positions of a tRNA gene's acceptor and T stems; empty for other genes.

    In the standard numbering they are 1:72 to 7:66 and 49:65 to 53:61. They are counted from the
    ends of the gene, whose last base has the number 73.
    """
    span = gene.interval
    if gene.biotype != "tRNA":
        return []
    bases = spliced(reference, span.contig, [(span.start, span.end)], gene.strand).upper()
    last = len(bases) - 1
    pairs = [(n, last - 1 - n) for n in range(7)] + [
        (last - 24 + n, last - 8 - n) for n in range(5)
    ]
    if sum(bases[one] + bases[other] in _PAIRED for one, other in pairs) < _LEAST_PAIRS:
        return []
    if gene.strand == "+":
        return [(span.start + one, span.start + other) for one, other in pairs]
    return [(span.end - 1 - other, span.end - 1 - one) for one, other in pairs]


def mean_rank(cells: NDArray[Any], pairs: Sequence[Pair]) -> float:
    """Return the mean share of other pairs of bases, as far apart, with a smaller dependency.

    Args:
        cells: (bases, bases), symmetric.
        pairs: indices of bases that pair.
    """
    ranks = []
    for one, other in pairs:
        along = np.diagonal(cells, other - one)
        ranks.append(float((np.delete(along, one) < along[one]).mean()))
    return float(np.mean(ranks))
