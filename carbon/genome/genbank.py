"""GenBank flat files: sequence and genes from one file, parsed by Biopython.

Format: the NCBI GenBank flat file and the INSDC feature table (version 11).
"""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from carbon.errors import GenomeError
from carbon.files import why_no_file
from carbon.genome.cds_marks import is_recoded
from carbon.genome.genes import (
    MITOCHONDRIA,
    Annotation,
    Gene,
    Span,
    Transcript,
    beside,
    coding_spans,
    exons_of,
)
from carbon.genome.genetic_codes import table_stated
from carbon.genome.interval import Interval, Strand
from carbon.genome.streams import BROKEN_GZIP, open_text

if TYPE_CHECKING:
    from Bio.SeqFeature import SeqFeature
    from Bio.SeqRecord import SeqRecord

_RNA_KINDS = {"mRNA", "tRNA", "rRNA", "ncRNA", "tmRNA", "misc_RNA", "precursor_RNA"}
_FASTA_LINE_BP = 80


@dataclass(frozen=True, slots=True)
class GenBank:
    """What a GenBank file holds; its sequences are in the FASTA it was unpacked to.

    Attributes:
        annotation: genes of all records.
        organism: of the first record, or empty.
        taxonomy: its lineage from the root, or empty.
    """

    annotation: Annotation
    organism: str
    taxonomy: tuple[str, ...]


def unpack_genbank(path: str | Path, fasta: Path) -> GenBank:
    """Read a GenBank file, plain or gzip, and write its sequences to `fasta`.

    Contigs take the records' versioned accessions. A feature whose place cannot be told exactly, or
    that is read from both strands, is left out with its reason.

    Raises:
        GenomeError: the file is absent or malformed, a record has no sequence of nucleotides, or
            two records have one name.
    """
    path = Path(path)
    if not path.is_file():
        raise GenomeError(f"{path}: {why_no_file(path)}; give a GenBank flat file, plain or gzip")
    genes: list[Gene] = []
    dropped: list[tuple[str, str]] = []
    circular: set[str] = set()
    contigs: set[str] = set()
    organism = ""
    taxonomy: tuple[str, ...] = ()
    with fasta.open("w", encoding="ascii") as sink:
        for number, record in enumerate(_records(path), start=1):
            contig = _name(record)
            where = f"{path} record {number} ({contig})"
            bases = _bases(record, where)
            if contig in contigs:
                raise GenomeError(f"{where}: stands twice; keep one")
            contigs.add(contig)
            _write_contig(sink, contig, bases)
            if record.annotations.get("topology") == "circular":
                circular.add(contig)
            genes += _Reader(record, where, dropped).genes()
            organism = organism or str(record.annotations.get("organism", ""))
            taxonomy = taxonomy or tuple(map(str, record.annotations.get("taxonomy", ())))  # type: ignore[arg-type]
    if not contigs:
        raise GenomeError(f"{path}: has no record that begins with LOCUS; is this GenBank?")
    genes.sort(key=lambda gene: (gene.interval, gene.gene_id))
    annotation = Annotation(path, tuple(genes), tuple(dropped), frozenset(circular))
    return GenBank(annotation, organism, taxonomy)


def is_genbank(path: str | Path) -> bool:
    """Tell whether a file, plain or gzip, begins as a GenBank flat file does."""
    try:
        with open_text(Path(path), errors="replace") as lines:
            return any(line.startswith("LOCUS ") for line, _ in zip(lines, range(20), strict=False))
    except BROKEN_GZIP:
        return False


class _CountedLines:
    """The handle that Biopython reads, which remembers the line."""

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
            # Biopython warns of what it mends, and of what cannot be mended: a cut sequence.
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
    """Return the versioned accession, or the name of the LOCUS line where there is none."""
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
    return bases.upper().replace("U", "T")


