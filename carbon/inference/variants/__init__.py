"""Score variants by the likelihoods of their alleles, singly or for a whole VCF."""

from carbon.inference.variants.score import (
    AlleleComparison,
    VariantScore,
    compare_block,
    score_variants,
)
from carbon.inference.variants.windows import (
    AlleleWindows,
    Method,
    allele_windows,
    method_for,
    needed_bp,
    site_of,
)

__all__ = [
    "AlleleComparison",
    "AlleleWindows",
    "Method",
    "VariantScore",
    "allele_windows",
    "compare_block",
    "method_for",
    "needed_bp",
    "score_variants",
    "site_of",
]
