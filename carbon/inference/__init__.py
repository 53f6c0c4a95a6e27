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

What can be chosen for them, a table each, is in `carbon.options`. What computes with torch is
imported when its name is first used, so that the driver of worker processes does without torch.
"""

from typing import TYPE_CHECKING

from carbon.inference.generation.constraints import Constraints
from carbon.inference.generation.sampling import SamplingRule
from carbon.inference.reading.passages import Branch, Passage, branch_of, stem_of
from carbon.inference.scan import ScanChunk, ScanMethod, join_chunks
from carbon.inference.scoring import SequenceScore, base_log_likelihoods
from carbon.inference.variants import AlleleComparison, Method, VariantScore
from carbon.lazy import lazy_names
from carbon.options import By, Combine, SamplingOptions, ScanOptions, Strands, VariantOptions

if TYPE_CHECKING:
    from carbon.inference.engine import Carbon
    from carbon.inference.generation.drawing import Step
    from carbon.inference.generation.infilling import Filling
    from carbon.inference.generation.speculative import Draft
    from carbon.inference.loading import DTYPES, load
    from carbon.inference.reading.next_token import NextToken, all_kmers, kmer_index, near_misses
    from carbon.inference.reading.reader import Reader

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

__getattr__ = lazy_names(
    __name__,
    {
        "Carbon": "carbon.inference.engine",
        "Step": "carbon.inference.generation.drawing",
        "Filling": "carbon.inference.generation.infilling",
        "Draft": "carbon.inference.generation.speculative",
        "DTYPES": "carbon.inference.loading",
        "load": "carbon.inference.loading",
        "NextToken": "carbon.inference.reading.next_token",
        "all_kmers": "carbon.inference.reading.next_token",
        "kmer_index": "carbon.inference.reading.next_token",
        "near_misses": "carbon.inference.reading.next_token",
        "Reader": "carbon.inference.reading.reader",
    },
)
