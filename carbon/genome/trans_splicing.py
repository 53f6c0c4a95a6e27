"""Trans-spliced transcripts: parts that are read one after the other, each from its own strand.

Each part becomes a transcript on one strand, as the readers of genes expect. What the parts are
together stands in `Transcript.trans_spliced`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from carbon.genome.features import Feature
from carbon.genome.gene_parts import Line, Parts, whole_number
from carbon.genome.genes import StrandedSpan, Transcript, WholeCds, coding_spans, exons_of

_Part = list[StrandedSpan]


class Ordered(NamedTuple):
    """A span in reading order, and the number of the part that it is said to be of."""

    start: int
    end: int
    strand: str
    part: int | None = None

    @property
    def stranded(self) -> StrandedSpan:
        """The span and its strand."""
        return self.start, self.end, "+" if self.strand == "+" else "-"


def parts_of(
    template: Transcript, exons: Sequence[Ordered], cds: Sequence[Ordered]
) -> list[Transcript]:
    """Return one transcript for each part; nothing where the parts cannot be put together.

    Args:
        template: what all parts share; its phase and start are those of the whole CDS.
        exons: in reading order. Those that lie one after the other on one strand are one part,
            unless they are said to be of different ones.
        cds: in any order; each lies in an exon.
    """
    parts = list(_parts(exons))
    coding = [_coding_of(part, cds) for part in parts]
    if sum(map(len, coding)) != len(set((c.start, c.end, c.strand) for c in cds)):
        return []
    joined = [_joined(part) for part in coding]
    whole = tuple(span for part in joined for span in part)
    found = []
    before_bp = 0
    for part, spans in zip(parts, joined, strict=True):
        found.append(
            _transcript(template, part, spans, WholeCds(whole, before_bp, template.phase_bp))
        )
        before_bp += sum(end - start for start, end, _ in spans)
    return found


def _parts(exons: Sequence[Ordered]) -> Iterator[_Part]:
    part: _Part = []
    last: Ordered | None = None
    for exon in exons:
        if last and not (exon.part == last.part and _follows(exon, last)):
            yield part
            part = []
        part.append(exon.stranded)
        last = exon
    if part:
        yield part


def _follows(exon: Ordered, last: Ordered) -> bool:
    """Tell whether an exon can be spliced behind another in one transcript."""
    behind = exon.start >= last.end if exon.strand == "+" else exon.end <= last.start
    return exon.strand == last.strand and behind


def _coding_of(part: _Part, cds: Sequence[Ordered]) -> _Part:
    """Return the coding spans that lie in the exons of a part, in reading order."""
    inside = {
        span.stranded
        for span in cds
        if any(s <= span.start and span.end <= e and span.strand == own for s, e, own in part)
    }
    return sorted(inside, reverse=part[0][2] == "-")


def _joined(part: _Part) -> _Part:
    """Join what touches, as a CDS and its stop codon do."""
    if not part:
        return []
    strand = part[0][2]
    spans = [(start, end, strand) for start, end in coding_spans((s, e) for s, e, _ in part)]
    return spans if strand == "+" else spans[::-1]


def _transcript(template: Transcript, part: _Part, coding: _Part, whole: WholeCds) -> Transcript:
    phase_bp = None if whole.phase_bp is None else (whole.phase_bp - whole.before_bp) % 3
    is_first = not whole.before_bp
    return replace(
        template,
        strand=part[0][2],
        exons=exons_of((start, end) for start, end, _ in part),
        cds=tuple(sorted((start, end) for start, end, _ in coding)),
        incomplete=True,
        phase_bp=whole.phase_bp if is_first else phase_bp,
        has_start=template.has_start and is_first,
        trans_spliced=whole,
    )


def first_coding(exons: Sequence[Ordered], cds: Sequence[Ordered]) -> Ordered | None:
    """Return the coding span that is read first; None where no exon has one."""
    for exon in exons:
        inside = [span for span in cds if _lies_in(span, exon)]
        if inside:
            return (min if exon.strand == "+" else max)(inside)
    return None


def reading_order(parts: Sequence[Parts], gene_lines: Sequence[Feature]) -> list[Ordered]:
    """Return the exons of a trans-spliced transcript in reading order; nothing if it is unknown.

    The file states it by `part=1/2` of the exons and CDS or of the lines of their gene, or by the
    numbers of the exons.
    """
    exons = [(each.strand, line) for each in parts for line in each.exon_lines]
    numbers = [line.part or _part_at(strand, line, gene_lines) for strand, line in exons]
    if all(numbers) and set(numbers) == set(range(1, max(map(int, filter(None, numbers))) + 1)):
        ordered = [
            Ordered(line.start, line.end, strand, number)
            for (strand, line), number in zip(exons, numbers, strict=True)
        ]
        return sorted(ordered, key=_by_part)
    if len({line.number for _, line in exons} - {None}) == len(exons):
        exons.sort(key=lambda exon: exon[1].number or 0)
        return [Ordered(line.start, line.end, strand) for strand, line in exons]
    return []


def _part_at(strand: str, line: Line, gene_lines: Sequence[Feature]) -> int | None:
    """Return the part of a gene that a line lies in."""
    for gene in gene_lines:
        if gene.strand == strand and gene.start <= line.start and line.end <= gene.end:
            return whole_number(gene.attributes.get("part"))
    return None


def _by_part(span: Ordered) -> tuple[int, int]:
    return span.part or 0, span.start if span.strand == "+" else -span.end


def numbered_by_gene(exons: Sequence[Ordered], gene_parts: Sequence[Ordered]) -> list[Ordered]:
    """Return exons in reading order, each with the part of the gene that it lies in.

    Where the parts of the gene are not known, and all exons could be of one transcript, each exon
    is a part: one of the introns is none, and which is unknown.
    """
    numbers = [
        next((n for n, part in enumerate(gene_parts) if _lies_in(exon, part)), None)
        for exon in exons
    ]
    if None not in numbers and len(set(numbers)) > 1:
        return [exon._replace(part=number) for exon, number in zip(exons, numbers, strict=True)]
    if len(list(_parts(exons))) == 1:
        return [exon._replace(part=number) for number, exon in enumerate(exons)]
    return list(exons)


def _lies_in(exon: Ordered, part: Ordered) -> bool:
    return exon.strand == part.strand and part.start <= exon.start and exon.end <= part.end
