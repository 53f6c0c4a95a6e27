"""Read sequences and genes from GenBank flat files, parsed by Biopython.

Format: NCBI GenBank flat file and INSDC feature table (version 11).
"""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carbon.errors import GenomeError
from carbon.genome import gff
from carbon.genome.alphabet import as_dna, table_stated
from carbon.genome.gene_tables import clusters
from carbon.genome.genes import (
    MITOCHONDRIA,
    Annotation,
    Gene,
    LeftOut,
    Span,
    Transcript,
    coding_spans,
    exons_of,
    moved_into,
    on_contig,
    report_left_out,
)
from carbon.genome.interval import Interval, Strand
from carbon.genome.sequences import BROKEN_GZIP, fasta_text, open_text
from carbon.genome.transcripts import Ordered, numbered_by_gene, parts_of, role_of
from carbon.io.files import why_no_file

if TYPE_CHECKING:
    from Bio.SeqFeature import SeqFeature
    from Bio.SeqRecord import SeqRecord


@dataclass(frozen=True, slots=True)
class Location:
    """Location of a feature.

    Attributes:
        spans: spans of its parts, ascending.
        strand: strand of the feature, or of the first part of a trans-spliced feature.
        incomplete: whether it extends beyond an end, or a position is not exact (`<`, `>`).
        begins_before: whether it extends beyond its 5' end.
        has_gaps: whether a position between its ends is not exact.
        trans_spliced: parts of a trans-spliced feature in reading order; empty for other features.
    """

    spans: tuple[Span, ...]
    strand: Strand
    incomplete: bool
    begins_before: bool
    has_gaps: bool
    trans_spliced: tuple[Ordered, ...] = ()

    @property
    def start(self) -> int:
        """Start of the first span, 0-based."""
        return self.spans[0][0]

    @property
    def end(self) -> int:
        """End of the last span; it may lie past the origin of a circular contig."""
        return self.spans[-1][1]

    def moved(self, spans: tuple[Span, ...]) -> Location:
        """Return the location with other spans."""
        return replace(self, spans=spans)


def location_of(
    feature: SeqFeature, length_bp: int, *, is_circular: bool, is_trans_spliced: bool
) -> Location | str:
    """Return the location of a feature, or the reason why it is unknown.

    Args:
        feature: feature as parsed by Biopython.
        length_bp: length of its record.
        is_circular: whether the record is circular.
        is_trans_spliced: whether the gene is marked as trans-spliced.
    """
    from Bio.SeqFeature import UnknownPosition

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
        return _location_of_parts(parts, length_bp)
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
    return Location(tuple(spans), "+" if strands == {1} else "-", *_inexact_ends(parts))


def _location_of_parts(parts: list[Any], length_bp: int) -> Location | str:
    """Return the location of a trans-spliced feature, whose parts are in reading order."""
    spans = [
        Ordered(int(part.start), int(part.end), "+" if part.strand == 1 else "-") for part in parts
    ]
    if not all(0 <= span.start < span.end <= length_bp for span in spans):
        return "outside_of_the_sequence"
    strand: Strand = "+" if spans[0].strand == "+" else "-"
    ascending = tuple(sorted((span.start, span.end) for span in spans))
    return Location(ascending, strand, *_inexact_ends(parts), tuple(spans))


def _inexact_ends(parts: list[Any]) -> tuple[bool, bool, bool]:
    """Return `incomplete`, `begins_before` and `has_gaps` of a location.

    Args:
        parts: parts in reading order.
    """
    from Bio.SeqFeature import ExactPosition

    exact = [
        isinstance(end, ExactPosition)
        for part in parts
        for end in ((part.start, part.end) if part.strand == 1 else (part.end, part.start))
    ]
    return not all(exact), not exact[0], not all(exact[1:-1])


def known_parts(feature: SeqFeature, contig: str, length_bp: int) -> tuple[Interval, ...]:
    """Return the intervals that the parts of a feature cover, without parts of unknown position."""
    from Bio.SeqFeature import UnknownPosition

    if feature.location is None:
        return ()
    intervals = {
        interval
        for part in feature.location.parts
        if not (part.ref or any(isinstance(p, UnknownPosition) for p in (part.start, part.end)))
        for interval in on_contig(contig, int(part.start), int(part.end), length_bp)
    }
    return tuple(sorted(intervals))


