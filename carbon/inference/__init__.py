"""Scoring, variants and generation with a loaded model."""

from carbon.inference.engine import DTYPES, Carbon, load
from carbon.inference.generation.constraints import Constraints
from carbon.inference.generation.drawing import Step
from carbon.inference.generation.infilling import Filling
from carbon.inference.generation.sampling import SamplingOptions, SamplingRule
from carbon.inference.generation.speculative import Draft
from carbon.inference.reading.next_token import NextToken, all_kmers, kmer_index, near_misses
from carbon.inference.reading.reader import Branch, Passage, Reader, branch_of, stem_of
from carbon.inference.scan.regions import Combine, ScanChunk, ScanMethod, join_chunks
from carbon.inference.scoring.sequences import By, SequenceScore, Strands, base_log_likelihoods
from carbon.inference.variants.scores import AlleleComparison, Method, VariantScore

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
