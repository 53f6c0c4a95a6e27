"""Parts of transcripts: exons, UTRs and CDS with the same parent, and trans-spliced transcripts."""

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, NamedTuple

from carbon.genome.genes import Span, StrandedSpan, Transcript, WholeCds, coding_spans, exons_of
from carbon.genome.gff import CdsMarks, Feature

Role = Literal["exon", "cds", "utr", "stop_codon"]
# SO:0000147 (exon) with its subterms, and the exon of a pseudogene.
_EXONS = frozenset({
    "exon", "coding_exon", "five_prime_coding_exon", "three_prime_coding_exon",
    "interior_coding_exon", "interior_exon", "noncoding_exon", "five_prime_noncoding_exon",
    "three_prime_noncoding_exon", "single_exon", "exon_of_single_exon_gene", "pseudogenic_exon",
})  # fmt: skip
# SO:0000203 (UTR) with its subterms, and names in GTF and GenBank, without separators.
_UTRS = frozenset({
    "utr", "fiveprimeutr", "threeprimeutr", "5utr", "3utr", "utr5", "utr3", "5primeutr",
    "3primeutr", "utr5prime", "utr3prime", "5putr", "3putr", "internalutr",
    "untranslatedregion", "fiveprimeuntranslatedregion", "threeprimeuntranslatedregion",
    "untranslatedregionpolycistronicmrna",
})  # fmt: skip
_SIGNS = str.maketrans("", "", "_-' ")


@lru_cache(maxsize=1024)
def role_of(kind: str) -> Role | None:
    """Return the role of a feature type (column 3) in a transcript; None if it is not a part.

    >>> role_of("five_prime_UTR"), role_of("5UTR"), role_of("noncoding_exon"), role_of("mRNA")
    ('utr', 'utr', 'exon', None)
    """
    folded = kind.casefold()
    if folded in _EXONS:
        return "exon"
    if folded.translate(_SIGNS) in _UTRS:
        return "utr"
    roles: dict[str, Role] = {"cds": "cds", "stop_codon": "stop_codon"}
    return roles.get(folded)


class Line(NamedTuple):
    """A part of a transcript.

    Attributes:
        role: role of the feature.
        start: 0-based start.
        end: end, exclusive.
        name: ID of a CDS, or empty.
        number: number of the exon along the strand; None if not stated.
        part: number of the part of a trans-spliced gene; None if not stated.
    """

    role: Role
    start: int
    end: int
    name: str
    number: int | None
    part: int | None

    @property
    def span(self) -> Span:
        """Start and end."""
        return self.start, self.end


@dataclass(slots=True)
class Parts:
    """Exons, UTRs and CDS with the same parent, on one strand."""

    contig: str
    strand: str
    where: str
    gene: str | None = None  # name of the gene in the first line
    lines: list[Line] = field(default_factory=list)
    marks: CdsMarks = field(default_factory=CdsMarks)

    def add(self, role: Role, feature: Feature, contig_bp: int) -> None:
        """Add a feature and its marks."""
        attributes = feature.attributes
        name = attributes.get("id", "") if role == "cds" else ""
        number = whole_number(attributes.get("exon_number") or attributes.get("rank"))
        part = whole_number(attributes.get("part"))
        self.lines.append(Line(role, feature.start, feature.end, name, number, part))
        self.marks.see(feature, contig_bp, is_cds=role == "cds")

    def take(self, other: "Parts") -> None:
        """Add the lines and marks of other parts of the same strand."""
        self.lines += other.lines
        self.marks.take(other.marks)

    def spans(self, *roles: Role) -> list[Span]:
        """Return the spans with one of the roles, in the order of the file."""
        return [line.span for line in self.lines if line.role in roles]

    @property
    def exon_lines(self) -> list[Line]:
        """Lines of exons, or lines of the CDS without exons."""
        exons = [line for line in self.lines if line.role == "exon"]
        return exons or [line for line in self.lines if line.role == "cds"]

    @property
    def hull(self) -> Span:
        """Smallest start and largest end of all lines."""
        return min(line.start for line in self.lines), max(line.end for line in self.lines)

    @property
    def has_utrs_only(self) -> bool:
        """Whether all parts are UTRs, so that the transcript between them is unknown."""
        return all(line.role == "utr" for line in self.lines)

    @property
    def cds(self) -> list[Span]:
        """Coding spans, including a stop codon that lies outside of the CDS lines."""
        cds = self.spans("cds")
        stops = self.spans("stop_codon")
        return cds + [(s, e) for s, e in stops if not any(a <= s and e <= b for a, b in cds)]

    @property
    def exons(self) -> list[Span]:
        """Annotated exons, plus UTRs and CDS outside of them.

        Many files omit exons, which are the union of UTRs and CDS.
        """
        exons = self.spans("exon")
        utrs, coding = self.spans("utr"), self.spans("cds", "stop_codon")
        if not exons:
            return self.spans("utr", "cds", "stop_codon")
        joined = exons_of(exons)
        outside = [span for span in coding if not _num_met(span, joined)]
        # A UTR across an intron is covered by the exons; a UTR that extends an exon is part of it.
        return exons + outside + [span for span in utrs if _num_met(span, joined) < 2]

    def each_protein(self) -> Iterator[tuple[str | None, "Parts"]]:
        """Yield CDS name and parts for each protein, if several CDS of a gene overlap.

        CDS with different names that do not overlap are spans of the same CDS.
        """
        by_name: dict[str, list[Span]] = defaultdict(list)
        for line in self.lines:
            if line.role == "cds":
                by_name[line.name].append(line.span)
        whole = sorted((min(spans), max(spans), name) for name, spans in by_name.items())
        apart = all(left[1][1] <= right[0][0] for left, right in itertools.pairwise(whole))
        if apart or self.spans("exon"):
            yield None, self
            return
        for _, _, name in whole:
            lines = [line for line in self.lines if line.role != "cds" or line.name == name]
            yield name, replace(self, lines=lines)

    def within(self, start: int, end: int) -> "Parts":
        """Return the parts with only the lines within `start` and `end`."""
        inside = [line for line in self.lines if start <= line.start and line.end <= end]
        return replace(self, lines=inside)


