"""The windows that protocols read around a variant, whatever the tokens of the model."""

from collections.abc import Iterable
from typing import NamedTuple

from carbon.genome import Interval, Reference, Variant, reverse_complement
from carbon.options import PROTOCOLS, ProtocolName
from carbon.tokenizer import K

Place = tuple[str, int, int, str]
"""Contig, start and end of REF, strand: variants of one place share what is before them."""


class Fork(NamedTuple):
    """What is read at a place: bases before the variant, and the alleles with what follows.

    Both run in the direction of the strand, in the case of the reference.
    """

    left: str
    rights: dict[str, str]  # by allele


def place_of(variant: Variant, strand: str) -> Place:
    """Return where a variant is read on a strand."""
    return variant.contig, variant.position, variant.interval.end, strand


def fork_at(
    reference: Reference,
    place: Place,
    alleles: Iterable[str],
    protocol: ProtocolName,
    window_bp: int,
) -> Fork:
    """Return what a protocol reads at a place, whatever the tokens of the model that reads it.

    A window that reaches past a contig's edge is cut there; so rights may differ in length.

    Args:
        reference: the sequence.
        place: where REF lies, and the strand that is read.
        alleles: on the forward strand, REF among them.
        protocol: `centered` or `right_end`.
        window_bp: of the protocol.
    """
    contig, first, last, strand = place
    read = PROTOCOLS[protocol]
    counted_bp = read.counted_bp(alleles, strand, window_bp)
    sides = Interval(contig, 0, first), Interval(contig, last, reference.contig_lengths_bp[contig])
    before, after = sides if strand == "+" else sides[::-1]
    before_bp = min(read.before_bp(strand, window_bp), before.length_bp)
    after_bp = min(counted_bp - min(map(len, alleles)), after.length_bp)
    if strand == "+":
        left = reference.fetch(Interval(contig, first - before_bp, first))
        rest = reference.fetch(Interval(contig, last, last + after_bp))
        return Fork(left, {allele: (allele + rest)[:counted_bp] for allele in alleles})
    left = reverse_complement(reference.fetch(Interval(contig, last, last + before_bp)))
    rest = reverse_complement(reference.fetch(Interval(contig, first - after_bp, first)))
    turned = {allele: reverse_complement(allele) for allele in alleles}
    return Fork(left, {allele: (text + rest)[:counted_bp] for allele, text in turned.items()})


def skipped_bp(place: Place, allele: str, frame: int, protocol: ProtocolName) -> int:
    """Return how many bases at the window's start are left out where an allele is read.

    For `centered` as many more, modulo six, as the allele is longer than REF, so that the 6-mers
    behind it begin at the same bases of the reference whatever the allele. On either strand the
    window starts at the side that is read first, and the same number does it.

    Args:
        place: where REF lies.
        allele: REF or an ALT.
        frame: that are left out where REF is read.
        protocol: `centered` or `right_end`, which compares nothing behind the alleles.
    """
    if PROTOCOLS[protocol].alleles_alone:
        return frame
    _, first, last, _ = place
    return (frame + len(allele) - (last - first)) % K


def in_frame(left: str, skip_bp: int, protocol: ProtocolName) -> str:
    """Return what is read before the variant, the first bases left out.

    For alleles alone so many are left out that the variant begins a token, and then `skip_bp`.
    Otherwise, where fewer bases than that stand before the variant, unknown ones fill the 6-mer
    that the variant then begins in.
    """
    if PROTOCOLS[protocol].alleles_alone:
        return left[len(left) % K + skip_bp :]
    return left[skip_bp:] if skip_bp <= len(left) else "N" * (K + len(left) - skip_bp)
