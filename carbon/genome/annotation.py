"""Genes and transcripts from GFF3, GTF and BED.

All are read into the same values, in whatever order their lines stand. A GTF leaves the stop codon
out of the CDS, so `stop_codon` features are joined to it.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from carbon.errors import GenomeError
from carbon.files import why_no_file
from carbon.genome.bed import is_bed, read_bed_features
from carbon.genome.cds_codes import with_genetic_code
from carbon.genome.cds_marks import CdsMarks
from carbon.genome.fasta import Reference
from carbon.genome.features import Feature, read_features
from carbon.genome.genes import (
    MITOCHONDRIA,
    Annotation,
    Gene,
    Span,
    Transcript,
    bare_identifier,
    beside,
    coding_spans,
    exons_of,
    unrolled,
)
from carbon.genome.interval import Interval, Strand

_PART_KINDS = {"exon", "pseudogenic_exon", "CDS", "stop_codon"}


def read_annotation(
    path: str | Path,
    reference: Reference,
    *,
    contig_names: Mapping[str, str] | None = None,
    offset_bp: int = 0,
    genetic_code: str | int | None = None,
) -> Annotation:
    """Read a GFF3, GTF or BED, plain or gzip, and check it against the reference.

    Args:
        path: the annotation; a BED is what ends in .bed, .bed.gz or .bed.bgz.
        reference: sequences of the same assembly.
        contig_names: what the annotation calls a contig, and what the reference does.
        offset_bp: where the reference begins in the coordinates of the annotation, if it is a part
            of a chromosome; genes outside of it are then left out.
        genetic_code: NCBI translation table of the CDS for which the file states none
            (`transl_table`), such as `4`, or `1,Mito=3` with contigs of the reference.

    Raises:
        GenomeError: the file is absent or malformed, shares no contig with the reference, or has a
            feature past the end of a contig that is not circular; or a translation table is not one
            of NCBI's.
    """
    path = Path(path)
    if not path.is_file():
        raise GenomeError(f"{path}: {why_no_file(path)}; give a GFF3, GTF or BED, plain or gzip")
    tables = _Tables(reference.contig_lengths_bp, cut=offset_bp != 0)
    absent = sorted(_gather(path, tables, contig_names or {}, offset_bp))
    if absent and not tables.num_added:
        raise GenomeError(f"{path}: {reference.explain_missing(absent)}")
    if outside := tables.first_outside():
        length_bp = reference.contig_lengths_bp[outside.contig]
        raise GenomeError(
            f"{outside.where}: {outside.kind} ends at {outside.end}, but contig "
            f"'{outside.contig}' of {reference.path} has {length_bp} bases; are both of the same "
            "assembly? A part of a chromosome needs annotation_offset_bp"
        )
    genes = tables.genes()
    if not genes:
        raise GenomeError(
            f"{path}: has no gene, exon or CDS on the contigs of {reference.path}; "
            f"{_why_no_gene(tables.dropped)}"
        )
    dropped = tables.dropped + [(contig, "contig_not_in_fasta") for contig in absent]
    found = Annotation(path, tuple(genes), tuple(dropped), frozenset(tables.circular))
    return with_genetic_code(found, genetic_code, reference.contig_lengths_bp)


def _gather(
    path: Path, tables: "_Tables", contig_names: Mapping[str, str], offset_bp: int
) -> set[str]:
    """Add the features of a file to the tables; return the contigs that the reference has not."""
    absent: set[str] = set()
    told: str | None = None  # what the line before calls its contig
    contig = ""  # what the reference does
    num_features = 0
    for feature in read_bed_features(path) if is_bed(path) else read_features(path):
        num_features += 1
        if feature.contig != told:
            told = feature.contig
            contig = contig_names.get(told, told)
            if not MITOCHONDRIA.isdisjoint((told, contig)):
                tables.mitochondria.add(contig)
            if contig not in tables.contig_lengths_bp:
                absent.add(contig)
        if contig in absent:
            continue
        if offset_bp or contig != told:
            start, end = feature.start - offset_bp, feature.end - offset_bp
            feature = feature._replace(contig=contig, start=start, end=end)
        tables.add(feature)
    if not num_features:
        raise GenomeError(f"{path}: has no feature; give a GFF3, GTF or BED with genes")
    return absent


def _why_no_gene(dropped: list[tuple[str, str]]) -> str:
    if not dropped:
        return "check its third column"
    name, reason = dropped[0]
    return f"'{name}' and {len(dropped) - 1} more are left out: {reason}"


@dataclass(slots=True)
class _Parts:
    """Exons and CDS that name one parent."""

    contig: str
    where: str
    contigs: set[str] = field(default_factory=set)
    strands: set[str] = field(default_factory=set)
    exons: list[Span] = field(default_factory=list)
    cds_by_id: dict[str, list[Span]] = field(default_factory=lambda: defaultdict(list))
    stop_codon: list[Span] = field(default_factory=list)
    marks: CdsMarks = field(default_factory=CdsMarks)
    slips: bool = False

    @property
    def cds(self) -> list[Span]:
        """Coding spans whatever they call themselves."""
        if len(self.cds_by_id) == 1:
            return list(*self.cds_by_id.values())
        return [span for spans in self.cds_by_id.values() for span in spans]

    def each_protein(self) -> Iterator[tuple[str | None, "_Parts"]]:
        """Yield the parts by CDS where several CDS of a gene overlap: its proteins.

        Where CDS with names of their own lie apart, they are the pieces of one.
        """
        if len(self.cds_by_id) < 2:
            yield None, self
            return
        whole = [(min(spans), max(spans), name) for name, spans in self.cds_by_id.items()]
        whole.sort()
        apart = all(left[1][1] <= right[0][0] for left, right in itertools.pairwise(whole))
        if apart or self.exons:
            yield None, self
            return
        for _, _, name in whole:
            yield name, replace(self, cds_by_id={name: self.cds_by_id[name]})


class _Tables:
    """Features gathered by identifier, and the genes that follow from them."""

    def __init__(self, contig_lengths_bp: Mapping[str, int], *, cut: bool) -> None:
        self.dropped: list[tuple[str, str]] = []
        self.num_added = 0
        self.circular: set[str] = set()
        self.mitochondria: set[str] = set()
        self.contig_lengths_bp = contig_lengths_bp
        self._cut = cut  # the reference is a part of what the annotation describes
        self._outside: list[Feature] = []  # the first on each contig
        self._nodes: dict[str, Feature] = {}
        self._parts: dict[str, _Parts] = {}

    def add(self, feature: Feature) -> None:
        self.num_added += 1
        attributes, kind = feature.attributes, feature.kind
        if attributes.get("Is_circular") == "true":
            self.circular.add(feature.contig)
        if feature.end > self.contig_lengths_bp[feature.contig] and not any(
            known.contig == feature.contig for known in self._outside
        ):
            self._outside.append(feature)
        if kind in _PART_KINDS:
            for parent in self._parents_of_part(feature):
                self._add_part(parent, feature)
        elif feature.is_gtf and kind in {"gene", "transcript"}:
            if key := attributes.get(f"{kind}_id"):
                self._nodes.setdefault(self._gtf_key(feature, kind, key), feature)
        elif "ID" in attributes:
            self._nodes.setdefault(attributes["ID"], feature)

    def first_outside(self) -> Feature | None:
        """Return a feature that ends past its contig for no reason that is known."""
        if self._cut:
            return None
        return next((f for f in self._outside if f.contig not in self.circular), None)

    @staticmethod
    def _gtf_key(feature: Feature, kind: str, identifier: str) -> str:
        """Tell apart what a GTF names alike: on X and Y, or `unknown_transcript_1` of all genes."""
        gene_id = feature.attributes.get("gene_id", "") if kind == "transcript" else ""
        return f"{kind}:{identifier}\t{feature.contig}\t{gene_id}"

    def _parents_of_part(self, feature: Feature) -> list[str]:
        if not feature.is_gtf:
            return feature.parents or [feature.identifier]
        transcript_id = feature.attributes.get("transcript_id")
        if not transcript_id:
            raise GenomeError(f"{feature.where}: a GTF {feature.kind} needs a transcript_id")
        return [self._gtf_key(feature, "transcript", transcript_id)]

    def _add_part(self, parent: str, feature: Feature) -> None:
        parts = self._parts.get(parent)
        if parts is None:
            parts = self._parts[parent] = _Parts(feature.contig, feature.where)
        parts.contigs.add(feature.contig)
        parts.strands.add(feature.strand)
        span = (feature.start, feature.end)
        if feature.kind == "CDS":
            parts.cds_by_id[feature.attributes.get("ID", "")].append(span)
        else:
            (parts.stop_codon if feature.kind == "stop_codon" else parts.exons).append(span)
        parts.marks.see(feature, self.contig_lengths_bp[feature.contig])
        parts.slips |= "slippage" in feature.raw_attributes
        if feature.is_gtf or not feature.parents:
            # A GTF need not have transcript lines, and a CDS of a bacterium may stand alone.
            self._nodes.setdefault(parent, feature)

    def genes(self) -> list[Gene]:
        """Join parts to transcripts and transcripts to genes, in order of contig and start."""
        # Some annotations use one gene_id on two contigs (X and Y) or strands: these are two genes.
        by_gene: dict[tuple[str, str, str], list[Transcript]] = defaultdict(list)
        with_parts: set[str | None] = set()
        for parent, parts in self._parts.items():
            gene = self._gene_key(parent)
            with_parts.add(gene)
            if reason := self._why_no_transcript(parts):
                self.dropped.append((_shown(parent), reason))
            elif gene:
                proteins = parts.each_protein() if gene == parent else [(None, parts)]
                for name, protein in proteins:
                    transcript = self._transcript(parent, protein, name)
                    by_gene[gene, transcript.contig, transcript.strand].append(transcript)
        for key, node in self._nodes.items():
            if key not in with_parts and self._is_gene_alone(node):
                by_gene[key, node.contig, node.strand] = []
        found = (self._gene(*key, transcripts) for key, transcripts in by_gene.items())
        genes = [gene for gene in found if gene]
        return sorted(genes, key=_place)

    def _why_no_transcript(self, parts: _Parts) -> str | None:
        if parts.strands & {".", "?"}:
            return "no_strand"
        if len(parts.contigs) > 1 or len(parts.strands) > 1 or parts.strands - {"+", "-"}:
            return "trans_splicing"
        spans = parts.exons + parts.cds + parts.stop_codon
        return self._why_outside(parts.contig, spans)

    def _why_outside(self, contig: str, spans: list[Span]) -> str | None:
        length_bp = self.contig_lengths_bp[contig]
        inside = all(start >= 0 and end <= length_bp for start, end in spans)
        return None if inside or not self._cut else "outside_of_the_sequence"

    def _is_gene_alone(self, node: Feature) -> bool:
        """Tell whether a feature is a gene of which the file gives no exon or CDS."""
        is_gene = node.kind == "gene" or node.kind.endswith(("_gene", "pseudogene"))
        return is_gene and node.strand in {"+", "-"} and not node.parents

    def _gene_key(self, parent: str) -> str | None:
        """Return the identifier of the gene above a transcript, or None if it is no transcript."""
        node = self._nodes.get(parent)
        if node is None:
            self.dropped.append((parent, "parent_not_in_file"))
            return None
        if node.is_gtf:
            gene_id = node.attributes.get("gene_id")
            return self._gtf_key(node, "gene", gene_id) if gene_id else parent
        if "Derives_from" in node.attributes:
            return None  # a protein, which some name as a parent of the CDS beside the transcript
        above = node.parents[0] if node.parents else parent
        over = self._nodes.get(above)
        if over is None or not over.parents or above == parent:
            return above
        if node.kind == "miRNA":
            self.dropped.append((_shown(parent), "mature_mirna"))  # cut out of the transcript above
            return None
        return over.parents[0]

    def _transcript(self, parent: str, parts: _Parts, name: str | None) -> Transcript:
        length_bp = self.contig_lengths_bp[parts.contig]
        if parent in self._nodes:
            parts.marks.see(self._nodes[parent], length_bp)
        stops = [
            (start, end)
            for start, end in parts.stop_codon
            if not any(a <= start and end <= b for a, b in parts.cds)
        ]
        cds = parts.cds + stops
        exons = parts.exons or cds
        if parts.contig in self.circular:
            exons, cds = list(unrolled(exons, length_bp)), list(unrolled(cds, length_bp))
        strand: Strand = "+" if parts.strands == {"+"} else "-"
        coding = coding_spans(cds, slips=parts.slips)
        phase_bp = parts.marks.phase_bp(coding, strand, length_bp)
        return Transcript(
            transcript_id=_shown(name or parent),
            contig=parts.contig,
            strand=strand,
            exons=exons_of(exons),
            cds=coding,
            incomplete=parts.marks.incomplete or bool(phase_bp),
            where=parts.where,
            phase_bp=phase_bp,
            has_start=parts.marks.has_start and not phase_bp,
            genetic_code=parts.marks.genetic_code,
            has_recoded_codon=parts.marks.has_recoded_codon,
            is_mitochondrial=parts.contig in self.mitochondria,
        )

    def _gene(
        self, key: str, contig: str, strand: str, transcripts: list[Transcript]
    ) -> Gene | None:
        node = self._nodes.get(key)
        attributes = node.attributes if node else {}
        spans = []
        if node and (node.contig, node.strand) == (contig, strand):
            spans = [(node.start, node.end)]
            if contig in self.circular:
                transcripts = [self._beside(node, transcript) for transcript in transcripts]
        spans += [span for transcript in transcripts for span in transcript.exons]
        gene_id = _shown(key)
        if reason := self._why_outside(contig, spans):
            self.dropped.append((gene_id, reason))
            return None
        return Gene(
            gene_id=gene_id,
            name=next((attributes[n] for n in _NAMES if n in attributes), gene_id),
            biotype=_biotype(attributes, node, transcripts),
            interval=Interval(contig, min(s for s, _ in spans), max(e for _, e in spans)),
            strand="+" if strand == "+" else "-",
            transcripts=tuple(sorted(transcripts, key=lambda t: t.transcript_id)),
        )

    def _beside(self, node: Feature, transcript: Transcript) -> Transcript:
        """Bring a transcript to its gene, where that goes over the origin."""
        length_bp = self.contig_lengths_bp[node.contig]
        whole = Interval(node.contig, node.start, node.end)
        exons = beside(transcript.exons, whole, length_bp)
        cds = beside(transcript.cds, whole, length_bp)
        if (exons, cds) == (transcript.exons, transcript.cds):
            return transcript
        return replace(transcript, exons=exons, cds=cds)


def _place(gene: Gene) -> tuple[str, int, int, str]:
    return gene.interval.contig, gene.interval.start, gene.interval.end, gene.gene_id


_NAMES = ("gene_name", "Name", "gene", "gene_id", "ID")


def _shown(key: str) -> str:
    return bare_identifier(key.partition("\t")[0])


def _biotype(
    attributes: Mapping[str, str], node: Feature | None, transcripts: list[Transcript]
) -> str:
    for name in ("gene_biotype", "gene_type", "biotype"):
        if name in attributes:
            return attributes[name]
    if node is not None and "pseudo" in node.kind:
        return "pseudogene"
    coding = any(transcript.cds for transcript in transcripts)
    return "protein_coding" if coding else node.kind if node and not node.is_gtf else "ncRNA"