_RNA_KINDS = {"mRNA", "tRNA", "rRNA", "ncRNA", "tmRNA", "misc_RNA", "precursor_RNA"}
_Member = tuple[Any, Location]  # a feature as parsed by Biopython, and its location


class GenBankGenes:
    """Builds genes from the features of one record."""

    def __init__(
        self,
        record: SeqRecord,
        contig: str,
        where: str,
        left_out: list[LeftOut],
        is_mitochondrial: bool,
    ) -> None:
        """Take a record as parsed by Biopython, and a list to which skipped features are added."""
        self._contig, self._is_mitochondrial = contig, is_mitochondrial
        self._length_bp = len(record)
        self._circular = record.annotations.get("topology") == "circular"
        self._features = record.features
        self._where = where
        self._left_out = left_out
        self._utrs = self._utrs_of_loci()

    def genes(self) -> list[Gene]:
        """Return a gene for each group of features with the same locus and strand."""
        of_locus: dict[tuple[str, Strand], list[_Member]] = defaultdict(list)
        trans_spliced: dict[str, list[_Member]] = defaultdict(list)
        features = [f for f in self._features if f.type in _RNA_KINDS | {"gene", "CDS"}]
        marked = {_locus(f) for f in features if gff.is_trans_spliced(_attributes(f))}
        for feature in features:
            locus = _locus(feature)
            place = location_of(
                feature,
                self._length_bp,
                is_circular=self._circular,
                is_trans_spliced=locus in marked,
            )
            if isinstance(place, str):
                self._leave_out(feature, locus, place)
            elif place.trans_spliced:
                trans_spliced[locus].append((feature, place))
            else:
                of_locus[locus, place.strand].append((feature, place))
        genes = [
            self._gene(key, [m for m in members if m[0].type == "gene"], members)
            for key, of_one_name in of_locus.items()
            for members in self._apart(of_one_name)
        ]
        for locus, members in trans_spliced.items():
            genes += self._trans_spliced(locus, members)
        return genes

    def _utrs_of_loci(self) -> dict[tuple[str, Strand], list[Span]]:
        """Return the UTRs of each locus and strand."""
        utrs: dict[tuple[str, Strand], list[Span]] = defaultdict(list)
        for feature in self._features:
            if role_of(feature.type) == "utr":
                place = location_of(
                    feature, self._length_bp, is_circular=self._circular, is_trans_spliced=False
                )
                if not isinstance(place, str) and not place.trans_spliced:
                    utrs[_locus(feature), place.strand] += place.spans
        return utrs

    def _leave_out(self, feature: SeqFeature, locus: str, reason: str) -> None:
        intervals = known_parts(feature, self._contig, self._length_bp)
        name = feature.qualifiers.get("gene", [locus])[0]
        self._left_out.append(LeftOut(locus, reason, intervals, name))

    def _trans_spliced(self, locus: str, members: list[_Member]) -> Iterator[Gene]:
        """Yield a gene for each part of a trans-spliced gene, or leave the whole gene out."""
        lines = [span for f, place in members if f.type == "gene" for span in place.trans_spliced]
        is_pseudo = any(gff.is_pseudo(_attributes(f)) for f, _ in members if f.type == "gene")
        rnas = [member for member in members if member[0].type in _RNA_KINDS]
        coding = [member for member in members if member[0].type == "CDS"]
        transcripts: list[Transcript] = []
        for number, (feature, place) in enumerate(coding or rnas):
            spliced_as = rnas[number][1] if len(coding) == len(rnas) else place
            exons = numbered_by_gene(spliced_as.trans_spliced, lines)
            name = feature.qualifiers.get("protein_id", [locus])[0] if len(coding) > 1 else locus
            template = self._transcript(
                name, place, (feature, place) if coding else None, is_pseudo
            )
            transcripts += parts_of(template, exons, place.trans_spliced if coding else ())
        if not transcripts and (coding or rnas):
            for feature, _ in members:
                self._leave_out(feature, locus, "trans_splicing")
            return
        yield from self._genes_of_parts(locus, [f for f, _ in members], lines, transcripts)

    def _genes_of_parts(
        self,
        locus: str,
        features: list[SeqFeature],
        lines: list[Ordered],
        transcripts: list[Transcript],
    ) -> Iterator[Gene]:
        strands: tuple[Strand, Strand] = ("+", "-")
        for strand in strands:
            places: list[tuple[int, int, Transcript | None]] = [
                *((line.start, line.end, None) for line in lines if line.strand == strand),
                *((t.exons[0][0], t.exons[-1][1], t) for t in transcripts if t.strand == strand),
            ]
            for group in clusters(places):
                start, end = min(s for s, _, _ in group), max(e for _, e, _ in group)
                yield Gene(
                    gene_id=locus,
                    name=_gene_name(features, locus),
                    biotype=_biotype(features),
                    interval=Interval(self._contig, start, end),
                    strand=strand,
                    transcripts=tuple(each for _, _, each in group if each),
                )

    def _apart(self, members: list[_Member]) -> Iterator[list[_Member]]:
        """Yield the features of a locus by place; two genes of the same tRNA may share a name."""
        over = next((p for f, p in members if f.type == "gene" and p.end > self._length_bp), None)
        if over:  # a gene over the origin: its parts may be numbered from either side of it
            whole = Interval(self._contig, over.start, over.end)
            members = [
                (f, p.moved(moved_into(p.spans, whole, self._length_bp))) for f, p in members
            ]
        group: list[_Member] = []
        end = -1
        for member in sorted(members, key=lambda member: member[1].start):
            if group and member[1].start >= end:
                yield group
                group = []
            group.append(member)
            end = max(end, member[1].end) if len(group) > 1 else member[1].end
        yield group

    def _gene(
        self,
        key: tuple[str, Strand],
        nodes: list[_Member],
        members: list[_Member],
    ) -> Gene:
        locus, strand = key
        rnas = [member for member in members if member[0].type in _RNA_KINDS]
        coding = [member for member in members if member[0].type == "CDS"]
        transcripts: list[Transcript] = []
        waiting = list(coding)
        is_pseudo = any(gff.is_pseudo(_attributes(feature)) for feature, _ in nodes)
        for rna, place in rnas:
            cds = next((c for c in waiting if _is_inside(c[1], place)), None)
            if cds:
                waiting.remove(cds)
            name = rna.qualifiers.get("transcript_id", [locus])[0]
            is_dead = is_pseudo or gff.is_pseudo(_attributes(rna))
            transcripts.append(self._transcript(name, place, cds, is_dead))
        for feature, place in waiting:
            name = feature.qualifiers.get("protein_id", [locus])[0] if len(coding) > 1 else locus
            exons = place if rnas or len(coding) > 1 else self._with_utrs(locus, place, members)
            transcripts.append(self._transcript(name, exons, (feature, place), is_pseudo))
        features = [feature for feature, _ in [*nodes, *rnas, *coding]]
        ends = [(place.start, place.end) for _, place in members]
        ends += [(each.exons[0][0], each.exons[-1][1]) for each in transcripts]
        interval = Interval(self._contig, min(s for s, _ in ends), max(e for _, e in ends))
        name = _gene_name(features, locus)
        numbered = sorted(transcripts, key=lambda t: t.transcript_id)
        return Gene(locus, name, _biotype(features), interval, strand, tuple(numbered))

    def _with_utrs(self, locus: str, place: Location, members: list[_Member]) -> Location:
        """Return the location of a CDS with the UTRs that lie inside its gene or touch it."""
        start, end = (f(p for _, m in members for p in (m.start, m.end)) for f in (min, max))
        utrs = self._utrs[locus, place.strand] if end <= self._length_bp else []
        own = (utr for utr in utrs if start <= utr[1] and utr[0] <= end)
        return place.moved(tuple(sorted({*place.spans, *own})))

    def _transcript(
        self,
        transcript_id: str,
        place: Location,
        coding: _Member | None,
        is_pseudo: bool,
    ) -> Transcript:
        transcript = Transcript(
            transcript_id=transcript_id,
            contig=self._contig,
            strand=place.strand,
            exons=exons_of(place.spans),
            cds=(),
            incomplete=False,
            where=f"{self._where} {transcript_id}",
            is_mitochondrial=self._is_mitochondrial,
        )
        return _with_cds(transcript, *coding, is_pseudo) if coding else transcript


