"""Zero-shot variant scoring, protocol `centered`."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np

from carbon.genome import Interval, Reference, Variant, reverse_complement
from carbon.inference.scoring import base_log_likelihoods
from carbon.model import LoadedModel

Strands = Literal["forward", "reverse", "both"]
_STRANDS_READ = {"forward": ("+",), "reverse": ("-",), "both": ("+", "-")}
_VARIANTS_AT_ONCE = 128


class VariantScore(NamedTuple):
    """A variant's score.

    Attributes:
        variant: as it was given.
        delta: log-likelihood(ALT) - log-likelihood(REF) in nats; None where there is a reason.
        reason: why the variant has no score; None where it has one.
    """

    variant: Variant
    delta: float | None
    reason: str | None


def score_variants(
    model: LoadedModel,
    reference: Reference,
    variants: Iterable[Variant],
    window_bp: int,
    strands: Strands,
    tags: tuple[str, ...],
) -> Iterator[VariantScore]:
    """Yield scores in the order of the variants; a block of them is in memory at a time."""
    stream = iter(variants)
    while block := list(islice(stream, _VARIANTS_AT_ONCE)):
        yield from _score_block(model, reference, block, window_bp, strands, tags)


def _score_block(
    model: LoadedModel,
    reference: Reference,
    block: list[Variant],
    window_bp: int,
    strands: Strands,
    tags: tuple[str, ...],
) -> Iterator[VariantScore]:
    for variant in block:
        where = f"variant {variant.to_text()}"
        reference.check_ref(variant.contig, variant.position, variant.ref, where)
    reasons = [why_no_score(variant, window_bp) for variant in block]
    pairs = {
        (i, strand): window_pair(reference, variant, window_bp, strand)
        for i, (variant, reason) in enumerate(zip(block, reasons, strict=True))
        if reason is None
        for strand in _STRANDS_READ[strands]
    }
    # Alleles of one place share a reference window: every distinct window is read once.
    windows = list(dict.fromkeys(window for pair in pairs.values() for window in pair))
    steps = dict(zip(windows, base_log_likelihoods(model, windows, tags), strict=True))
    for i, (variant, reason) in enumerate(zip(block, reasons, strict=True)):
        if reason is not None:
            yield VariantScore(variant, None, reason)
            continue
        deltas = []
        for strand in _STRANDS_READ[strands]:
            ref, alt = pairs[i, strand]
            deltas.append(float((steps[alt].astype(np.float64) - steps[ref]).sum()))
        yield VariantScore(variant, sum(deltas) / len(deltas), None)


def why_no_score(variant: Variant, window_bp: int) -> str | None:
    """Say why a variant cannot be scored in windows of this size, or None."""
    longest = max(len(variant.ref), len(variant.alt))
    too_long = "allele_longer_than_half_window" if longest > window_bp // 2 else None
    return variant.why_unscorable() or too_long


def window_pair(
    reference: Reference, variant: Variant, window_bp: int, strand: str
) -> tuple[str, str]:
    """Return the REF and ALT windows along a strand, upper-case and of one length.

    Half a window is context before the variant; what follows fills the other half for the shorter
    allele, so an indel shifts what is at the far end and not the length. For an SNV the reverse
    windows are the reverse complements of the forward ones. Windows that reach past the edge of a
    contig are cut there.
    """
    ref, alt = variant.ref.upper(), variant.alt.upper()
    contig_bp = reference.contig_lengths_bp[variant.contig]
    first, last = variant.position, variant.interval.end
    forward = strand == "+"
    there_bp = (first, contig_bp - last) if forward else (contig_bp - last, first)
    wanted_bp = window_bp // 2 if forward else (window_bp - 1) // 2
    shorter = min(len(ref), len(alt))
    before_bp = min(wanted_bp, there_bp[0])
    after_bp = min(window_bp - wanted_bp - shorter, there_bp[1])
    length_bp = before_bp + shorter + after_bp
    left_bp, right_bp = (before_bp, after_bp) if forward else (after_bp, before_bp)
    left = reference.fetch(Interval(variant.contig, first - left_bp, first)).upper()
    right = reference.fetch(Interval(variant.contig, last, last + right_bp)).upper()
    whole = (left + ref + right, left + alt + right)
    if not forward:
        whole = (reverse_complement(whole[0]), reverse_complement(whole[1]))
    return whole[0][:length_bp], whole[1][:length_bp]
