"""Genes, transcripts and CDS as values, look-up by name, and open reading frames."""

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from carbon.errors import GenomeError, TypedError
from carbon.genome.alphabet import reverse_complement
from carbon.genome.fasta import Reference
from carbon.genome.interval import Interval, Strand, as_utf8
from carbon.progress import say


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A gene, a transcript or another feature that the annotation reader leaves out.

    Attributes:
        name: identifier in the file.
        reason: keyword such as `no_strand`.
        intervals: intervals that it covers; empty if the reference lacks its contig. On a circular
            contig an interval may end past the contig, as for a gene.
        gene: name of its gene; None if the file does not state it.
    """

    name: str
    reason: str
    intervals: tuple[Interval, ...] = ()
    gene: str | None = None


def report_left_out(path: Path, left_out: Sequence[LeftOut], purpose: str = "annotation") -> None:
    """Print one line to stderr that counts by reason the features left out, if there are any."""
    if left_out:
        say(f"{path}: {purpose}: left out {len(left_out):,}: {_by_reason(left_out)}")


def _by_reason(left_out: Sequence[LeftOut]) -> str:
    names: dict[str, list[str]] = defaultdict(list)
    for each in left_out:
        names[each.reason].append(each.name)
    return ", ".join(
        f"{len(of_reason):,} {reason} (e.g. {of_reason[0]})"
        for reason, of_reason in sorted(names.items())
    )


def on_contig(contig: str, start: int, end: int, length_bp: int) -> tuple[Interval, ...]:
    """Return the part of a span that lies on its contig, as a tuple of at most one interval."""
    first, last = max(0, start), min(end, length_bp)
    return (Interval(contig, first, last),) if first < last else ()


Span = tuple[int, int]
StrandedSpan = tuple[int, int, Strand]
_SLIP_BP = 2  # largest slip of a ribosome; introns are longer
# Names of mitochondrial contigs, which have other genetic codes, in Ensembl, UCSC, TAIR and
# WormBase.
MITOCHONDRIA = frozenset(
    {"MT", "Mt", "M", "chrM", "ChrM", "chrMT", "chrmt", "Mito", "chrMito", "MtDNA"}
    | {"mitochondrion", "mitochondrion_genome"}
)


@dataclass(frozen=True, slots=True)
class WholeCds:
    """CDS of a whole trans-spliced transcript; each `Transcript` is one part of it.

    Attributes:
        spans: spans of all parts with their strands, in reading order.
        before_bp: number of coding bases before this part.
        phase_bp: number of bases before the first whole codon; None if codons are unknown.
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
        exons: spans that do not overlap or touch.
        cds: coding spans including the stop codon; empty for a non-coding transcript. Two spans
            overlap if the ribosome slips back.
        incomplete: whether the annotation marks the CDS as partial, pseudo or exceptional, or the
            CDS begins within a codon.
        where: file and line or record of its first feature, for messages.
        phase_bp: bases of the CDS before its first whole codon, 0 to 2, along the strand (phase of
            GFF3, frame of GTF, `codon_start` of INSDC minus one). None if codons are unknown: the
            CDS is pseudo or exceptional, or its beginning is not annotated.
        has_start: whether the CDS begins with its start codon, according to the annotation.
        genetic_code: NCBI translation table, from the annotation or else from the user's choice;
            None without either.
        is_mitochondrial: whether the annotation or the reference gives its contig one of the names
            in `MITOCHONDRIA`.
        has_recoded_codon: whether the annotation states an amino acid that differs from the genetic
            code (`transl_except`), as for the stop codon of a selenocysteine.
        trans_spliced: CDS of all parts if this is one part of a trans-spliced transcript, else
            None. The parts are separate transcripts with the same identifier, all `incomplete`.
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
    def coding_parts(self) -> tuple[StrandedSpan, ...]:
        """Coding spans with their strands, in reading order; of all parts if trans-spliced."""
        if self.trans_spliced:
            return self.trans_spliced.spans
        spans = tuple((start, end, self.strand) for start, end in self.cds)
        return spans if self.strand == "+" else spans[::-1]

    @property
    def leftover_bp(self) -> int:
        """Number of bases after the last whole codon of the CDS, 0 to 2."""
        return (self.cds_length_bp - (self.phase_bp or 0)) % 3

    @property
    def introns(self) -> tuple[Span, ...]:
        """Spans between consecutive exons, ascending."""
        pairs = zip(self.exons, self.exons[1:], strict=False)
        return tuple((left[1], right[0]) for left, right in pairs)


@dataclass(frozen=True, slots=True)
class Gene:
    """A gene with its transcripts; `interval` covers the gene feature and all its exons.

    A gene that is trans-spliced or has several loci is one `Gene` per locus.
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
        path: annotation file.
        left_out: features that were not read as genes, with intervals and reasons.
        circular: contigs that the file marks as circular.
    """

    path: Path
    genes: tuple[Gene, ...]
    left_out: tuple[LeftOut, ...]
    circular: frozenset[str] = frozenset()

    def occupied(self) -> Iterator[Interval]:
        """Yield the intervals of genes and of features that were left out, which may be genes.

        On a circular contig, an interval may end past the contig.
        """
        yield from (gene.interval for gene in self.genes)
        yield from (interval for each in self.left_out for interval in each.intervals)


