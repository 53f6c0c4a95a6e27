"""Scoring, variants and generation with a loaded model."""

from carbon.inference.constraints import Constraints
from carbon.inference.engine import DTYPES, Carbon, load
from carbon.inference.generation import Step
from carbon.inference.infilling import Filling
from carbon.inference.next_token import NextToken, all_kmers, kmer_index, near_misses
from carbon.inference.reader import Branch, Passage, Reader, branch_of, stem_of
from carbon.inference.sampling import SamplingOptions, SamplingRule
from carbon.inference.scan import Combine, ScanChunk, ScanMethod, join_chunks
from carbon.inference.scoring import By, SequenceScore, Strands, base_log_likelihoods
from carbon.inference.speculative import Draft
from carbon.inference.variants import AlleleComparison, Method, VariantScore

__all__ = [
    "DTYPES",
    "AlleleComparison",
    "Branch",
    "By",
    "Carbon",
    "Combine",
    "Constraints",
    "Draft",
    "Filling",
    "Method",
    "NextToken",
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
    "all_kmers",
    "base_log_likelihoods",
    "branch_of",
    "join_chunks",
    "kmer_index",
    "load",
    "near_misses",
    "stem_of",
]
