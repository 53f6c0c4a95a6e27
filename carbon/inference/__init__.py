"""Scoring, variants and generation with a loaded model.

`engine` has `Carbon`, a loaded model and all it can do, which `loading` makes; every folder is one
thing of that:

- `reading`: runs the network in batches; passages; the distribution of the next 6-mer.
- `scoring`: likelihoods of sequences.
- `variants`, `scan`: a VCF's variants, and every SNV of a region: options, scores, files.
- `generation`: how 6-mers are drawn: rules, constraints, speculative drafts, gaps.
- `embeddings`: one vector a sequence.
- `background`: scores of random variants, for percentiles.
- `held_out`: measures on held-out records.

What can be chosen for them, a table each, is in `carbon.options`.
"""

from carbon.inference.engine import Carbon
from carbon.inference.generation import (
    Constraints,
    Draft,
    Filling,
    SamplingRule,
    Step,
)
from carbon.inference.loading import DTYPES, load
from carbon.inference.reading import (
    Branch,
    NextToken,
    Passage,
    Reader,
    all_kmers,
    branch_of,
    kmer_index,
    near_misses,
    stem_of,
)
from carbon.inference.scan import ScanChunk, ScanMethod, join_chunks
from carbon.inference.scoring import SequenceScore, base_log_likelihoods
from carbon.inference.variants import AlleleComparison, Method, VariantScore
from carbon.options import By, Combine, SamplingOptions, ScanOptions, Strands, VariantOptions

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
