"""Slow and obvious forms of what the library does fast."""

import itertools
import math

from carbon.genome import Interval, Reference, Variant, reverse_complement

KMERS = ["".join(bases) for bases in itertools.product("ATCG", repeat=6)]
INDEX = {kmer: i for i, kmer in enumerate(KMERS)}


def softmax(z: list[float]) -> list[float]:
    top = max(z)
    weights = [math.exp(x - top) for x in z]
    total = sum(weights)
    return [w / total for w in weights]


def marginal(p: list[float], place: int, base: str) -> float:
    return sum(q for kmer, q in zip(KMERS, p, strict=True) if kmer[place] == base)


def mass(p: list[float], pattern: str) -> float:
    """Sum over the 6-mers that agree with a pattern such as `AC?T??`."""
    return sum(
        q
        for kmer, q in zip(KMERS, p, strict=True)
        if all(want in ("?", have) for want, have in zip(pattern, kmer, strict=True))
    )


def chunks(sequence: str) -> list[str]:
    return [sequence[i : i + 6] for i in range(0, len(sequence), 6)]


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