def _with_cds(
    transcript: Transcript, feature: SeqFeature, place: Location, is_pseudo: bool
) -> Transcript:
    qualifiers, attributes = feature.qualifiers, _attributes(feature)
    exceptional = is_pseudo or gff.is_exceptional(attributes) or place.has_gaps
    is_partial = gff.is_set(attributes, "partial")
    partial = is_partial or gff.has_completed_stop(attributes)
    phase_bp = None if exceptional else _phase_bp(qualifiers, place.begins_before)
    return replace(
        transcript,
        cds=coding_spans(place.spans, slips=gff.slips(attributes)),
        incomplete=place.incomplete or exceptional or partial or bool(phase_bp),
        phase_bp=phase_bp,
        has_start=not (place.begins_before or phase_bp or is_partial),
        genetic_code=table_stated(qualifiers.get("transl_table", [""])[0], transcript.where),
        has_recoded_codon=gff.has_recoded_codon(attributes),
    )


def _attributes(feature: SeqFeature) -> dict[str, str]:
    """Return the qualifiers in the form of GFF3 attributes."""
    return {key.casefold(): ",".join(values) for key, values in feature.qualifiers.items()}


def _gene_name(features: list[SeqFeature], locus: str) -> str:
    return next((f.qualifiers["gene"][0] for f in features if "gene" in f.qualifiers), locus)


