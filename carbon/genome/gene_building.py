"""Build transcripts and genes from the gathered features of a GFF3, GTF or BED."""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from carbon.genome.gene_tables import (
    NAMES,
    GeneTables,
    are_two_loci,
    at_loci,
    by_own_lines,
    genes_apart,
    is_transcript_kind,
    key_of,
    shown,
)
from carbon.genome.genes import (
    Gene,
    LeftOut,
    Span,
    Transcript,
    coding_spans,
    exons_of,
    moved_into,
    unrolled,
)
from carbon.genome.gff import Feature, is_pseudo
from carbon.genome.interval import Interval, Strand
from carbon.genome.transcripts import Ordered, Parts, first_coding, parts_of, reading_order, role_of

_STRANDS = frozenset("+-")
_SEEN_ELSEWHERE = "seen elsewhere"  # not counted as left out


class _Unread(NamedTuple):
    """Parts that do not form a transcript, the keys of their parent and gene, and the reason."""

    parent: str
    gene: str
    reason: str
    parts: Sequence[Parts]


class GeneBuilder:
    """Joins parts to transcripts and transcripts to genes, and leaves out the rest."""

    def __init__(self, tables: GeneTables) -> None:
        """Take complete tables, to whose `left_out` skipped features are added."""
        self._tables = tables
        self._built: set[str] = set()  # keys of genes
        self._strands: dict[str, set[str]] = defaultdict(set)  # strands of transcripts, by gene
        self._reach: dict[tuple[str, str], list[Span]] = defaultdict(list)  # spans of their lines
        self._lost: list[LeftOut] = []  # genes outside of the reference

    def genes(self) -> list[Gene]:
        """Return all genes, in order of contig and start."""
        self._tables.join_utrs()
        waiting: list[_Unread] = []
        by_gene: dict[tuple[str, str], list[Transcript]] = defaultdict(list)
        with_parts: set[str] = set()
        for parent, by_strand in self._tables.parts.items():
            own = self._tables.lines(parent)
            for node, parts in by_own_lines(by_strand, own or self._tables.nodes.get(parent, [])):
                gene, reason = self._gene_of(parent, node, parts)
                with_parts.add(gene)
                transcripts = [] if reason else list(self._transcripts(parent, gene, node, parts))
                for transcript in transcripts:
                    by_gene[gene, transcript.strand].append(transcript)
                    self._strands[gene].add(transcript.strand)
                for line in own if transcripts and parent != gene else []:
                    self._reach[gene, line.strand].append((line.start, line.end))
                if not transcripts and reason != _SEEN_ELSEWHERE:
                    waiting.append(_Unread(parent, gene, reason or "trans_splicing", parts))
        read = {key for key, _ in by_gene}
        for key, lines in self._tables.nodes.items():
            # A single line belongs to the gene that was read, even if its exons are on the other
            # strand.
            is_more = len(lines) > 1 if key in read else key not in with_parts
            if is_more and self._tables.is_gene(lines):
                for strand in _STRANDS.intersection(line.strand for line in lines):
                    by_gene.setdefault((key, strand), [])
        genes = [gene for key, each in by_gene.items() for gene in self._genes(*key, each)]
        self._leave_out_unread(waiting)
        self._tables.left_out += self._lost
        self._leave_out_nodes(with_parts, by_gene)
        return sorted(genes, key=_place)

    def _gene_of(
        self, parent: str, node: Feature | None, parts: Sequence[Parts]
    ) -> tuple[str, str]:
        """Return the key of the gene of a transcript, and a reason if it cannot be read."""
        if node is None:
            is_known = parent.partition("\t")[0] in self._tables.contigs_of
            return "", "parent_on_another_contig" if is_known else "parent_not_in_file"
        if "derives_from" in node.attributes and not node.is_gtf:
            # A protein, which some files name as a second parent of the CDS.
            of = self._tables.parts.get(key_of(node.attributes["derives_from"], node.contig), {})
            cds = {span for each in of.values() for span in each.cds}
            inside = all(span in cds for each in parts for span in each.cds)
            return "", _SEEN_ELSEWHERE if inside else "parent_is_a_protein"
        gene = self._tables.above(node)
        if node.kind == "miRNA" and node.parents and gene != key_of(node.parents[0], node.contig):
            return gene, "mature_mirna"  # cut out of the transcript above
        return gene, self._why_unread(node, gene, parts)

    def _why_unread(self, node: Feature, gene: str, parts: Sequence[Parts]) -> str:
        if any(each.strand not in _STRANDS for each in parts):
            return "no_strand"
        if all(each.has_utrs_only for each in parts):
            return "utr_without_cds"
        for each in parts:
            each.marks.see(node, self._tables.contig_lengths_bp[each.contig])
            for line in (node, *self._tables.nodes.get(gene, ())):
                each.marks.see_gene(line, is_coding=bool(each.cds))
        spans = [line.span for each in parts for line in each.lines]
        return self._why_outside(parts[0].contig, spans)

    def _why_outside(self, contig: str, spans: list[Span]) -> str:
        length_bp = self._tables.contig_lengths_bp[contig]
        inside = all(start >= 0 and end <= length_bp for start, end in spans)
        return "" if inside or not self._tables.is_cut else "outside_of_the_sequence"

    def _transcripts(
        self, parent: str, gene: str, node: Feature | None, parts: Sequence[Parts]
    ) -> Iterator[Transcript]:
        """Yield the transcripts of a parent: one in all, per locus, or per protein."""
        above = self._tables.lines(gene)
        is_marked = any(each.marks.trans_spliced for each in parts)
        if is_marked and len(self._tables.contigs_of[parent.partition("\t")[0]]) > 1:
            return  # its parts cannot be put together
        own = [] if node is None or role_of(node.kind) else [node]
        if is_marked or (len(parts) > 1 and not are_two_loci(parts, [*own, *above])):
            transcripts = self._trans_spliced(parent, parts, above)
            if transcripts or len(parts) > 1 or len(above) > 1:
                yield from transcripts
                return
        for each in parts:
            for locus in at_loci(each, own, above):
                proteins = locus.each_protein() if gene == parent else [(None, locus)]
                for name, protein in proteins:
                    yield self._transcript(parent, protein, name)

    def _trans_spliced(
        self, parent: str, parts: Sequence[Parts], gene_lines: Sequence[Feature]
    ) -> list[Transcript]:
        """Return the parts of a trans-spliced transcript; empty if their order is unknown."""
        exons = reading_order(parts, gene_lines)
        length_bp = self._tables.contig_lengths_bp[parts[0].contig]
        if not exons:
            return []
        cds = [Ordered(*span, each.strand) for each in parts for span in each.cds]
        first = first_coding(exons, cds) or exons[0]
        own = next(each for each in parts if each.strand == first.strand)
        phase_bp = own.marks.first_phase_bp(
            ((first.start, first.end),) if cds else (), first.stranded[2], length_bp
        )
        template = replace(
            self._transcript(parent, own, None),
            phase_bp=phase_bp,
            has_start=own.marks.has_start and not phase_bp,
        )
        transcripts = parts_of(template, exons, cds)
        return transcripts if len(transcripts) > 1 else []

    def _transcript(self, parent: str, parts: Parts, name: str | None) -> Transcript:
        length_bp = self._tables.contig_lengths_bp[parts.contig]
        exons, cds = parts.exons, parts.cds
        if parts.contig in self._tables.circular:
            # Exons and CDS may be numbered from different sides of the origin.
            exons = list(unrolled(parts.spans("exon") or exons, length_bp))
            cds = list(unrolled(cds, length_bp))
        strand: Strand = "+" if parts.strand == "+" else "-"
        coding = coding_spans(cds, slips=parts.marks.slips)
        phase_bp = parts.marks.phase_bp(coding, strand, length_bp)
        return Transcript(
            transcript_id=shown(name or parent),
            contig=parts.contig,
            strand=strand,
            exons=exons_of(exons),
            cds=coding,
            incomplete=parts.marks.incomplete or phase_bp != 0,
            where=parts.where,
            phase_bp=phase_bp,
            has_start=parts.marks.has_start and not phase_bp,
            genetic_code=parts.marks.genetic_code,
            has_recoded_codon=parts.marks.has_recoded_codon,
            is_mitochondrial=parts.contig in self._tables.mitochondria,
        )

    def _genes(self, key: str, strand: str, transcripts: list[Transcript]) -> Iterator[Gene]:
        """Yield the genes of one key and strand, one per locus."""
        lines = self._tables.lines(key)
        here = [line for line in lines if self._is_of(line, key, strand, len(lines))]
        contig = transcripts[0].contig if transcripts else here[0].contig
        if contig in self._tables.circular and here:
            transcripts = [self._moved(here[0], transcript) for transcript in transcripts]
        node = next(iter(here or lines or self._tables.nodes.get(key, [])), None)
        for own_lines, own in genes_apart(here, transcripts):
            spans = [(line.start, line.end) for line in own_lines]
            spans += [span for transcript in own for span in transcript.exons]
            spans += self._reach_beyond(spans, key, strand, contig)
            if reason := self._why_outside(contig, spans):
                covered = [(contig, *span) for span in spans]
                self._lost.append(
                    self._tables.as_left_out(
                        shown(key), reason, own_lines, covered, self._tables.gene_name(key)
                    )
                )
            else:
                self._built.add(key)
                own_node = own_lines[0] if own_lines else node
                yield _gene(key, own_node, contig, strand, spans, own)

    def _is_of(self, line: Feature, key: str, strand: str, num_lines: int) -> bool:
        """Return whether a line of a gene belongs to its transcripts on a strand.

        A line without a strand belongs to both. An only line also belongs to transcripts on the
        other strand, because its bases must not count as intergenic.
        """
        if line.strand == strand or line.strand not in _STRANDS:
            return True
        return num_lines == 1 and line.strand not in self._strands[key]

    def _reach_beyond(
        self, spans: Sequence[Span], key: str, strand: str, contig: str
    ) -> list[Span]:
        """Return transcript lines that overlap a gene and may extend beyond it and its exons."""
        if contig in self._tables.circular:  # they may be numbered from either side of the origin
            return []
        first, last = min(start for start, _ in spans), max(end for _, end in spans)
        return [span for span in self._reach[key, strand] if span[0] < last and first < span[1]]

    def _moved(self, node: Feature, transcript: Transcript) -> Transcript:
        """Move a transcript into its gene, if the gene spans the origin."""
        length_bp = self._tables.contig_lengths_bp[node.contig]
        whole = Interval(node.contig, node.start, node.end)
        exons = moved_into(transcript.exons, whole, length_bp)
        cds = moved_into(transcript.cds, whole, length_bp)
        if (exons, cds) == (transcript.exons, transcript.cds):
            return transcript
        return replace(transcript, exons=exons, cds=cds)

    def _leave_out_unread(self, unread: Iterable[_Unread]) -> None:
        """Leave out transcripts, with the lines of the gene if the gene has no other transcript."""
        for parent, gene, reason, parts in unread:
            is_lost = gene not in self._built
            lines = (self._tables.lines(gene) or self._tables.lines(parent)) if is_lost else []
            covered = [(each.contig, *span) for each in parts for span in _covered(each, reason)]
            stated = next((each.gene for each in parts if each.gene), None)
            name = self._tables.gene_name(gene) or stated
            record = self._tables.as_left_out(shown(parent), reason, lines, covered, name)
            self._tables.left_out.append(record)

    def _leave_out_nodes(
        self, with_parts: Container[str], by_gene: Container[tuple[str, str]]
    ) -> None:
        """Leave out genes without a strand, and transcripts with neither exons nor a gene."""
        for key, lines in self._tables.nodes.items():
            reason, lost = "", lines
            is_more = len(lines) > 1 if key in self._built else key not in with_parts
            if is_more and self._tables.is_gene(lines):
                reason, lost = "no_strand", [x for x in lines if (key, x.strand) not in by_gene]
            elif key not in with_parts and key not in self._tables.parts and self._is_alone(lines):
                reason = "transcript_without_exons"
            if reason and lost:
                name = self._tables.gene_name(key)
                record = self._tables.as_left_out(shown(key), reason, lost, gene=name)
                self._tables.left_out.append(record)

    def _is_alone(self, lines: Sequence[Feature]) -> bool:
        """Return whether lines belong to a transcript that lies outside of its gene."""
        if not lines or not is_transcript_kind(lines[0].kind):
            return False
        genes = self._tables.nodes.get(self._tables.above(lines[0]), [])
        if genes is lines:
            return True
        return not all(any(g.start <= x.start and x.end <= g.end for g in genes) for x in lines)


