"""Likelihoods of alleles compared: a score a variant, a scored file a VCF."""

from carbon.inference.variants.files import VariantJob, VariantScorer, run_variant_job
from carbon.inference.variants.score import (
    AlleleComparison,
    VariantScore,
    compare_block,
    score_variants,
)
from carbon.inference.variants.windows import Fork, Method, fork_at, method_for, needed_bp, place_of

__all__ = [
    "AlleleComparison",
    "Fork",
    "Method",
    "VariantJob",
    "VariantScore",
    "VariantScorer",
    "compare_block",
    "fork_at",
    "method_for",
    "needed_bp",
    "place_of",
    "run_variant_job",
    "score_variants",
]