def _phase_bp(qualifiers: dict[str, list[str]], begins_before: bool) -> int | None:
    """Return the number of bases before the first whole codon, which is `codon_start` minus 1."""
    codon_start = qualifiers.get("codon_start", [""])[0]
    if codon_start in ("1", "2", "3"):
        return int(codon_start) - 1
    return None if begins_before else 0


def _locus(feature: SeqFeature) -> str:
    names = ("locus_tag", "gene", "protein_id", "product", "label")
    named = (feature.qualifiers[name][0] for name in names if name in feature.qualifiers)
    return next(named, f"{feature.type} {feature.location}")


def _is_inside(coding: Location, rna: Location) -> bool:
    """Return whether a CDS has the splice sites of an RNA, with each part in the next exon."""
    first = next(
        (i for i, (a, b) in enumerate(rna.spans) if a <= coding.spans[0][0] < b), len(rna.spans)
    )
    exons = rna.spans[first : first + len(coding.spans)]
    if len(exons) < len(coding.spans):
        return False
    inside = all(a <= s and e <= b for (s, e), (a, b) in zip(coding.spans, exons, strict=True))
    # A CDS that continues in the next exon ends at the same splice site as the exon.
    pairs = list(zip(coding.spans, exons, strict=True))
    ends = all(part[1] == exon[1] for part, exon in pairs[:-1])
    return inside and ends and all(part[0] == exon[0] for part, exon in pairs[1:])


def _biotype(features: list[SeqFeature]) -> str:
    if any(gff.is_pseudo(_attributes(feature)) for feature in features):
        return "pseudogene"
    kinds = [feature.type for feature in features]
    if "CDS" in kinds or "mRNA" in kinds:
        return "protein_coding"
    if "ncRNA" in kinds:
        return "ncRNA"
    return next((kind for kind in kinds if kind != "gene"), "gene")


_FASTA_LINE_BP = 80


@dataclass(frozen=True, slots=True)
class GenBank:
    """Annotation and source of a GenBank file, whose sequences were unpacked to a FASTA.

    Attributes:
        annotation: genes of all records.
        contig_lengths_bp: length of every record, in the order of the file.
        organism: organism of the first record that has one, or empty.
        taxonomy: lineage of the first record that has one, from the root, or empty.
    """

    annotation: Annotation
    contig_lengths_bp: Mapping[str, int]
    organism: str
    taxonomy: tuple[str, ...]