def _write_contig(sink: IO[str], name: str, bases: str) -> None:
    sink.write(f">{name}\n")
    for at in range(0, len(bases), _FASTA_LINE_BP):
        sink.write(bases[at : at + _FASTA_LINE_BP] + "\n")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a feature lies.

    Attributes:
        spans: ascending.
        strand: that it is read from.
        incomplete: it goes on beyond an end, or has a part whose place is not exact (`<`, `>`).
        begins_before: it goes on beyond the end that is read first.
        has_gaps: it is not exact in between.
    """

    spans: tuple[Span, ...]
    strand: Strand
    incomplete: bool
    begins_before: bool
    has_gaps: bool

    @property
    def start(self) -> int:
        return self.spans[0][0]

    @property
    def end(self) -> int:
        return self.spans[-1][1]

    def moved(self, spans: tuple[Span, ...]) -> _Place:
        """Return the same feature elsewhere."""
        return replace(self, spans=spans)


_Member = tuple[Any, _Place]  # a feature of Biopython, and where it lies


class _Reader:
    """The features of one record, and the genes that follow from them."""

    def __init__(self, record: SeqRecord, where: str, dropped: list[tuple[str, str]]) -> None:
        self._contig = _name(record)
        self._length_bp = len(record)
        self._circular = record.annotations.get("topology") == "circular"
        self._features = record.features
        self._where = where
        self._dropped = dropped

    def genes(self) -> list[Gene]:
        """Join features that name one locus on one strand to a gene."""
        of_locus: dict[tuple[str, Strand], list[_Member]] = defaultdict(list)
        for feature in self._features:
            if feature.type not in _RNA_KINDS | {"gene", "CDS"}:
                continue
            locus = _locus(feature)
            place = self._place(feature)
            if isinstance(place, str):
                self._dropped.append((locus, place))
                continue
            of_locus[locus, place.strand].append((feature, place))
        return [
            self._gene(key, [m for m in members if m[0].type == "gene"], members)
            for key, found in of_locus.items()
            for members in self._apart(found)
        ]

    def _apart(self, found: list[_Member]) -> Iterator[list[_Member]]:
        """Part what has one name and lies in several places, as two genes of one tRNA do."""
        over = next((p for f, p in found if f.type == "gene" and p.end > self._length_bp), None)
        if over:  # a gene over the origin: its parts may be numbered from either side of it
            whole = Interval(self._contig, over.start, over.end)
            found = [(f, p.moved(beside(p.spans, whole, self._length_bp))) for f, p in found]
        group: list[_Member] = []
        end = -1
        for member in sorted(found, key=lambda member: member[1].start):
            if group and member[1].start >= end:
                yield group
                group = []
            group.append(member)
            end = max(end, member[1].end) if len(group) > 1 else member[1].end
        yield group

    def _place(self, feature: SeqFeature) -> _Place | str:
        """Return where a feature lies, or why that cannot be told."""
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
        if len(strands) > 1 or "trans_splicing" in feature.qualifiers:
            return "trans_splicing"
        if strands - {1, -1}:
            return "no_strand"
        ascending = parts if strands == {1} else parts[::-1]
        spans: list[Span] = []
        turn_bp = 0
        for part in ascending:
            start, end = int(part.start), int(part.end)
            if not 0 <= start < end <= self._length_bp:
                return "outside_of_the_sequence"
            if spans and start + turn_bp < spans[-1][0]:
                if not self._circular or turn_bp:
                    return "parts_out_of_order"
                turn_bp = self._length_bp
            spans.append((start + turn_bp, end + turn_bp))
        ends = [end for part in ascending for end in (part.start, part.end)]
        exact = [isinstance(end, ExactPosition) for end in ends]
        strand: Strand = "+" if strands == {1} else "-"
        begins_before = not exact[0 if strand == "+" else -1]
        return _Place(tuple(spans), strand, not all(exact), begins_before, not all(exact[1:-1]))

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
        for rna, place in rnas:
            mine = next((c for c in waiting if _is_inside(c[1], place)), None)
            if mine:
                waiting.remove(mine)
            name = rna.qualifiers.get("transcript_id", [locus])[0]
            transcripts.append(self._transcript(name, place, mine))
        for feature, place in waiting:
            name = feature.qualifiers.get("protein_id", [locus])[0] if len(coding) > 1 else locus
            transcripts.append(self._transcript(name, place, (feature, place)))
        features = [feature for feature, _ in [*nodes, *rnas, *coding]]
        ends = [(place.start, place.end) for _, place in members]
        interval = Interval(self._contig, min(s for s, _ in ends), max(e for _, e in ends))
        name = next((f.qualifiers["gene"][0] for f in features if "gene" in f.qualifiers), locus)
        numbered = sorted(transcripts, key=lambda t: t.transcript_id)
        return Gene(locus, name, _biotype(features), interval, strand, tuple(numbered))

    def _transcript(
        self,
        transcript_id: str,
        place: _Place,
        coding: _Member | None,
    ) -> Transcript:
        transcript = Transcript(
            transcript_id=transcript_id,
            contig=self._contig,
            strand=place.strand,
            exons=exons_of(place.spans),
            cds=(),
            incomplete=False,
            where=f"{self._where} {transcript_id}",
            is_mitochondrial=self._contig in MITOCHONDRIA,
        )
        return _with_cds(transcript, *coding) if coding else transcript


def _with_cds(transcript: Transcript, feature: SeqFeature, place: _Place) -> Transcript:
    qualifiers = feature.qualifiers
    exceptional = bool({"pseudo", "pseudogene", "exception"} & set(qualifiers)) or place.has_gaps
    # A stop codon that the tail of the messenger completes is not whole in the genome.
    partial = "partial" in qualifiers or "aa:TERM" in str(qualifiers.get("transl_except"))
    phase_bp = None if exceptional else _phase_bp(qualifiers, place.begins_before)
    return replace(
        transcript,
        cds=coding_spans(place.spans, slips="ribosomal_slippage" in qualifiers),
        incomplete=place.incomplete or exceptional or partial or bool(phase_bp),
        phase_bp=phase_bp,
        has_start=not (place.begins_before or phase_bp or "partial" in qualifiers),
        genetic_code=table_stated(qualifiers.get("transl_table", [""])[0], transcript.where),
        has_recoded_codon=is_recoded(str(qualifiers.get("transl_except"))),
    )


def _phase_bp(qualifiers: dict[str, list[str]], begins_before: bool) -> int | None:
    """Return the bases before the first whole codon, which `codon_start` counts from 1."""
    given = qualifiers.get("codon_start", [""])[0]
    if given in ("1", "2", "3"):
        return int(given) - 1
    return None if begins_before else 0


def _locus(feature: SeqFeature) -> str:
    names = ("locus_tag", "gene", "protein_id", "product", "label")
    named = (feature.qualifiers[name][0] for name in names if name in feature.qualifiers)
    return next(named, f"{feature.type} {feature.location}")


def _is_inside(coding: _Place, rna: _Place) -> bool:
    """Tell whether a CDS is spliced as an RNA is: each of its parts within the next exon."""
    first = next(
        (i for i, (a, b) in enumerate(rna.spans) if a <= coding.spans[0][0] < b), len(rna.spans)
    )
    exons = rna.spans[first : first + len(coding.spans)]
    if len(exons) < len(coding.spans):
        return False
    inside = all(a <= s and e <= b for (s, e), (a, b) in zip(coding.spans, exons, strict=True))
    # Where a CDS goes on in the next exon, both end at the same splice site.
    pairs = list(zip(coding.spans, exons, strict=True))
    ends = all(part[1] == exon[1] for part, exon in pairs[:-1])
    return inside and ends and all(part[0] == exon[0] for part, exon in pairs[1:])


def _biotype(features: list[SeqFeature]) -> str:
    qualifiers = {name for feature in features for name in feature.qualifiers}
    if qualifiers & {"pseudo", "pseudogene"}:
        return "pseudogene"
    kinds = [feature.type for feature in features]
    if "CDS" in kinds or "mRNA" in kinds:
        return "protein_coding"
    if "ncRNA" in kinds:
        return "ncRNA"
    return next((kind for kind in kinds if kind != "gene"), "gene")