def spliced(reference: Reference, contig: str, spans: Iterable[Span], strand: Strand) -> str:
    """Return the joined bases of ascending spans, along the strand."""
    bases = "".join(reference.fetch_circular(contig, start, end) for start, end in spans)
    return bases if strand == "+" else reverse_complement(bases)


def coding_bases(reference: Reference, transcript: Transcript, part: Span) -> str:
    """Return a part of the CDS in upper case, such as (0, 3) for the first codon.

    For a part of a trans-spliced transcript, the whole CDS includes the other parts.
    """
    bases, before_bp = [], 0
    for start, end, strand in transcript.coding_parts:
        first, last = max(part[0] - before_bp, 0), min(part[1] - before_bp, end - start)
        if first < last:
            span = (start + first, start + last) if strand == "+" else (end - last, end - first)
            bases.append(spliced(reference, transcript.contig, [span], strand))
        before_bp += end - start
    return "".join(bases).upper()


def intergenic(annotation: Annotation, contig_lengths_bp: Mapping[str, int]) -> Iterator[Interval]:
    """Yield the intervals between genes, contig by contig, in order.

    Features that the reader left out count as genes.

    Args:
        annotation: genes may overlap, on either strand.
        contig_lengths_bp: contigs and their lengths.
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
    """Yield an interval, in two parts if it spans the origin of its circular contig.

    Positions on a circular contig may go up to twice its length.
    """
    before_bp = interval.start // length_bp * length_bp  # whole turns
    start, end = interval.start - before_bp, interval.end - before_bp
    yield Interval(interval.contig, start, min(end, length_bp))
    if end > length_bp:
        yield Interval(interval.contig, 0, min(end - length_bp, length_bp))


def exons_of(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Sort spans, and join spans that overlap, touch, or are as close as a ribosome can slip."""
    return _joined(spans, lambda left, right: right[0] <= left[1] + _SLIP_BP)


def coding_spans(spans: Iterable[Span], *, slips: bool = False) -> tuple[Span, ...]:
    """Sort spans, and join spans that touch or overlap, such as a CDS and its stop codon.

    Spans that overlap by one or two bases are not joined, because a ribosome that slips back reads
    those bases twice. With `slips`, for a CDS with marked slippage, overlapping spans stay apart.
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
    """Number spans of a circular contig in ascending order, across the origin if that is shorter.

    If the widest gap between spans is wider than the gap across the origin, the numbering begins
    after that gap and continues past the end of the contig.
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


def moved_into(spans: tuple[Span, ...], interval: Interval, length_bp: int) -> tuple[Span, ...]:
    """Move spans of a circular contig by its length, if that puts them inside an interval."""
    if spans and interval.end > length_bp and spans[0][0] < interval.start:
        moved = tuple((start + length_bp, end + length_bp) for start, end in spans)
        if moved[-1][1] <= interval.end:
            return moved
    return spans


_PREFIX = re.compile("gene:|transcript:|gene-|rna-|cds-")


def bare_identifier(identifier: str) -> str:
    """Return an identifier without the prefix that Ensembl, NCBI or the readers here add."""
    prefix = _PREFIX.match(identifier)
    return identifier[prefix.end() :] if prefix else identifier


_SHOWN = 5


def find_gene(annotation: Annotation, name: str) -> Gene:
    """Return the gene with this identifier or name, or with a transcript of this identifier.

    Identifiers have no prefix, such as the `gene:` of Ensembl.

    Raises:
        TypedError: the gene does not exist; the message lists similar names.
        GenomeError: there are several such genes; the message lists their places.
    """
    name = as_utf8(name)
    matches = [gene for gene in annotation.genes if gene.gene_id == name]
    matches = matches or [gene for gene in annotation.genes if gene.name == name]
    matches = matches or [
        gene for gene in annotation.genes if any(t.transcript_id == name for t in gene.transcripts)
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        places = [f"{gene.gene_id} at {gene.interval.to_region()}" for gene in matches[:_SHOWN]]
        raise GenomeError(
            f"gene '{name}': {annotation.path} has {len(matches)} of that name: "
            f"{', '.join(places)}; give an identifier, or a region"
        )
    names = [text for gene in annotation.genes for text in (gene.gene_id, gene.name)]
    near = near_names(name, names)
    hint = f"near names: {', '.join(near)}" if near else "no name is near it; is it the assembly's?"
    raise TypedError(f"gene '{name}': is not in {annotation.path}; {hint}", name, 0, name, near)


def near_names(name: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return up to five names with the most similar spelling, ignoring case."""
    known = {text.casefold(): text for text in names}
    return tuple(known[text] for text in get_close_matches(name.casefold(), known, _SHOWN))
