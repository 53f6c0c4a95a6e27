"""Scoring, variants and generation with a loaded model."""

from carbon.inference.engine import DTYPES, Carbon, load
from carbon.inference.reader import Branch, Passage, Reader, branch_of, stem_of
from carbon.inference.scoring import By, SequenceScore, Strands, base_log_likelihoods
from carbon.inference.variants import Method, VariantScore

__all__ = [
    "DTYPES",
    "Branch",
    "By",
    "Carbon",
    "Method",
    "Passage",
    "Reader",
    "SequenceScore",
    "Strands",
    "VariantScore",
    "base_log_likelihoods",
    "branch_of",
    "load",
    "stem_of",
]
