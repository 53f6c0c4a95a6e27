"""Scoring, variants and generation with a loaded model."""

from carbon.inference.constraints import Constraints
from carbon.inference.engine import DTYPES, Carbon, load
from carbon.inference.generation import Step
from carbon.inference.infilling import Filling
from carbon.inference.reader import Branch, Passage, Reader, branch_of, stem_of
from carbon.inference.sampling import SamplingOptions, SamplingRule
from carbon.inference.scan import Combine, ScanChunk, ScanMethod, join_chunks
from carbon.inference.scoring import By, SequenceScore, Strands, base_log_likelihoods
from carbon.inference.speculative import Draft
from carbon.inference.variants import Method, VariantScore

__all__ = [
    "DTYPES",
    "Branch",
    "By",
    "Carbon",
    "Combine",
    "Constraints",
    "Draft",
    "Filling",
    "Method",
    "Passage",
    "Reader",
    "SamplingOptions",
    "SamplingRule",
    "ScanChunk",
    "ScanMethod",
    "SequenceScore",
    "Step",
    "Strands",
    "VariantScore",
    "base_log_likelihoods",
    "branch_of",
    "join_chunks",
    "load",
    "stem_of",
]
