"""Genes and transcripts from GFF3 and GTF.

Both formats are read into the same values, in whatever order their lines stand. Coordinates become
0-based and half-open here and nowhere else. Formats: GFF3 1.26 (Sequence Ontology) and GTF 2.2;
a GTF leaves the stop codon out of the CDS, so `stop_codon` features are joined to it.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from carbon.errors import GenomeError
from carbon.genome.alphabet import reverse_complement
from carbon.genome.fasta import Reference
from carbon.genome.interval import Interval, Strand
from carbon.genome.streams import BROKEN_GZIP, open_text

Span = tuple[int, int]
# What an annotation itself calls incomplete or exceptional: Ensembl tags, NCBI attributes.
_INCOMPLETE = re.compile(r'cds_start_NF|cds_end_NF|(partial|pseudo)[= ]"?true|exception[= ]')


@dataclass(frozen=True, slots=True)
class Transcript:
    """One transcript: exons and CDS as spans `(start, end)` of the contig, ascending.

    Attributes:
        cds: coding spans with the stop codon; empty for a non-coding transcript.
        incomplete: the annotation marks its CDS as partial, pseudo or exceptional.
        where: file and line of its first feature, for messages.
    """

    transcript_id: str
    contig: str
    strand: Strand
    exons: tuple[Span, ...]
    cds: tuple[Span, ...]
    incomplete: bool
    where: str

    @property
    def cds_length_bp(self) -> int:
        """Number of coding bases, stop codon included."""
        return sum(end - start for start, end in self.cds)

    @property
    def introns(self) -> tuple[Span, ...]:
        """Spans between consecutive exons, ascending."""
        pairs = zip(self.exons, self.exons[1:], strict=False)
        return tuple((left[1], right[0]) for left, right in pairs)


@dataclass(frozen=True, slots=True)
class Gene:
    """A gene with its transcripts; `interval` covers the gene feature and all its exons."""

    gene_id: str
    name: str
    biotype: str
    interval: Interval
    strand: Strand
    transcripts: tuple[Transcript, ...]


@dataclass(frozen=True, slots=True)
class Annotation:
    """All genes in order of contig and start, and what was left out: `(identifier, reason)`."""

    path: Path
    genes: tuple[Gene, ...]
    dropped: tuple[tuple[str, str], ...]


def spliced(reference: Reference, contig: str, spans: tuple[Span, ...], strand: Strand) -> str:
    """Return the bases of ascending spans, joined and read along the strand."""
    bases = "".join(reference.fetch(Interval(contig, start, end)) for start, end in spans)
    return bases if strand == "+" else reverse_complement(bases)


def read_annotation(path: str | Path, reference: Reference) -> Annotation:
    """Read a GFF3 or GTF, plain or gzip, and check it against the reference.

    Raises:
        GenomeError: the file is absent or malformed, shares no contig with the reference, or a
            feature ends past its contig.
    """
    path = Path(path)
    if not path.is_file():
        raise GenomeError(f"{path}: no such file; give a GFF3 or GTF, plain or gzip")
    tables = _Tables()
    circular: set[str] = set()
    absent: set[str] = set()
    num_features = 0
    for feature in _features(path):
        num_features += 1
        if feature.attributes.get("Is_circular") == "true":
            circular.add(feature.contig)
        length_bp = reference.contig_lengths_bp.get(feature.contig)
        if length_bp is None:
            absent.add(feature.contig)
        elif feature.end <= length_bp:
            tables.add(feature)
        elif feature.contig in circular:
            tables.dropped.append((feature.identifier, "crosses_origin"))
        else:
            raise GenomeError(
                f"{feature.where}: {feature.kind} ends at {feature.end}, but contig "
                f"'{feature.contig}' of {reference.path} has {length_bp} bases; "
                "are both of the same assembly?"
            )
    if num_features == 0:
        raise GenomeError(f"{path}: has no feature; give a GFF3 or GTF with genes")
    if len(absent) and not tables.num_added:
        raise GenomeError(f"{path}: {reference.explain_missing(sorted(absent))}")
    genes = tables.genes()
    if not genes:
        raise GenomeError(f"{path}: has no gene with exons or CDS; check its third column")
    dropped = tables.dropped + [(contig, "contig_not_in_fasta") for contig in sorted(absent)]
    return Annotation(path, tuple(genes), tuple(dropped))


class _Feature(NamedTuple):
    contig: str
    kind: str
    start: int
    end: int
    strand: str
    attributes: Mapping[str, str]
    is_gtf: bool
    raw_attributes: str
    where: str

    @property
    def identifier(self) -> str:
        names = ("transcript_id", "gene_id") if self.is_gtf else ("ID", "Parent", "Name")
        return next((self.attributes[n] for n in names if n in self.attributes), self.where)

    @property
    def parents(self) -> list[str]:
        return [unquote(p) for p in self.attributes.get("Parent", "").split(",") if p]


def _features(path: Path) -> Iterator[_Feature]:
    number = 0
    try:
        with open_text(path, errors="replace") as lines:
            for number, line in enumerate(lines, start=1):
                if line.startswith("##FASTA") or line.startswith(">"):
                    return
                if line.strip() and not line.startswith("#"):
                    yield _parse_line(line.rstrip("\r\n"), f"{path} line {number}")
    except BROKEN_GZIP as error:
        raise GenomeError(f"{path}: broken after line {number} ({error}); fetch it again") from None


def _parse_line(line: str, where: str) -> _Feature:
    columns = line.split("\t")
    if len(columns) != 9:
        raise GenomeError(f"{where}: {len(columns)} columns, GFF3 and GTF have 9, split by tabs")
    contig, _, kind, first, last, _, strand, _, text = columns
    if not (first.isdigit() and last.isdigit() and 1 <= int(first) <= int(last)):
        raise GenomeError(f"{where}: need 1 <= start <= end, got '{first}' and '{last}'")
    is_gtf = _GTF_ATTRIBUTE.match(text) is not None
    attributes = _gtf_attributes(text) if is_gtf else _gff3_attributes(text)
    contig = contig if is_gtf else unquote(contig)
    start, end = int(first) - 1, int(last)
    return _Feature(contig, kind, start, end, strand, attributes, is_gtf, text, where)


_GTF_ATTRIBUTE = re.compile(r'\s*(\w+) +(?:"([^"]*)"|([^";]+))\s*(?:;|$)')


def _gtf_attributes(text: str) -> dict[str, str]:
    return {m[1]: m[2] if m[2] is not None else m[3] for m in _GTF_ATTRIBUTE.finditer(text)}


def _gff3_attributes(text: str) -> dict[str, str]:
    pairs = (item.partition("=") for item in text.split(";") if "=" in item)
    # A comma separates values and an escaped one does not, so Parent is split before unquoting.
    return {
        key.strip(): value if key.strip() == "Parent" else unquote(value) for key, _, value in pairs
    }


@dataclass(slots=True)
class _Parts:
    """Exons and CDS that name one parent."""

    contig: str
    where: str
    strands: set[str] = field(default_factory=set)
    exons: list[Span] = field(default_factory=list)
    cds: list[Span] = field(default_factory=list)
    incomplete: bool = False


class _Tables:
    """Features gathered by identifier, and the genes that follow from them."""

    def __init__(self) -> None:
        self.dropped: list[tuple[str, str]] = []
        self.num_added = 0
        self._nodes: dict[str, _Feature] = {}
        self._parts: dict[str, _Parts] = {}

    def add(self, feature: _Feature) -> None:
        self.num_added += 1
        if feature.kind in {"exon", "CDS", "stop_codon"}:
            for parent in self._parents_of_part(feature):
                self._add_part(parent, feature)
        elif feature.is_gtf and feature.kind in {"gene", "transcript"}:
            if key := feature.attributes.get(f"{feature.kind}_id"):
                self._nodes.setdefault(f"{feature.kind}:{key}", feature)
        elif "ID" in feature.attributes:
            self._nodes.setdefault(feature.attributes["ID"], feature)

    @staticmethod
    def _parents_of_part(feature: _Feature) -> list[str]:
        if not feature.is_gtf:
            return feature.parents or [feature.identifier]
        transcript_id = feature.attributes.get("transcript_id")
        if not transcript_id:
            raise GenomeError(f"{feature.where}: a GTF {feature.kind} needs a transcript_id")
        return [f"transcript:{transcript_id}"]

    def _add_part(self, parent: str, feature: _Feature) -> None:
        parts = self._parts.setdefault(parent, _Parts(feature.contig, feature.where))
        parts.strands.add(feature.strand)
        if feature.contig != parts.contig:
            parts.strands.add(feature.contig)
        spans = parts.exons if feature.kind == "exon" else parts.cds
        spans.append((feature.start, feature.end))
        parts.incomplete |= _INCOMPLETE.search(feature.raw_attributes) is not None
        if feature.is_gtf or not feature.parents:
            # A GTF need not have transcript lines, and a CDS of a bacterium may stand alone.
            self._nodes.setdefault(parent, feature)

    def genes(self) -> list[Gene]:
        """Join parts to transcripts and transcripts to genes, in order of contig and start."""
        # Some annotations use one gene_id on two contigs (X and Y) or strands: these are two genes.
        by_gene: dict[tuple[str, str, str], list[Transcript]] = defaultdict(list)
        for parent, parts in self._parts.items():
            if parts.strands - {"+", "-"} or len(parts.strands) != 1:
                reason = "no_strand" if parts.strands == {"."} else "trans_splicing"
                self.dropped.append((parent, reason))
            elif gene := self._gene_key(parent):
                transcript = self._transcript(parent, parts)
                by_gene[gene, transcript.contig, transcript.strand].append(transcript)
        genes = [self._gene(key, transcripts) for (key, _, _), transcripts in by_gene.items()]
        return sorted(genes, key=lambda gene: (gene.interval, gene.gene_id))

    def _gene_key(self, parent: str) -> str | None:
        """Return the identifier of the gene above a transcript, or None if it is no transcript."""
        node = self._nodes.get(parent)
        if node is None:
            self.dropped.append((parent, "parent_not_in_file"))
            return None
        if node.is_gtf:
            gene_id = node.attributes.get("gene_id")
            return f"gene:{gene_id}" if gene_id else parent
        if "Derives_from" in node.attributes:
            return None  # a protein, which some name as a parent of the CDS beside the transcript
        return node.parents[0] if node.parents else parent

    def _transcript(self, parent: str, parts: _Parts) -> Transcript:
        exons = _merged(parts.exons or parts.cds)
        marked = parts.incomplete or (
            parent in self._nodes
            and _INCOMPLETE.search(self._nodes[parent].raw_attributes) is not None
        )
        return Transcript(
            transcript_id=_bare(parent),
            contig=parts.contig,
            strand="+" if parts.strands == {"+"} else "-",
            exons=exons,
            cds=_merged(parts.cds),
            incomplete=marked,
            where=parts.where,
        )

    def _gene(self, key: str, transcripts: list[Transcript]) -> Gene:
        node = self._nodes.get(key)
        attributes = node.attributes if node else {}
        first = transcripts[0]
        spans = [span for transcript in transcripts for span in transcript.exons]
        if node and (node.contig, node.strand) == (first.contig, first.strand):
            spans.append((node.start, node.end))
        gene_id = _bare(key)
        return Gene(
            gene_id=gene_id,
            name=next((attributes[n] for n in _NAMES if n in attributes), gene_id),
            biotype=_biotype(attributes, node, transcripts),
            interval=Interval(first.contig, min(s for s, _ in spans), max(e for _, e in spans)),
            strand=first.strand,
            transcripts=tuple(sorted(transcripts, key=lambda t: t.transcript_id)),
        )


_NAMES = ("gene_name", "Name", "gene", "gene_id", "ID")


def _bare(identifier: str) -> str:
    """Drop the prefix that Ensembl and this module put before an identifier."""
    return re.sub(r"^(gene|transcript):", "", identifier)


def _biotype(
    attributes: Mapping[str, str], node: _Feature | None, transcripts: list[Transcript]
) -> str:
    for name in ("gene_biotype", "gene_type", "biotype"):
        if name in attributes:
            return attributes[name]
    if node is not None and "pseudo" in node.kind:
        return "pseudogene"
    coding = any(transcript.cds for transcript in transcripts)
    return "protein_coding" if coding else node.kind if node and not node.is_gtf else "ncRNA"


def _merged(spans: list[Span]) -> tuple[Span, ...]:
    """Sort spans and join those that touch or overlap: a CDS and its stop codon, mostly."""
    result: list[Span] = []
    for start, end in sorted(set(spans)):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return tuple(result)
