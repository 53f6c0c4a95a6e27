"""Where the features of a GenBank record lie."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from carbon.genome.genes import Span
from carbon.genome.interval import Interval, Strand
from carbon.genome.left_out import on_contig
from carbon.genome.trans_splicing import Ordered

if TYPE_CHECKING:
    from Bio.SeqFeature import SeqFeature


@dataclass(frozen=True, slots=True)
class Place:
    """Where a feature lies.

    Attributes:
        spans: ascending.
        strand: that it is read from.
        incomplete: it goes on beyond an end, or has a part whose place is not exact (`<`, `>`).
        begins_before: it goes on beyond the end that is read first.
        has_gaps: it is not exact in between.
        trans_spliced: its parts in the order in which they are read, where one transcript does not
            have them all; `strand` is then that of the first.
    """

    spans: tuple[Span, ...]
    strand: Strand
    incomplete: bool
    begins_before: bool
    has_gaps: bool
    trans_spliced: tuple[Ordered, ...] = ()

    @property
    def start(self) -> int:
        """Its first base."""
        return self.spans[0][0]

    @property
    def end(self) -> int:
        """Behind its last base; on a circle it may lie past the origin."""
        return self.spans[-1][1]

    def moved(self, spans: tuple[Span, ...]) -> Place:
        """Return the same feature elsewhere."""
        return replace(self, spans=spans)


def place_of(
    feature: SeqFeature, length_bp: int, *, is_circular: bool, is_trans_spliced: bool
) -> Place | str:
    """Return where a feature lies, or the reason why its place is unknown.

    Args:
        feature: of Biopython.
        length_bp: of its record.
        is_circular: whether the record is a circle.
        is_trans_spliced: whether its gene is marked so.
    """
    from Bio.SeqFeature import ExactPosition, UnknownPosition

    if feature.location is None:
        return "location_not_exact"
    parts = list(feature.location.parts)
    strands = {part.strand for part in parts}
    if any(part.ref for part in parts):
        return "lies_on_another_record"
    if any(isinstance(p, UnknownPosition) for part in parts for p in (part.start, part.end)):
        return "location_not_exact"
    if getattr(feature.location, "operator", "join") == "order":
        return "location_not_exact"
    if strands - {1, -1}:
        return "no_strand"
    if len(strands) > 1 or is_trans_spliced:
        return _place_of_parts(parts, length_bp)
    ascending = parts if strands == {1} else parts[::-1]
    spans: list[Span] = []
    turn_bp = 0
    for part in ascending:
        start, end = int(part.start), int(part.end)
        if not 0 <= start < end <= length_bp:
            return "outside_of_the_sequence"
        if spans and start + turn_bp < spans[-1][0]:
            if not is_circular or turn_bp:
                return "parts_out_of_order"
            turn_bp = length_bp
        spans.append((start + turn_bp, end + turn_bp))
    ends = [end for part in ascending for end in (part.start, part.end)]
    exact = [isinstance(end, ExactPosition) for end in ends]
    strand: Strand = "+" if strands == {1} else "-"
    begins_before = not exact[0 if strand == "+" else -1]
    return Place(tuple(spans), strand, not all(exact), begins_before, not all(exact[1:-1]))


def _place_of_parts(parts: list[Any], length_bp: int) -> Place | str:
    """Return where a trans-spliced feature lies, whose parts are in the order of reading."""
    from Bio.SeqFeature import ExactPosition

    spans = [
        Ordered(int(part.start), int(part.end), "+" if part.strand == 1 else "-") for part in parts
    ]
    if not all(0 <= span.start < span.end <= length_bp for span in spans):
        return "outside_of_the_sequence"
    ends = [
        end
        for part in parts
        for end in ((part.start, part.end) if part.strand == 1 else (part.end, part.start))
    ]
    exact = [isinstance(end, ExactPosition) for end in ends]
    strand: Strand = "+" if spans[0].strand == "+" else "-"
    ascending = tuple(sorted((span.start, span.end) for span in spans))
    inexact = (not all(exact), not exact[0], not all(exact[1:-1]))
    return Place(ascending, strand, *inexact, tuple(spans))


def known_parts(feature: SeqFeature, contig: str, length_bp: int) -> tuple[Interval, ...]:
    """Return what a feature covers of its record, as far as the places are known."""
    from Bio.SeqFeature import UnknownPosition

    if feature.location is None:
        return ()
    found = {
        interval
        for part in feature.location.parts
        if not (part.ref or any(isinstance(p, UnknownPosition) for p in (part.start, part.end)))
        for interval in on_contig(contig, int(part.start), int(part.end), length_bp)
    }
    return tuple(sorted(found))
