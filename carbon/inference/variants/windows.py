"""How variants are scored: the method that `carbon.inference.options.VariantOptions` make."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, get_args

from carbon.genome import Interval, Reference, Variant, reverse_complement
from carbon.genome.interval import BASES
from carbon.genome.normalize import common_start_bp
from carbon.inference.checks import check_window, checked_names, checked_offsets
from carbon.inference.options import (
    PROTOCOLS,
    STRANDS_READ,
    By,
    ProtocolName,
    Strands,
    check_choice,
)
from carbon.tokenizer import K

if TYPE_CHECKING:
    from carbon.inference.runner import ModelRunner


class Method(NamedTuple):
    """How variants are scored.

    Attributes:
        protocol: `centered` compares the second half of a window around the variant, `right_end`
            the alleles, up to at least the first base that differs, behind a window that ends
            where they begin.
        window_bp: of the whole window; for `right_end` what is read before the variant.
        by: likelihoods by the chain or by marginals.
        strands: read the forward strand, the reverse strand, or the mean of both.
        offsets: how many bases at the window's start are left out for REF, which shifts the 6-mers;
            `centered` leaves out as many more for an ALT as it is longer, modulo six. The score is
            the mean over the offsets.
        tags: metadata tags to condition on.
    """

    protocol: ProtocolName
    window_bp: int
    by: By
    strands: Strands
    offsets: tuple[int, ...]
    tags: tuple[str, ...]


def method_for(
    runner: "ModelRunner",
    *,
    protocol: ProtocolName = "centered",
    window_bp: int | None = None,
    by: By = "chain",
    strands: Strands = "both",
    offsets: Sequence[int] = (0,),
    tags: Sequence[str] = (),
) -> Method:
    """Return a method whose window fits into the model's context.

    Raises:
        UserError: a choice, the window or an offset is not possible, or the vocabulary has no such
            tag.
    """
    check_choice("protocol", protocol, PROTOCOLS)
    check_choice("by", by, get_args(By))
    check_choice("strands", strands, STRANDS_READ)
    found_offsets, found_tags = checked_offsets(offsets), checked_names("tags", tags)
    most_bp = room_bp(runner, found_tags)
    if window_bp is None:
        known = PROTOCOLS[protocol]
        window_bp = min(known.default_window_bp, most_bp - min(known.spare_bp, most_bp // 4))
    check_window(window_bp, most_bp)
    return Method(protocol, window_bp, by, strands, found_offsets, found_tags)


def room_bp(runner: "ModelRunner", tags: tuple[str, ...]) -> int:
    """Return how many bases fit into one pass beside `<dna>` and tags."""
    return (runner.context_tokens - len(runner.vocabulary.prefix(tags))) * K


_FIRST_FETCH_BP = 64  # doubled with each further fetch, so that a long repeat takes linear time


class Place(NamedTuple):
    """Where a variant is read: variants of one place share what is before them.

    Attributes:
        contig: of the reference.
        start: of REF.
        end: of REF.
        strand: that is read.
        counted_bp: bases that are compared, from the variant on. How many they are tells places
            apart, so that the numbers of a variant do not depend on what is read beside it.
    """

    contig: str
    start: int
    end: int
    strand: str
    counted_bp: int


class Fork(NamedTuple):
    """What is read at a place: bases before the variant, and the alleles with what follows.

    Both run in the direction of the strand, in the case of the reference.
    """

    left: str
    rights: dict[str, str]  # by allele


def place_of(variant: Variant, strand: str, counted_bp: int) -> Place:
    """Return where a variant is read on a strand, and how many bases are compared there."""
    here = variant.interval
    return Place(here.contig, here.start, here.end, strand, counted_bp)


def needed_bp(reference: Reference, variant: Variant, strand: str, most_bp: int) -> int | None:
    """Return how many bases are needed, from the variant on, to tell REF and ALT apart.

    They hold the longer allele, and the first base at which the two texts, an allele followed by
    the reference, differ. Behind an insertion or deletion in a repeat that base comes after the
    last copy of the repeated unit.

    Args:
        reference: of the variant.
        variant: as `normalize_variant` writes it.
        strand: in whose direction the texts run.
        most_bp: where to stop looking.

    Returns:
        More than `most_bp` if the texts do not differ up to there; None if the contig ends before
        they differ, or a base that is not known comes first.
    """
    longer_bp = max(len(variant.ref), len(variant.alt))
    if longer_bp > most_bp:
        return longer_bp
    same_bp = _same_bp(reference, variant, strand, most_bp)
    return None if same_bp is None else max(longer_bp, same_bp + 1)


def _same_bp(reference: Reference, variant: Variant, strand: str, most_bp: int) -> int | None:
    """Return how many bases the two texts begin with in common, `most_bp` if it is more."""
    alleles = tuple(_along(strand, allele.upper()) for allele in (variant.ref, variant.alt))
    after = _sides(reference, variant.interval, strand)[1]
    fetch_bp = _FIRST_FETCH_BP
    texts, rest = alleles, Interval(after.contig, after.start, after.start)
    while True:
        same_bp = common_start_bp(*texts)
        if same_bp < min(map(len, texts)):
            return same_bp if {text[same_bp] for text in texts} <= BASES else None
        if same_bp >= most_bp:
            return most_bp
        if rest == after:
            return None
        rest = _nearest(after, fetch_bp, strand)
        fetch_bp *= 2
        following = _along(strand, reference.fetch(rest).upper())
        texts = tuple(allele + following for allele in alleles)


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
        place: where REF lies, the strand that is read, and how many bases are compared.
        alleles: on the forward strand, REF among them.
        protocol: `centered` or `right_end`.
        window_bp: of the protocol.
    """
    strand, counted_bp = place.strand, place.counted_bp
    before, after = _sides(reference, Interval(place.contig, place.start, place.end), strand)
    opposite = "-" if strand == "+" else "+"
    before = _nearest(before, PROTOCOLS[protocol].before_bp(strand, window_bp), opposite)
    after = _nearest(after, counted_bp - min(map(len, alleles)), strand)
    left, rest = (_along(strand, reference.fetch(side)) for side in (before, after))
    rights = {allele: (_along(strand, allele) + rest)[:counted_bp] for allele in alleles}
    return Fork(left, rights)