def _covered(parts: Parts, reason: str) -> list[Span]:
    """Return the spans of parts that are left out, including the introns between them.

    Introns of trans-spliced parts are excluded, because other genes may lie between the parts.
    """
    if reason == "trans_splicing":
        return [line.span for line in parts.lines]
    return [parts.hull]


def _gene(
    key: str,
    node: Feature | None,
    contig: str,
    strand: str,
    spans: list[Span],
    transcripts: list[Transcript],
) -> Gene:
    attributes = node.attributes if node else {}
    gene_id = shown(key)
    return Gene(
        gene_id=gene_id,
        name=next((attributes[n] for n in NAMES if n in attributes), gene_id),
        biotype=_biotype(attributes, node, transcripts),
        interval=Interval(contig, min(s for s, _ in spans), max(e for _, e in spans)),
        strand="+" if strand == "+" else "-",
        transcripts=tuple(sorted(transcripts, key=lambda t: t.transcript_id)),
    )


def _biotype(
    attributes: Mapping[str, str], node: Feature | None, transcripts: list[Transcript]
) -> str:
    for name in ("gene_biotype", "gene_type", "biotype"):
        if name in attributes:
            return attributes[name]
    if node is not None and ("pseudo" in node.kind or is_pseudo(attributes)):
        return "pseudogene"
    coding = any(transcript.cds for transcript in transcripts)
    return "protein_coding" if coding else node.kind if node and not node.is_gtf else "ncRNA"


def _place(gene: Gene) -> tuple[str, int, int, str]:
    return gene.interval.contig, gene.interval.start, gene.interval.end, gene.gene_id
