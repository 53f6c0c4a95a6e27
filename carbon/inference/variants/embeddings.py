"""Embed variants: the vectors of a `centered` window with REF and with ALT.

The two windows of a strand are those that `centered` compares: they hold equally many bases from
the variant on, and the k-mers after an indel begin at the same reference bases with both alleles.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from carbon.batching import in_blocks
from carbon.genome import Reference, Variant
from carbon.genome.normalize import normalize_variant
from carbon.inference.checks import check_layer
from carbon.inference.embed import Float32s, check_pool, embed_sequences
from carbon.inference.options import (
    STRANDS_READ,
    WINDOW_PROTOCOLS,
    EmbedOptions,
    ProtocolName,
    VariantEmbedOptions,
    VariantOptions,
)
from carbon.inference.variants.windows import (
    Method,
    centered_pair,
    method_for,
    needed_bp,
    room_bp,
)
from carbon.tokenizer import KmerVocabulary

if TYPE_CHECKING:
    from carbon.inference.runner import ModelRunner

EMBEDDING_PROTOCOL: ProtocolName = "centered"
EMBEDDED_PER_BLOCK = 128
_ROW_GROUP = 1024  # alleles that are in memory until they are written


class AlleleVectors(NamedTuple):
    """The vectors of a variant.

    Attributes:
        variant: the variant as given.
        reason: why it has no window; None if it has one.
        ref: (width,) float32 with REF, the mean of the strands; None if there is a reason.
        alt: likewise with ALT.
        num_masked: strands on which both windows are the same tokens, because every k-mer in which
            the alleles differ has an unknown base; the two vectors of such a strand are equal.
    """

    variant: Variant
    reason: str | None
    ref: Float32s | None = None
    alt: Float32s | None = None
    num_masked: int = 0


class _Windows(NamedTuple):
    """The bases with REF and with ALT on each strand, or the reason why there are none."""

    reason: str | None
    alleles: tuple[tuple[str, str], ...] = ()


def embed_variants(
    runner: "ModelRunner",
    reference: Reference,
    variants: Iterable[Variant],
    options: VariantEmbedOptions,
) -> Iterator[AlleleVectors]:
    """Return an iterator over the vectors of each variant, in order.

    Raises:
        UserError: a choice, the window, the layer or a tag is invalid.
        GenomeError: a REF differs from the reference.
    """
    method = embedding_method(runner, options)
    pooled = EmbedOptions(pool=options.pool, layer=options.layer, tags=options.tags)
    check_pool(runner.vocabulary, options.pool)
    if options.layer is not None:
        check_layer(runner.network, options.layer)
    return (
        vectors
        for block in in_blocks(variants, EMBEDDED_PER_BLOCK)
        for vectors in _embedded(runner, reference, block, method, pooled)
    )


def embedding_method(runner: "ModelRunner", options: VariantEmbedOptions) -> Method:
    """Return the method of `carbon variants` that reads the same windows."""
    return method_for(
        runner,
        VariantOptions(
            protocol=EMBEDDING_PROTOCOL,
            window_bp=options.window_bp,
            strands=options.strands,
            tags=options.tags,
        ),
    )


def _embedded(
    runner: "ModelRunner",
    reference: Reference,
    block: Sequence[Variant],
    method: Method,
    pooled: EmbedOptions,
) -> Iterator[AlleleVectors]:
    readable_bp = room_bp(runner, method.tags)
    windows = [_windows(reference, variant, method, readable_bp) for variant in block]
    sequences = (bases for each in windows for pair in each.alleles for bases in pair)
    vectors = embed_sequences(runner, sequences, pooled)
    for variant, (reason, alleles) in zip(block, windows, strict=True):
        if reason:
            yield AlleleVectors(variant, reason)
            continue
        of_strands = np.stack(list(islice(vectors, 2 * len(alleles))))
        ref, alt = of_strands[0::2].mean(axis=0), of_strands[1::2].mean(axis=0)
        num_masked = sum(_are_same_tokens(runner.vocabulary, pair) for pair in alleles)
        yield AlleleVectors(variant, None, ref, alt, num_masked)


def _are_same_tokens(vocabulary: KmerVocabulary, pair: tuple[str, str]) -> bool:
    ref, alt = (vocabulary.tokens(bases).ids for bases in pair)
    return np.array_equal(ref, alt)


def _windows(reference: Reference, variant: Variant, method: Method, readable_bp: int) -> _Windows:
    """Return the windows of a variant on the strands that distinguish its alleles."""
    if reason := _why_no_window(reference, variant):
        return _Windows(reason)
    plain = normalize_variant(reference, variant)
    protocol = WINDOW_PROTOCOLS[EMBEDDING_PROTOCOL]
    most_bp = protocol.most_needed_bp(method.window_bp, readable_bp)
    needed = {s: needed_bp(reference, plain, s, most_bp) for s in STRANDS_READ[method.strands]}
    if any(bp is not None and bp > most_bp for bp in needed.values()):
        return _Windows(protocol.too_long)
    alleles = tuple(
        centered_pair(reference, plain, strand, method.window_bp, method.k)
        for strand, bp in needed.items()
        if bp is not None
    )
    return _Windows(None if alleles else "contig_edge", alleles)


def _why_no_window(reference: Reference, variant: Variant) -> str | None:
    """Return why a variant has no bases to read, or None.

    Raises:
        GenomeError: REF differs from the reference.
    """
    contig, position = variant.contig, variant.position
    where = f"variant {variant.to_text()}"
    if reason := reference.check_ref(contig, position, variant.ref, where):
        return reason
    if reason := variant.why_unscorable():
        return reason
    is_inside = 0 <= position < reference.contig_lengths_bp[contig]
    return None if is_inside else "telomere"
