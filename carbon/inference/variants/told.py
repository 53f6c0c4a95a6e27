"""A variant's score, its parts and its effects, ready for JSON."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carbon.genome import Reference, Variant, snv_effect
from carbon.genome.normalize import normalize_variant
from carbon.genome.opened import Genome
from carbon.inference.variants.scores import STRAND_NAMES, AlleleComparison, VariantScore


def told_strands(strands: Mapping[str, AlleleComparison]) -> dict[str, Any]:
    """Return by strand what a delta is the sum of: alleles, bases behind, and the window's end."""
    return {
        STRAND_NAMES[strand]: {
            "delta": compared.delta,
            "allele_delta": compared.allele_delta,
            "downstream_deltas": compared.downstream_deltas.tolist(),
            "length_delta": compared.length_delta,
        }
        for strand, compared in strands.items()
    }


def told_numbers(values: NDArray[np.floating[Any]]) -> list[Any]:
    """Return nested lists; None for NaN."""
    found: NDArray[np.object_] = values.astype(object)
    found[np.isnan(values)] = None
    lists: list[Any] = found.tolist()
    return lists


def told_score(score: VariantScore, reference: Reference) -> dict[str, Any]:
    """Return a score for JSON, with the variant as it was given and as it was scored."""
    return {
        "variant": score.variant.to_text(),
        "scored_as": normalize_variant(reference, score.variant).to_text(),
        "delta": score.delta,
        "forward": score.forward,
        "reverse": score.reverse,
        "spread": score.spread,
        "unsure": score.unsure,
        "strand_left_out": score.strand_left_out,
        "reason": score.reason,
    }


def told_effects(genome: Genome, variant: Variant) -> list[dict[str, Any]]:
    """Return what an SNV does to the first transcript of each gene that it lies in."""
    found = []
    variant = normalize_variant(genome.reference, variant)
    for gene in genome.genes_in(variant.interval):
        for transcript in gene.transcripts[:1]:
            if effect := snv_effect(genome.reference, transcript, variant):
                found.append({"gene": gene.name, **effect._asdict()})
    return found
