"""Scoring, variants and generation with a loaded model."""

from carbon.inference.engine import DTYPES, Carbon, load
from carbon.inference.scoring import SequenceScore, base_log_likelihoods
from carbon.inference.variants import Strands, VariantScore, window_pair

__all__ = [
    "DTYPES",
    "Carbon",
    "SequenceScore",
    "Strands",
    "VariantScore",
    "base_log_likelihoods",
    "load",
    "window_pair",
]
