"""Slow and obvious forms of what the library does fast."""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

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


def centered_pair(
    reference: Reference, variant: Variant, window_bp: int, strand: str, offset: int = 0
) -> list[tuple[str, str]]:
    """Return for REF and for ALT what is read before the variant, and that with all behind it.

    ALT leaves out so many more bases at the window's start as it is longer, modulo six. Where there
    are fewer bases than that, N stands for those that the first 6-mer lacks.
    """
    contig_bp = reference.contig_lengths_bp[variant.contig]
    there_bp = variant.position if strand == "+" else contig_bp - variant.interval.end
    before_bp = min((window_bp if strand == "+" else window_bp - 1) // 2, there_bp)
    pairs = []
    windows = window_pair(reference, variant, window_bp, strand)
    for allele, window in zip((variant.ref, variant.alt), windows, strict=True):
        skipped_bp = (offset + len(allele) - len(variant.ref)) % 6
        missing_bp = max(skipped_bp - before_bp, 0)
        padding = "N" * (-missing_bp % 6)
        left = padding + window[skipped_bp - missing_bp : before_bp]
        pairs.append((left, left + window[before_bp:]))
    return pairs


def right_end_pair(
    bases: str, variant: Variant, window_bp: int, offset: int = 0
) -> list[tuple[str, str]] | None:
    """Return the left context, cut to whole 6-mers, and with it each allele that is compared.

    As many bases of each as the longer has, and the first at which the whole texts differ; None
    where the contig ends before. `variant` is trimmed and left-aligned.
    """
    left = bases[max(variant.position - window_bp, 0) : variant.position]
    left = left[len(left) % 6 :][offset:]
    rest = bases[variant.interval.end :]
    texts = [allele + rest for allele in (variant.ref, variant.alt)]
    differing = [n for n, (r, a) in enumerate(zip(*texts, strict=False)) if r != a]
    if not differing:
        return None
    counted = max(len(variant.ref), len(variant.alt), differing[0] + 1)
    counted = min(counted, *map(len, texts))
    return [(left, text[:counted]) for text in texts]


def tiled_pair(
    bases: str, variant: Variant, strand: str, offset: int, tiles: Mapping[str, int]
) -> tuple[list[str], list[str], int] | None:
    """Return, for REF and ALT, the tile before the compared bases, and the compared bases.

    Also the bases of each allele that come before the compared ones, because both share them. None
    if the strand does not tell the alleles apart. `variant` is trimmed and left-aligned, and N
    stands for bases that the first 6-mer of a tile lacks.
    """
    step_bp = (tiles["window_bp"] - tiles["least_context_bp"] - tiles["downstream_bp"]) // 6 * 6
    start, (ref, alt) = variant.position, variant.alleles
    if strand == "-":
        bases, start = reverse_complement(bases), len(bases) - variant.interval.end
        ref, alt = reverse_complement(ref), reverse_complement(alt)
    texts = [allele + bases[start + len(ref) :] for allele in (ref, alt)]
    same = first_difference(texts)
    if same is None:
        return None
    count = max(0, max(len(ref), len(alt)) - same) + tiles["downstream_bp"]
    texts = [text[same : same + count] for text in texts]
    first = start + same
    tile = max(0, (first - tiles["least_context_bp"]) // step_bp) * step_bp
    lefts = []
    for longer_bp in (0, len(alt) - len(ref)):
        skip = (offset + longer_bp) % 6
        is_short = first - tile < skip
        lefts.append("N" * (6 + first - tile - skip) if is_short else bases[tile + skip : first])
    return lefts, [text[: min(map(len, texts))] for text in texts], same


def first_difference(texts: Sequence[str]) -> int | None:
    """Return the first place where texts have different known bases; None if there is none."""
    pairs = enumerate(zip(*texts, strict=False))
    place, different = next(((n, pair) for n, pair in pairs if len(set(pair)) > 1), (None, "N"))
    return place if set(different) <= set("ACGT") else None


def ways_to_write(
    bases: str, position: int, ref: str, alt: str, start: int = 0, end: int | None = None
) -> list[tuple[int, str, str]]:
    """Return every way to write a change with REF inside `start` to `end`: all give the same bases.

    Each is position, REF and ALT; neither is empty.
    """
    end = len(bases) if end is None else end
    changed = bases[:position] + alt + bases[position + len(ref) :]
    longer_bp = len(changed) - len(bases)
    return [
        (first, bases[first:last], changed[first : last + longer_bp])
        for first in range(start, end)
        for last in range(max(first + 1, first + 1 - longer_bp), end + 1)
        if bases[:first] + changed[first : last + longer_bp] + bases[last:] == changed
    ]


HAS_BASE = {
    (place, base): np.array([kmer[place] == base for kmer in KMERS])
    for place in range(6)
    for base in "ACGT"
}


@functools.lru_cache(maxsize=100_000)
def stock_distribution(network, prefix: str) -> np.ndarray:
    """Return p of the 4,096 6-mers after `<dna>` and whole 6-mers, by a whole stock forward."""
    ids = [2, *(128 + INDEX[c] if set(c) <= set("ACGT") else 1 for c in chunks(prefix))]
    with torch.inference_mode():
        logits = network(torch.tensor([ids])).logits[0, -1, 128 : 128 + 4096].double()
    return logits.softmax(0).numpy()


@functools.lru_cache(maxsize=100_000)
def stock_log_likelihood(network, window: str, by: str) -> float:
    """Sum over a window's known bases, token by token, by one whole stock forward."""
    tokens = chunks(window.upper())
    ids = [2, *(128 + INDEX[c] if c in INDEX else 1 for c in tokens[:-1])]
    with torch.inference_mode():
        logits = network(torch.tensor([ids])).logits[0, :, 128 : 128 + 4096].double()
    total = 0.0
    for p, token in zip(logits.softmax(1).numpy(), tokens, strict=False):
        known = [HAS_BASE[j, base] for j, base in enumerate(token) if base in "ACGT"]
        if by == "chain":
            total += math.log(p[np.logical_and.reduce(known)].sum()) if known else 0.0
        else:
            total += sum(math.log(p[has_base].sum()) for has_base in known)
    return total


def stock_delta(network, lefts: Sequence[str], texts: Sequence[str], by: str = "chain") -> float:
    """Return the log-likelihood of the text of ALT behind its left less that of REF."""
    ref, alt = (
        stock_log_likelihood(network, left + text, by) - stock_log_likelihood(network, left, by)
        for left, text in zip(lefts, texts, strict=True)
    )
    return alt - ref
