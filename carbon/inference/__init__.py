"""Score sequences and variants, embed sequences and generate DNA with a loaded model.

- `model`: `load`, and `Model` with every inference command as a method.
- `runner`, `passages`: forward passes in batches that fit memory, with shared prefixes.
- `score`, `embed`, `next_token`: likelihoods, embeddings, the distribution of the next 6-mer.
- `variants`, `scan`: the variants of a VCF, and every SNV of a region; backgrounds for percentiles.
- `dependency`: how a substitution at one base of a region changes the odds of the others.
- `generate`: sampling, constraints, speculative decoding, infilling.
- `options`, `jobs`: options and jobs of the inference commands, without torch.
- `sequence_job`: sequences of a file by workers.
- `held_out`: measures on held-out records.

Names are loaded when first used: the driver of worker processes does not import torch, and a
recipe that names a choice imports no array library.
"""

from typing import TYPE_CHECKING

from carbon.lazy import lazy_names

if TYPE_CHECKING:
    from carbon.inference.dependency import DependencyMap
    from carbon.inference.generate.generate import Step
    from carbon.inference.generate.infill import Filling
    from carbon.inference.generate.speculative import Draft
    from carbon.inference.model import DTYPES, Model, load
    from carbon.inference.next_token import NextToken, all_kmers, kmer_index, near_misses
    from carbon.inference.options import (
        By,
        Combine,
        Constraints,
        DependencyOptions,
        EmbedOptions,
        SamplingKeywords,
        SamplingRule,
        ScanKeywords,
        ScanOptions,
        ScoreOptions,
        Strands,
        VariantKeywords,
        VariantOptions,
    )
    from carbon.inference.passages import Continuation, Passage, continuation_of, prefix_of
    from carbon.inference.runner import ModelRunner
    from carbon.inference.scan import ScanChunk, ScanMethod, join_chunks
    from carbon.inference.score import SequenceScore, base_log_likelihoods
    from carbon.inference.variants import AlleleComparison, Method, VariantScore

__all__ = [
    "DTYPES",
    "AlleleComparison",
    "By",
    "Combine",
    "Constraints",
    "Continuation",
    "DependencyMap",
    "DependencyOptions",
    "Draft",
    "EmbedOptions",
    "Filling",
    "Method",
    "Model",
    "ModelRunner",
    "NextToken",
    "Passage",
    "SamplingKeywords",
    "SamplingRule",
    "ScanChunk",
    "ScanKeywords",
    "ScanMethod",
    "ScanOptions",
    "ScoreOptions",
    "SequenceScore",
    "Step",
    "Strands",
    "VariantKeywords",
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
        "AlleleComparison": "carbon.inference.variants.score",
        "Continuation": "carbon.inference.passages",
        "By": "carbon.inference.options",
        "Combine": "carbon.inference.options",
        "Constraints": "carbon.inference.options",
        "DTYPES": "carbon.inference.model",
        "DependencyMap": "carbon.inference.dependency.maps",
        "DependencyOptions": "carbon.inference.options",
        "Draft": "carbon.inference.generate.speculative",
        "Filling": "carbon.inference.generate.infill",
        "Method": "carbon.inference.variants.windows",
        "Model": "carbon.inference.model",
        "ModelRunner": "carbon.inference.runner",
        "NextToken": "carbon.inference.next_token",
        "Passage": "carbon.inference.passages",
        "EmbedOptions": "carbon.inference.options",
        "SamplingKeywords": "carbon.inference.options",
        "ScanKeywords": "carbon.inference.options",
        "ScoreOptions": "carbon.inference.options",
        "VariantKeywords": "carbon.inference.options",
        "SamplingRule": "carbon.inference.options",
        "ScanChunk": "carbon.inference.scan.score",
        "ScanMethod": "carbon.inference.scan.method",
        "ScanOptions": "carbon.inference.options",
        "SequenceScore": "carbon.inference.score",
        "Step": "carbon.inference.generate.generate",
        "Strands": "carbon.inference.options",
        "VariantOptions": "carbon.inference.options",
        "VariantScore": "carbon.inference.variants.score",
        "all_kmers": "carbon.inference.next_token",
        "base_log_likelihoods": "carbon.inference.score",
        "continuation_of": "carbon.inference.passages",
        "join_chunks": "carbon.inference.scan.score",
        "kmer_index": "carbon.inference.next_token",
        "load": "carbon.inference.model",
        "near_misses": "carbon.inference.next_token",
        "prefix_of": "carbon.inference.passages",
    },
)