def unpack_genbank(
    path: str | Path, fasta: Path, contig_names: Mapping[str, str] | None = None
) -> GenBank:
    """Read a GenBank file, plain or gzip, and write its sequences to a FASTA.

    Contigs are named by the versioned accessions of the records. Features without an exact location
    are left out, and one line on stderr counts them by reason.

    Args:
        path: GenBank file.
        fasta: FASTA to write.
        contig_names: other names for contigs, by accession, such as the names in a reference.

    Raises:
        GenomeError: the file is missing or malformed, a record has no nucleotide sequence, or two
            records share a name.
    """
    path = Path(path)
    if not path.is_file():
        raise GenomeError(f"{path}: {why_no_file(path)}; give a GenBank flat file, plain or gzip")
    genes: list[Gene] = []
    left_out: list[LeftOut] = []
    circular: set[str] = set()
    lengths_bp: dict[str, int] = {}
    organism = ""
    taxonomy: tuple[str, ...] = ()
    with fasta.open("w", encoding="ascii") as sink:
        for number, record in enumerate(_records(path), start=1):
            name = _name(record)
            contig = (contig_names or {}).get(name, name)
            where = f"{path} record {number} ({name})"
            bases = _bases(record, where)
            if contig in lengths_bp:
                raise GenomeError(f"{where}: occurs twice; keep one")
            lengths_bp[contig] = len(bases)
            sink.write(fasta_text([(contig, bases)], _FASTA_LINE_BP))
            if record.annotations.get("topology") == "circular":
                circular.add(contig)
            is_mitochondrial = not MITOCHONDRIA.isdisjoint((name, contig))
            genes += GenBankGenes(record, contig, where, left_out, is_mitochondrial).genes()
            organism = organism or str(record.annotations.get("organism", ""))
            taxonomy = taxonomy or tuple(map(str, record.annotations.get("taxonomy", ())))  # type: ignore[arg-type]
    if not lengths_bp:
        raise GenomeError(f"{path}: has no record that begins with LOCUS; is this GenBank?")
    genes.sort(key=lambda gene: (gene.interval, gene.gene_id))
    report_left_out(path, left_out)
    annotation = Annotation(path, tuple(genes), tuple(left_out), frozenset(circular))
    return GenBank(annotation, lengths_bp, organism, taxonomy)


def is_genbank(path: str | Path) -> bool:
    """Return whether a file, plain or gzip, begins as a GenBank flat file does."""
    try:
        with open_text(Path(path), errors="replace") as lines:
            return any(line.startswith("LOCUS ") for line, _ in zip(lines, range(20), strict=False))
    except BROKEN_GZIP:
        return False


class _CountedLines:
    """Lines of a file as a handle for Biopython, with the number of the last line read."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self.number = 0

    def readline(self) -> str:
        self.number += 1
        return next(self._lines, "")

    def __iter__(self) -> Iterator[str]:
        return iter(self.readline, "")


def _records(path: Path) -> Iterator[SeqRecord]:
    from Bio.GenBank.Scanner import GenBankScanner

    with open_text(path, errors="replace") as lines:
        counted = _CountedLines(lines)
        scanner = GenBankScanner()  # type: ignore[no-untyped-call]
        records = scanner.parse_records(counted, do_features=True)  # type: ignore[no-untyped-call]
        try:
            # Biopython warns about faults that it repairs, and about truncated sequences.
            while True:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    record = next(records, None)
                if record is None:
                    return
                _check_length(caught, f"{path} line {counted.number} ({_name(record)})")
                yield record
        except BROKEN_GZIP as error:
            reason = f"broken after line {counted.number} ({error}); fetch it again"
            raise GenomeError(f"{path}: {reason}") from None
        except (ValueError, AssertionError, IndexError, KeyError, AttributeError) as error:
            message = " ".join(str(error).split()) or type(error).__name__
            raise GenomeError(
                f"{path} line {counted.number}: not GenBank: {message}; fetch the record again"
            ) from None


def _check_length(caught: list[warnings.WarningMessage], where: str) -> None:
    for warning in caught:
        match = re.match(r"Expected sequence length (\d+), found (\d+)", str(warning.message))
        if match and int(match[2]) < int(match[1]):
            raise GenomeError(
                f"{where}: LOCUS says {match[1]} bases, and {match[2]} are there; "
                "is the file cut off? Fetch it again"
            )


def _name(record: SeqRecord) -> str:
    """Return the versioned accession of a record, or else the name on its LOCUS line."""
    return str(record.name if record.id in (None, "", ".", "<unknown id>") else record.id)


def _bases(record: SeqRecord, where: str) -> str:
    from Bio.Seq import UndefinedSequenceError

    if record.annotations.get("molecule_type") == "protein" or "aa" in str(
        record.annotations.get("residue_type", "")
    ):
        raise GenomeError(f"{where}: is a protein; give records of DNA or RNA")
    try:
        bases = str(record.seq)
    except UndefinedSequenceError:
        bases = ""
    if not bases:
        raise GenomeError(f"{where}: has no sequence; fetch it with its ORIGIN (gbwithparts)")
    return as_dna(bases.upper())