def _sides(reference: Reference, here: Interval, strand: str) -> tuple[Interval, Interval]:
    """Return what is read before a place and what after it, up to the contig's ends."""
    contig_bp = reference.contig_lengths_bp[here.contig]
    left = Interval(here.contig, 0, here.start)
    right = Interval(here.contig, here.end, contig_bp)
    return (left, right) if strand == "+" else (right, left)


def _nearest(side: Interval, length_bp: int, strand: str) -> Interval:
    """Return the first bases of an interval in the direction of a strand; all if it has fewer."""
    length_bp = min(length_bp, side.length_bp)
    if strand == "+":
        return Interval(side.contig, side.start, side.start + length_bp)
    return Interval(side.contig, side.end - length_bp, side.end)


def _along(strand: str, bases: str) -> str:
    return bases if strand == "+" else reverse_complement(bases)


def skipped_bp(place: Place, allele: str, offset: int, protocol: ProtocolName) -> int:
    """Return how many bases at the window's start are left out where an allele is read.

    For `centered` as many more, modulo six, as the allele is longer than REF, so that the 6-mers
    behind it begin at the same bases of the reference whatever the allele. On either strand the
    window starts at the side that is read first, and the same number does it.

    Args:
        place: where REF lies.
        allele: REF or an ALT.
        offset: that are left out where REF is read.
        protocol: `centered`, or `right_end`, in which every allele begins a 6-mer.
    """
    if PROTOCOLS[protocol].alleles_alone:
        return offset
    return (offset + len(allele) - (place.end - place.start)) % K


def in_frame(left: str, skip_bp: int, protocol: ProtocolName) -> str:
    """Return what is read before the variant, the first bases left out.

    For alleles alone so many are left out that the variant begins a token, and then `skip_bp`.
    Otherwise, where fewer bases than that stand before the variant, unknown ones fill the 6-mer
    that the variant then begins in.
    """
    if PROTOCOLS[protocol].alleles_alone:
        return left[len(left) % K + skip_bp :]
    return left[skip_bp:] if skip_bp <= len(left) else "N" * (K + len(left) - skip_bp)
