"""Places of one identifier: an annotation may use it for two genes or transcripts of one contig."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from carbon.genome.features import Feature
from carbon.genome.gene_parts import Line, Parts
from carbon.genome.genes import Transcript

_Item = TypeVar("_Item")


def are_two_loci(parts: Sequence[Parts], lines: Sequence[Feature]) -> bool:
    """Tell whether parts on two strands are of two transcripts, not of one that is trans-spliced.

    Either strand has a line of the gene or transcript; or the file has no such lines, and the two
    lie apart.
    """
    if lines:
        return {line.strand for line in lines} >= {each.strand for each in parts}
    (first, second) = sorted(each.hull for each in parts)
    return first[1] <= second[0]


def by_own_lines(
    by_strand: Mapping[str, Parts], own: Sequence[Feature]
) -> list[tuple[Feature | None, list[Parts]]]:
    """Divide the parts of one identifier by the lines of its transcript, each with its own line.

    In a GTF several lines are several transcripts. In GFF3 they are one feature, unless they name
    different genes.
    """
    all_parts = list(by_strand.values())
    are_many = own and (own[0].is_gtf or len({line.attributes.get("parent") for line in own}) > 1)
    if are_many and len(own) > 1:
        found = [
            (line, [part] if (part := _inside(by_strand[line.strand], line)).lines else [])
            for line in own
            if line.strand in by_strand
        ]
        num_found = sum(len(part.lines) for _, parts in found for part in parts)
        if num_found == sum(len(part.lines) for part in all_parts):
            return [(line, parts) for line, parts in found if parts]
    return [(own[0] if own else None, all_parts)]


def at_loci(parts: Parts, own: Sequence[Feature], gene: Sequence[Feature]) -> list[Parts]:
    """Divide the parts of one identifier and strand by the places where its gene stands.

    Several lines of the gene that lie apart are several loci. Where the file has no line of the
    transcript, exon numbers that begin again tell its loci apart.
    """
    lines = [line for line in gene if line.strand == parts.strand]
    if len(lines) > 1:
        found = [_inside(parts, line) for line in lines]
        if sum(len(each.lines) for each in found) == len(parts.lines):
            return [each for each in found if each.lines]
    return [parts] if own else _numbered_anew(parts)


def _inside(parts: Parts, place: Feature) -> Parts:
    return parts.within(place.start, place.end)


def _numbered_anew(parts: Parts) -> list[Parts]:
    """Divide parts where the numbers of exons, along the strand, begin again."""
    along = sorted(parts.exon_lines, key=lambda line: line.start, reverse=parts.strand == "-")
    numbers = [line.number or 0 for line in along]
    starts = [at for at, number in enumerate(numbers) if not at or number <= numbers[at - 1]]
    runs = [along[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)]
    if len(runs) < 2 or not all(numbers) or not _are_copies(runs):
        return [parts]
    hulls = [(min(x.start for x in run), max(x.end for x in run)) for run in runs]
    found = [parts.within(*hull) for hull in hulls]
    whole = sum(len(each.lines) for each in found) == len(parts.lines)
    return found if whole else [parts]


def _are_copies(runs: Sequence[Sequence[Line]]) -> bool:
    """Tell whether exons are numbered alike; where each run is one exon, its length must agree."""
    if len(runs[0]) == 1:
        return len({(len(run), run[0].end - run[0].start) for run in runs}) == 1
    return len({tuple(line.number for line in run) for run in runs}) == 1


def clusters(places: Iterable[tuple[int, int, _Item]]) -> Iterator[list[tuple[int, int, _Item]]]:
    """Yield places (start, end, what is there), those that overlap together, in order."""
    group: list[tuple[int, int, _Item]] = []
    reach = -1
    for place in sorted(places, key=lambda place: place[:2]):
        if group and place[0] >= reach:
            yield group
            group = []
        group.append(place)
        reach = max(reach, place[1])
    if group:
        yield group


def genes_apart(
    lines: Sequence[Feature], transcripts: Sequence[Transcript]
) -> Iterator[tuple[list[Feature], list[Transcript]]]:
    """Yield the lines and transcripts of one gene and strand, those of each locus together.

    They are of one locus unless the gene has several lines, or one transcript comes twice.
    """
    identifiers = {transcript.transcript_id for transcript in transcripts}
    if len(lines) < 2 and len(identifiers) == len(transcripts):
        yield list(lines), list(transcripts)
        return
    places: list[tuple[int, int, Feature | Transcript]] = [
        *((line.start, line.end, line) for line in lines),
        *((each.exons[0][0], each.exons[-1][1], each) for each in transcripts),
    ]
    for group in clusters(places):
        items = [item for _, _, item in group]
        yield (
            [item for item in items if isinstance(item, Feature)],
            [item for item in items if isinstance(item, Transcript)],
        )


def joined_over_origin(lines: list[Feature], length_bp: int) -> list[Feature]:
    """Join two lines of one feature of a circle that touch at its origin."""
    last = next((line for line in lines if line.end == length_bp), None)
    first = next((line for line in lines if line.start == 0 and line is not last), None)
    if last is None or first is None or last.strand != first.strand:
        return lines
    whole = last._replace(end=length_bp + first.end)
    return [whole, *(line for line in lines if line not in (first, last))]
