"""Scoring, variants and generation with a loaded model."""

from carbon.inference.engine import DTYPES, Carbon, load
from carbon.inference.reader import Branch, Passage, Reader, branch_of, stem_of
from carbon.inference.scan import Combine, ScanChunk, ScanMethod, join_chunks
from carbon.inference.scoring import By, SequenceScore, Strands, base_log_likelihoods
from carbon.inference.variants import Method, VariantScore

__all__ = [
    "DTYPES",
    "Branch",
    "By",
    "Carbon",
    "Combine",
    "Method",
    "Passage",
    "Reader",
    "ScanChunk",
    "ScanMethod",
    "SequenceScore",
    "Strands",
    "VariantScore",
    "base_log_likelihoods",
    "branch_of",
    "join_chunks",
    "load",
    "stem_of",
]
