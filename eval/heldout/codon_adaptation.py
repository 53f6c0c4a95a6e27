"""Does a model find genes likelier whose codons are those of highly expressed genes?"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carbon.errors import GenomeError, UserError
from carbon.genome import GENETIC_CODE
from carbon.genome.alphabet import adaptation_index, adaptation_weights, gc_share
from carbon.inference import Model
from carbon.metrics import rank_correlation
from carbon.progress import track
from carbon.uncertainty import bootstrap
from eval.contract import Estimate
from eval.heldout.genes import CodingGene, HeldOutGenes
from eval.tasks.common.codons import read_codon_usage

Floats = NDArray[np.float64]

_LEAST_GENES = 4
_ABSENT = 0.5  # what a codon counts that the reference genes never use (Bulmer 1988)


def codon_adaptation(
    model: Model, genes: Sequence[CodingGene], usage: Mapping[str, float]
) -> dict[str, Any]:
    """Correlate nats per base of each CDS with its codon adaptation index, over genes.

    Args:
        model: reads every CDS by itself, along its strand.
        genes: what is measured.
        usage: codon to frequency among the reference genes.

    Returns:
        Spearman's correlation; those with GC content and of GC with the index; and the partial
        one, of ranks with those of GC taken out. Negative means that fine-tuned genes are likelier.

    Raises:
        GenomeError: there are fewer than four genes.
    """
    if len(genes) < _LEAST_GENES:
        raise GenomeError(
            f"{len(genes)} coding genes in the held-out regions: a correlation needs {_LEAST_GENES}"
        )
    weights = adaptation_weights(usage)
    scores = track(model.score(gene.cds for gene in genes), "codon adaptation", len(genes))
    nats = np.array([score.nats_per_base for score in scores])
    index = np.array([adaptation_index(gene.cds, weights) for gene in genes])
    gc = np.array([gc_share(gene.cds) for gene in genes])
    return {
        **_spearman(nats, index)._asdict(),
        "with_gc": _spearman(nats, gc)._asdict(),
        "gc_with_index": _spearman(gc, index)._asdict(),
        "without_gc": _partial(nats, index, gc)._asdict(),
        "nats_per_base": float(nats.mean()),
        "index": float(index.mean()),
    }


def usage_of(genes: Iterable[CodingGene]) -> dict[str, float]:
    """Count the codons of reference genes; one that none of them has counts a half."""
    counts = Counter(gene.cds[at : at + 3] for gene in genes for at in range(0, len(gene.cds), 3))
    return {codon: float(counts[codon] or _ABSENT) for codon in GENETIC_CODE}


def reference_usage(
    table: Path | None, pattern: str | None, genes: HeldOutGenes
) -> dict[str, float]:
    """Return codon usage of a table, or of the genes outside the held-out regions with such names.

    Raises:
        UserError: the table is none, the pattern is none, or no gene has such a name.
    """
    if table is not None:
        return read_codon_usage(table)
    try:
        named = re.compile(pattern or "")
    except re.error as error:
        raise UserError(
            f"--finetuned-genes {pattern}: is no regular expression ({error})"
        ) from None
    chosen = [gene for gene in genes.coding_outside() if named.match(gene.name)]
    if not chosen:
        raise UserError(
            f"--finetuned-genes {pattern}: no coding gene outside of the held-out regions has a "
            "name that begins so"
        )
    return usage_of(chosen)


def _spearman(one: Floats, other: Floats) -> Estimate:
    return bootstrap(lambda w: rank_correlation(one, other, w), len(one))


def _partial(one: Floats, other: Floats, taken_out: Floats) -> Estimate:
    """Return the correlation of two that a third, which both follow, does not explain."""

    def of(weights: Floats) -> float:
        both = rank_correlation(one, other, weights)
        first = rank_correlation(one, taken_out, weights)
        second = rank_correlation(other, taken_out, weights)
        rest = (1 - first**2) * (1 - second**2)
        return float((both - first * second) / np.sqrt(rest)) if rest > 0 else float("nan")

    return bootstrap(of, len(one))
