"""Scoring, variants and generation with a loaded model.

`engine` has `Model`, a loaded model and all it can do, which `loading` makes; every folder is one
thing of that:

- `reading`: runs the network in batches; passages; the distribution of the next 6-mer.
- `scoring`: likelihoods of sequences.
- `variants`, `scan`: a VCF's variants, and every SNV of a region: options, scores, files.
- `generation`: how 6-mers are drawn: rules, constraints, speculative drafts, gaps.
- `embeddings`: one vector a sequence.
- `background`: scores of random variants, for percentiles.
- `held_out`: measures on held-out records.

What can be chosen for them, a table each, is in `carbon.inference.options`. What computes with
torch is imported when its name is first used, so that the driver of worker processes does without
torch.
"""

from typing import TYPE_CHECKING

from carbon.inference.generate.constraints import Constraints
from carbon.inference.generate.sampling import SamplingRule
from carbon.inference.options import (
    By,
    Combine,
    SamplingOptions,
    ScanOptions,
    Strands,
    VariantOptions,
)
from carbon.inference.passages import Branch, Passage, branch_of, stem_of
from carbon.inference.scan import ScanChunk, ScanMethod, join_chunks
from carbon.inference.score import SequenceScore, base_log_likelihoods
from carbon.inference.variants import AlleleComparison, Method, VariantScore
from carbon.lazy import lazy_names

if TYPE_CHECKING:
    from carbon.inference.generate.generate import Step
    from carbon.inference.generate.infill import Filling
    from carbon.inference.generate.speculative import Draft
    from carbon.inference.model import DTYPES, Model, load
    from carbon.inference.next_token import NextToken, all_kmers, kmer_index, near_misses
    from carbon.inference.runner import ModelRunner

__all__ = [
    "DTYPES",
    "AlleleComparison",
    "Branch",
    "By",
    "Combine",
    "Constraints",
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
    "branch_of",
    "join_chunks",
    "kmer_index",
    "load",
    "near_misses",
    "stem_of",
]

__getattr__ = lazy_names(
    __name__,
    {
        "Model": "carbon.inference.model",
        "Step": "carbon.inference.generate.generate",
        "Filling": "carbon.inference.generate.infill",
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
