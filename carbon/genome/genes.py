"""Genes and transcripts as values, whatever format they were read from.

Coordinates are 0-based and half-open. On a circular contig of L bases a span may end past L: it
goes on from base 0.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from carbon.genome.alphabet import reverse_complement
from carbon.genome.fasta import Reference
from carbon.genome.interval import Interval, Strand
from carbon.genome.left_out import LeftOut

Span = tuple[int, int]
StrandedSpan = tuple[int, int, Strand]
_SLIP_BP = 2  # how far a ribosome slips at most; no intron is as short
# The contigs of the mitochondria, whose codes are others, in Ensembl, UCSC, TAIR and WormBase.
MITOCHONDRIA = frozenset(
    {"MT", "Mt", "M", "chrM", "ChrM", "chrMT", "chrmt", "Mito", "chrMito", "MtDNA"}
    | {"mitochondrion", "mitochondrion_genome"}
)


@dataclass(frozen=True, slots=True)
class WholeCds:
    """The CDS of a trans-spliced transcript, of which a `Transcript` is one part.

    Attributes:
        spans: of all parts, with their strands, in the order in which they are read.
        before_bp: coding bases that are read before those of this part.
        phase_bp: bases before the first whole codon of all; None where codons cannot be told.
    """

    spans: tuple[StrandedSpan, ...]
    before_bp: int
    phase_bp: int | None

    @property
    def length_bp(self) -> int:
        """Number of coding bases of all parts."""
        return sum(end - start for start, end, _ in self.spans)


@dataclass(frozen=True, slots=True)
class Transcript:
    """One transcript: exons and CDS as spans `(start, end)` of the contig, ascending.

    Attributes:
        exons: apart from one another.
        cds: coding spans with the stop codon; empty for a non-coding transcript. Two of them
            overlap where the ribosome slips back.
        incomplete: the annotation marks its CDS as partial, pseudo or exceptional, or lets it begin
            within a codon.
        where: file and line, or record, of its first feature, for messages.
        phase_bp: bases of the CDS before its first whole codon, 0 to 2, as the strand reads it
            (the phase of GFF3, the frame of GTF, `codon_start` of INSDC less one). None where
            codons cannot be told: the CDS is pseudo or exceptional, or begins nobody says where.
        has_start: the CDS begins with its start codon, as far as the annotation says.
        genetic_code: the NCBI translation table that the annotation states, or that was chosen
            where it states none; None if there is neither.
        is_mitochondrial: the annotation or the reference calls its contig by one of `MITOCHONDRIA`.
        has_recoded_codon: the annotation states an amino acid that the genetic code does not give
            (`transl_except`), as for the stop codon of a selenocysteine.
        trans_spliced: of a part of a trans-spliced transcript, the CDS of all parts; None of any
            other. Each part is a transcript of its own, of one identifier, and `incomplete`.
    """

    transcript_id: str
    contig: str
    strand: Strand
    exons: tuple[Span, ...]
    cds: tuple[Span, ...]
    incomplete: bool
    where: str
    phase_bp: int | None = 0
    has_start: bool = True
    genetic_code: int | None = None
    is_mitochondrial: bool = False
    has_recoded_codon: bool = False
    trans_spliced: WholeCds | None = None

    @property
    def cds_length_bp(self) -> int:
        """Number of coding bases, stop codon included."""
        return sum(end - start for start, end in self.cds)

    @property
    def leftover_bp(self) -> int:
        """Number of bases behind the last whole codon of the CDS, 0 to 2."""
        return (self.cds_length_bp - (self.phase_bp or 0)) % 3

    @property
    def codon_positions(self) -> tuple[int, ...]:
        """Positions of the CDS in the order of its strand, from its first whole codon on.

        Every third, from the first, is the first base of a codon.
        """
        positions = [at for start, end in self.cds for at in range(start, end)]
        along = positions if self.strand == "+" else positions[::-1]
        return tuple(along[self.phase_bp or 0 :])

    @property
    def introns(self) -> tuple[Span, ...]:
        """Spans between consecutive exons, ascending."""
        pairs = zip(self.exons, self.exons[1:], strict=False)
        return tuple((left[1], right[0]) for left, right in pairs)


@dataclass(frozen=True, slots=True)
class Gene:
    """A gene with its transcripts; `interval` covers the gene feature and all its exons.

    A gene that is trans-spliced, or stands at several loci, is one `Gene` at each of its places.
    """

    gene_id: str
    name: str
    biotype: str
    interval: Interval
    strand: Strand
    transcripts: tuple[Transcript, ...]


@dataclass(frozen=True, slots=True)
class Annotation:
    """All genes in order of contig and start.

    Attributes:
        path: the file they were read from.
        left_out: what was not read as a gene, with its place and its reason.
        circular: contigs that the file says are circular.
    """

    path: Path
    genes: tuple[Gene, ...]
    left_out: tuple[LeftOut, ...]
    circular: frozenset[str] = frozenset()

    def occupied(self) -> Iterator[Interval]:
        """Yield what genes cover, and what was left out; on a circle an interval may end past it.

        Elsewhere no gene is known. What was left out may be one.
        """
        yield from (gene.interval for gene in self.genes)
        yield from (interval for each in self.left_out for interval in each.intervals)


def spliced(reference: Reference, contig: str, spans: Iterable[Span], strand: Strand) -> str:
    """Return the bases of ascending spans, joined and read along the strand."""
    bases = "".join(reference.fetch_circular(contig, start, end) for start, end in spans)
    return bases if strand == "+" else reverse_complement(bases)


def intergenic(annotation: Annotation, contig_lengths_bp: Mapping[str, int]) -> Iterator[Interval]:
    """Yield what lies between genes, contig by contig, each from end to end.

    What the reader left out lies in no interval, because a gene may be there.

    Args:
        annotation: its genes may overlap, on either strand.
        contig_lengths_bp: the contigs and their lengths.
    """
    taken: dict[str, list[Span]] = {contig: [] for contig in contig_lengths_bp}
    for interval in annotation.occupied():
        for part in parts_on_contig(interval, contig_lengths_bp[interval.contig]):
            taken[part.contig].append((part.start, part.end))
    for contig, length_bp in contig_lengths_bp.items():
        free = 0
        for start, end in sorted(taken[contig]):
            if start > free:
                yield Interval(contig, free, start)
            free = max(free, end)
        if free < length_bp:
            yield Interval(contig, free, length_bp)


def parts_on_contig(interval: Interval, length_bp: int) -> Iterator[Interval]:
    """Yield what an interval covers, in two parts if it goes over the origin of its contig.

    On a circular contig a place may be numbered past the end, up to twice the length.
    """
    before_bp = interval.start // length_bp * length_bp  # whole turns
    start, end = interval.start - before_bp, interval.end - before_bp
    yield Interval(interval.contig, start, min(end, length_bp))
    if end > length_bp:
        yield Interval(interval.contig, 0, min(end - length_bp, length_bp))


def exons_of(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Sort and join spans that touch or overlap, or leave out what a ribosome skips, no intron."""
    return _joined(spans, lambda left, right: right[0] <= left[1] + _SLIP_BP)


