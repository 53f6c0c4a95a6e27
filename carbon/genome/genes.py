"""What an annotation reader leaves out: where it lies, whose it is, and why."""

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from carbon.errors import GenomeError, TypedError
from carbon.genome.alphabet import reverse_complement, translate
from carbon.genome.fasta import Reference
from carbon.genome.interval import Interval, Strand
from carbon.progress import say


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A gene, a transcript or another feature that the reader leaves out.

    Attributes:
        name: its identifier, as the file has it.
        reason: a word such as `no_strand`.
        intervals: the bases that it covers; none where it lies on no contig of the reference. On a
            circular contig one may end past the contig, as it does for a gene.
        gene: name of its gene; None where the file does not state it.
    """

    name: str
    reason: str
    intervals: tuple[Interval, ...] = ()
    gene: str | None = None


def report_left_out(path: Path, left_out: Sequence[LeftOut]) -> None:
    """Print one line to stderr that counts by reason what was left out; nothing if all was read."""
    if left_out:
        say(f"{path}: annotation: left out {len(left_out):,}: {_by_reason(left_out)}")


def _by_reason(left_out: Sequence[LeftOut]) -> str:
    names: dict[str, list[str]] = defaultdict(list)
    for each in left_out:
        names[each.reason].append(each.name)
    return ", ".join(
        f"{len(found):,} {reason} (e.g. {found[0]})" for reason, found in sorted(names.items())
    )


def on_contig(contig: str, start: int, end: int, length_bp: int) -> tuple[Interval, ...]:
    """Return the part of a span that lies on its contig; nothing where no base of it does."""
    first, last = max(0, start), min(end, length_bp)
    return (Interval(contig, first, last),) if first < last else ()


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


_SHOWN = 5


def find_gene(annotation: Annotation, name: str) -> Gene:
    """Return the gene of this name or identifier, or that of a transcript of this identifier.

    Raises:
        TypedError: there is none, and which names are near.
        GenomeError: there are several, and where.
    """
    found = [gene for gene in annotation.genes if gene.gene_id == name]
    found = found or [gene for gene in annotation.genes if gene.name == name]
    found = found or [
        gene for gene in annotation.genes if any(t.transcript_id == name for t in gene.transcripts)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        places = [f"{gene.gene_id} at {gene.interval.to_region()}" for gene in found[:_SHOWN]]
        raise GenomeError(
            f"gene '{name}': {annotation.path} has {len(found)} of that name: {', '.join(places)}; "
            "give an identifier, or a region"
        )
    names = [text for gene in annotation.genes for text in (gene.gene_id, gene.name)]
    near = near_names(name, names)
    hint = f"near names: {', '.join(near)}" if near else "no name is near it; is it the assembly's?"
    raise TypedError(f"gene '{name}': is not in {annotation.path}; {hint}", name, 0, name, near)


def near_names(name: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the few names that are spelled most like one, in either case."""
    known = {text.casefold(): text for text in names}
    return tuple(known[text] for text in get_close_matches(name.casefold(), known, _SHOWN))


_CODON_BP = 3


class OpenFrame(NamedTuple):
    """A stretch from a start codon to the stop codon of its frame, or to the sequence's end.

    Attributes:
        start: 0-based, of the sequence as it is given, whatever the strand.
        end: behind the last base.
        strand: on which it is read.
        protein: its amino acids, without the stop.
        has_stop: whether a stop codon ends it.
    """

    start: int
    end: int
    strand: Strand
    protein: str
    has_stop: bool


def open_frames(bases: str, least_codons: int) -> list[OpenFrame]:
    """Return the open reading frames of both strands, by start; each from its first ATG.

    Args:
        bases: DNA, in either case.
        least_codons: amino acids that one has at least.

    >>> open_frames("CATGGCCTAAC", 2)
    [OpenFrame(start=1, end=10, strand='+', protein='MA', has_stop=True)]
    """
    strands: tuple[tuple[Strand, str], ...] = (("+", bases), ("-", reverse_complement(bases)))
    found = []
    for strand, read in strands:
        for start, end, protein, has_stop in _of_strand(read.upper()):
            if len(protein) >= least_codons:
                span = (start, end) if strand == "+" else (len(bases) - end, len(bases) - start)
                found.append(OpenFrame(*span, strand, protein, has_stop))
    return sorted(found)


def _of_strand(bases: str) -> Iterator[tuple[int, int, str, bool]]:
    """Yield start, end, protein and whether there is a stop, frame by frame."""
    for frame in range(_CODON_BP):
        whole_bp = (len(bases) - frame) // _CODON_BP * _CODON_BP
        at = frame
        for part, is_last in _parts(translate(bases[frame : frame + whole_bp])):
            end = at + _CODON_BP * (len(part) + (not is_last))
            met = part.find("M")
            if met >= 0:
                yield at + _CODON_BP * met, end, part[met:], not is_last
            at = end


def _parts(protein: str) -> Iterator[tuple[str, bool]]:
    *stopped, last = protein.split("*")
    yield from ((part, False) for part in stopped)
    yield last, True