@lru_cache(maxsize=1024)
def whole_number(text: str | None) -> int | None:
    """Return the number before a slash, as in `1` or `1/2`; None without a number."""
    digits = (text or "").partition("/")[0].strip("\"' ")
    return int(digits) if digits.isdecimal() and len(digits) < 6 else None


def _num_met(span: Span, ascending: tuple[Span, ...]) -> int:
    """Return the number of ascending, disjoint spans that overlap a span."""
    first = bisect_right(ascending, span[0], key=lambda known: known[1])
    last = bisect_right(ascending, span[1] - 1, key=lambda known: known[0])
    return last - first


_Part = list[StrandedSpan]


class Ordered(NamedTuple):
    """A span in reading order, and the number of its part if the annotation states it."""

    start: int
    end: int
    strand: str
    part: int | None = None

    @property
    def stranded(self) -> StrandedSpan:
        """Start, end and strand."""
        return self.start, self.end, "+" if self.strand == "+" else "-"


def parts_of(
    template: Transcript, exons: Sequence[Ordered], cds: Sequence[Ordered]
) -> list[Transcript]:
    """Return one transcript per part of a trans-spliced transcript; empty if they do not fit.

    Args:
        template: values shared by all parts; phase and start refer to the whole CDS.
        exons: exons in reading order. Consecutive exons on one strand form a part, unless their
            numbers of parts differ.
        cds: coding spans in any order, each within an exon.
    """
    parts = list(_parts(exons))
    coding = [_coding_of(part, cds) for part in parts]
    if sum(map(len, coding)) != len(set((c.start, c.end, c.strand) for c in cds)):
        return []
    joined = [_joined(part) for part in coding]
    whole = tuple(span for part in joined for span in part)
    transcripts = []
    before_bp = 0
    for part, spans in zip(parts, joined, strict=True):
        transcripts.append(
            _transcript(template, part, spans, WholeCds(whole, before_bp, template.phase_bp))
        )
        before_bp += sum(end - start for start, end, _ in spans)
    return transcripts


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
    """Return whether an exon lies downstream of another on the same strand."""
    is_downstream = exon.start >= last.end if exon.strand == "+" else exon.end <= last.start
    return exon.strand == last.strand and is_downstream


def _coding_of(part: _Part, cds: Sequence[Ordered]) -> _Part:
    """Return the coding spans within the exons of a part, in reading order."""
    inside = {
        span.stranded
        for span in cds
        if any(s <= span.start and span.end <= e and span.strand == own for s, e, own in part)
    }
    return sorted(inside, reverse=part[0][2] == "-")


def _joined(part: _Part) -> _Part:
    """Join spans that touch, such as a CDS and its stop codon."""
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
    """Return the coding span that is read first; None if no exon is coding."""
    for exon in exons:
        inside = [span for span in cds if _lies_in(span, exon)]
        if inside:
            return (min if exon.strand == "+" else max)(inside)
    return None


def reading_order(parts: Sequence[Parts], gene_lines: Sequence[Feature]) -> list[Ordered]:
    """Return the exons of a trans-spliced transcript in reading order; empty if it is unknown.

    The file states the order by `part=1/2`, on exons and CDS or on the lines of their gene, or by
    the numbers of the exons.
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
    """Return the number of the part of a gene in which a line lies."""
    for gene in gene_lines:
        if gene.strand == strand and gene.start <= line.start and line.end <= gene.end:
            return whole_number(gene.attributes.get("part"))
    return None


def _by_part(span: Ordered) -> tuple[int, int]:
    return span.part or 0, span.start if span.strand == "+" else -span.end


def numbered_by_gene(exons: Sequence[Ordered], gene_parts: Sequence[Ordered]) -> list[Ordered]:
    """Return exons in reading order, each with the part of the gene in which it lies.

    If the parts of the gene are unknown, and all exons could form one transcript, each exon becomes
    a part, because it is unknown which gap between exons is not an intron.
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