def coding_spans(spans: Iterable[Span], *, slips: bool = False) -> tuple[Span, ...]:
    """Sort and join spans that touch or overlap: a CDS and its stop codon, mostly.

    Where the ribosome slips back, its spans overlap by a base or two, and stay apart to be read one
    after the other; `slips` is for a CDS that is marked so.
    """
    least_bp = math.inf if slips else _SLIP_BP
    return _joined(
        spans,
        lambda left, right: right[0] == left[1] or (left[1] - right[0] > least_bp),
    )


def _joined(spans: Iterable[Span], belong: Callable[[Span, Span], bool]) -> tuple[Span, ...]:
    result: list[Span] = []
    for span in sorted(set(spans)):
        if result and belong(result[-1], span):
            result[-1] = (result[-1][0], max(result[-1][1], span[1]))
        else:
            result.append(span)
    return tuple(result)


def unrolled(spans: Iterable[Span], length_bp: int) -> tuple[Span, ...]:
    """Lay out spans of a circular contig one behind the other, over the origin if that is shorter.

    Spans at both ends of the contig are far apart along it and near over the origin: where the
    widest gap between them is wider than that over the origin, they begin behind that gap.
    """
    ordered = sorted(set(spans))
    if not ordered or ordered[-1][1] > length_bp:
        return tuple(ordered)
    gaps = [right[0] - left[1] for left, right in itertools.pairwise(ordered)]
    over_origin = length_bp - ordered[-1][1] + ordered[0][0]
    if not gaps or max(gaps) <= over_origin:
        return tuple(ordered)
    first = gaps.index(max(gaps)) + 1
    turned = [(start + length_bp, end + length_bp) for start, end in ordered[:first]]
    return tuple(ordered[first:] + turned)


def beside(spans: tuple[Span, ...], interval: Interval, length_bp: int) -> tuple[Span, ...]:
    """Move spans of a circular contig once around where that puts them inside an interval."""
    if spans and interval.end > length_bp and spans[0][0] < interval.start:
        moved = tuple((start + length_bp, end + length_bp) for start, end in spans)
        if moved[-1][1] <= interval.end:
            return moved
    return spans


_PREFIX = re.compile("gene:|transcript:|gene-|rna-|cds-")


def bare_identifier(identifier: str) -> str:
    """Drop the prefix that Ensembl, NCBI and these readers put before an identifier."""
    prefix = _PREFIX.match(identifier)
    return identifier[prefix.end() :] if prefix else identifier
