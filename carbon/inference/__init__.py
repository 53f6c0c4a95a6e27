"""Score sequences and variants, embed sequences and generate DNA with a loaded model.

Modules, in reading order:

- `model`: `Model`, which `carbon.load` returns; its methods are the commands of inference.
- `runner`: `ModelRunner`, which runs the network in batches that fit into memory.
- `passages`: the rows of a batch: a shared prefix and its continuations.
- `score`, `embed`, `next_token`: sequences.
- `variants`, `scan`: the variants of a VCF, and every SNV of a region.
- `generate`: sampling, constraints, speculative decoding, infilling.
- `held_out`: likelihood and sequence recovery on held-out records.
- `options`: the choices of these commands, one table each.

Names that need torch are imported on first use, so that the driver of worker processes runs without
torch.
"""

from typing import TYPE_CHECKING

from carbon.inference.generate.constraints import Constraints
from carbon.inference.options import (
    By,
    Combine,
    SamplingOptions,
    ScanOptions,
    Strands,
    VariantOptions,
)
from carbon.inference.passages import Continuation, Passage, continuation_of, prefix_of
from carbon.inference.scan import ScanChunk, ScanMethod, join_chunks
from carbon.inference.score import SequenceScore, base_log_likelihoods
from carbon.inference.variants import AlleleComparison, Method, VariantScore
from carbon.lazy import lazy_names

if TYPE_CHECKING:
    from carbon.inference.generate.generate import Step
    from carbon.inference.generate.infill import Filling
    from carbon.inference.generate.prompts import SamplingRule
    from carbon.inference.generate.speculative import Draft
    from carbon.inference.model import DTYPES, Model, load
    from carbon.inference.next_token import NextToken, all_kmers, kmer_index, near_misses
    from carbon.inference.runner import ModelRunner

__all__ = [
    "DTYPES",
    "AlleleComparison",
    "By",
    "Combine",
    "Constraints",
    "Continuation",
    "Draft",
    "Filling",
    "Method",
    "Model",
    "ModelRunner",
    "NextToken",
    "Passage",
    "SamplingOptions",
    "SamplingRule",
    "ScanChunk",
    "ScanMethod",
    "ScanOptions",
    "SequenceScore",
    "Step",
    "Strands",
    "VariantOptions",
    "VariantScore",
    "all_kmers",
    "base_log_likelihoods",
    "continuation_of",
    "join_chunks",
    "kmer_index",
    "load",
    "near_misses",
    "prefix_of",
]

__getattr__ = lazy_names(
    __name__,
    {
        "Model": "carbon.inference.model",
        "Step": "carbon.inference.generate.generate",
        "Filling": "carbon.inference.generate.infill",
        "SamplingRule": "carbon.inference.generate.prompts",
        "Draft": "carbon.inference.generate.speculative",
        "DTYPES": "carbon.inference.model",
        "load": "carbon.inference.model",
        "NextToken": "carbon.inference.next_token",
        "all_kmers": "carbon.inference.next_token",
        "kmer_index": "carbon.inference.next_token",
        "near_misses": "carbon.inference.next_token",
        "ModelRunner": "carbon.inference.runner",
    },
)
