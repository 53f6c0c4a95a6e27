"""The base pairs of a tRNA gene, and whether a dependency map shows them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carbon.genome import Gene, Interval, Reference
from carbon.genome.genes import spliced
from carbon.genome.genome import Genome
from demo.markup import paragraph

Pair = tuple[int, int]

_ACCEPTOR_BP = 7
_SEEN_RANK = 0.8  # of paired bases; 0.5 is chance, and at 1 they all stand out
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
    pairs = [(n, last - 1 - n) for n in range(_ACCEPTOR_BP)] + [
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


def pairs_in(genome: Genome, place: Interval) -> list[Pair]:
    """Return the base pairs of the first tRNA gene that lies in a region."""
    genes = (gene for gene in genome.genes_in(place) if gene.interval.start >= place.start)
    whole = (gene for gene in genes if gene.interval.end <= place.end)
    return next(filter(None, (stem_pairs(genome.reference, gene) for gene in whole)), [])


def about_pairs(place: Interval, cells: NDArray[Any], pairs: Sequence[Pair]) -> str:
    """Return sentences on whether the map shows the two stems, from the ranks of their pairs."""
    if not pairs:
        return ""
    indices = [(one - place.start, other - place.start) for one, other in pairs]
    stems = {"acceptor stem": indices[:_ACCEPTOR_BP], "T stem": indices[_ACCEPTOR_BP:]}
    ranks = {name: mean_rank(cells, stem) for name, stem in stems.items()}
    shares = " and ".join(f"{100 * rank:.0f} % ({name})" for name, rank in ranks.items())
    seen = " and the ".join(name for name, rank in ranks.items() if rank >= _SEEN_RANK)
    verdict = f"The map shows the {seen}." if seen else "This map shows neither stem."
    return paragraph(
        "Orange squares mark bases that pair in the folded tRNA. They depend on each other more "
        f"than {shares} of the other bases as far apart, where 50 % is chance. {verdict}"
    )
