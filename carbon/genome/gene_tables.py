"""Features of an annotation gathered by identifier, and the genes that follow from them.

The contig is part of every key: one identifier on two contigs is that of two genes.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

from carbon.errors import GenomeError
from carbon.genome.features import Feature
from carbon.genome.gene_parts import Parts, Role, role_of
from carbon.genome.genes import (
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
from carbon.genome.left_out import LeftOut, on_contig
from carbon.genome.loci import are_two_loci, at_loci, by_own_lines, genes_apart, joined_over_origin
from carbon.genome.marks import is_pseudo, is_set
from carbon.genome.trans_splicing import Ordered, first_coding, parts_of, reading_order

_STRANDS = frozenset("+-")
_NAMES = ("gene_name", "name", "gene", "gene_id", "id")
# They stand for the whole sequence: one that is longer than the contig is of another assembly.
_LANDMARKS = frozenset({"region", "chromosome", "contig", "scaffold", "supercontig", "plasmid"})


_GTF_NODES = frozenset({"gene", "transcript"})
_SEEN_ELSEWHERE = "seen elsewhere"  # nothing is lost


class _Unread(NamedTuple):
    """Parts that become no transcript, the keys of their parent and gene, and the reason."""

    parent: str
    gene: str
    reason: str
    parts: Sequence[Parts]


class GeneTables:
    """Features gathered by identifier, and the genes that follow from them.

    Attributes:
        num_added: features so far.
        circular: contigs that a feature calls circular.
        mitochondria: contigs that are named as mitochondria are; the reader fills it.
        left_out: what is no gene for a reason; complete after `genes`.
    """

    def __init__(self, contig_lengths_bp: Mapping[str, int], *, cut: bool) -> None:
        self.num_added = 0
        self.circular: set[str] = set()
        self.mitochondria: set[str] = set()
        self.left_out: list[LeftOut] = []
        self.contig_lengths_bp = contig_lengths_bp
        self._cut = cut  # the reference is a part of what the annotation describes
        self._past_end: list[tuple[str, Feature]] = []  # each with its key
        self._nodes: dict[str, list[Feature]] = {}
        self._parts: dict[str, dict[str, Parts]] = {}  # by parent, then by strand
        self._utrs: dict[str, dict[str, Parts]] = {}  # likewise
        self._built: set[str] = set()  # keys of genes
        self._lost: list[LeftOut] = []  # genes that are not on the reference

    def add(self, feature: Feature) -> None:
        """Take in a feature of a contig of the reference."""
        self.num_added += 1
        if is_set(feature.attributes, "is_circular"):
            self.circular.add(feature.contig)
        key = ""
        if role := role_of(feature.kind):
            for key in self._parents_of_part(feature):
                self._add_part(key, role, feature)
        elif key := self._node_key(feature):
            self._nodes.setdefault(key, []).append(feature)
        elif feature.is_gtf and feature.kind in _GTF_NODES:
            self._leave_out(feature.identifier, "no_identifier", [feature])
        if feature.end > self.contig_lengths_bp[feature.contig] and not self._cut:
            self._past_end.append((key, feature))

    def _node_key(self, feature: Feature) -> str:
        attributes, kind = feature.attributes, feature.kind
        if feature.is_gtf:
            identifier = attributes.get(f"{kind}_id") if kind in _GTF_NODES else ""
            return _gtf_key(feature, kind, identifier) if identifier else ""
        identifier = attributes.get("id")
        if not identifier and "parent" not in attributes:
            is_known = _is_gene_kind(kind) or _is_transcript_kind(kind)
            identifier = feature.identifier if is_known else ""
        return _key(identifier, feature.contig) if identifier else ""

    def _parents_of_part(self, feature: Feature) -> list[str]:
        if not feature.is_gtf:
            above = feature.parents or [feature.identifier]
            return [_key(identifier, feature.contig) for identifier in above]
        transcript_id = feature.attributes.get("transcript_id")
        if not transcript_id:
            raise GenomeError(f"{feature.where}: a GTF {feature.kind} needs a transcript_id")
        return [_gtf_key(feature, "transcript", transcript_id)]

    def _add_part(self, parent: str, role: Role, feature: Feature) -> None:
        by_strand = (self._utrs if role == "utr" else self._parts).setdefault(parent, {})
        parts = by_strand.get(feature.strand)
        if parts is None:
            parts = Parts(feature.contig, feature.strand, feature.where, _stated_gene(feature))
            by_strand[feature.strand] = parts
        parts.add(role, feature, self.contig_lengths_bp[feature.contig])
        if (feature.is_gtf or not feature.parents) and parent not in self._nodes:
            # A GTF need not have transcript lines, and a CDS of a bacterium may stand alone.
            self._nodes[parent] = [feature]

    def first_past_end(self) -> Feature | None:
        """Return a feature that ends past its contig for no known reason, and that genes use.

        Any other that does is left out.
        """
        past_end = [(k, f) for k, f in self._past_end if f.contig not in self.circular]
        if not past_end:
            return None
        used = {*self._parts, *self._utrs}
        used |= {self._above(node) for parent in set(used) for node in self._nodes.get(parent, ())}
        for key, feature in past_end:
            whole = feature.kind.casefold() in _LANDMARKS and feature.start == 0
            if role_of(feature.kind) or _is_gene_kind(feature.kind) or key in used or whole:
                return feature
            if key:
                self._nodes[key] = [line for line in self._nodes[key] if line is not feature]
            self._leave_out(feature.identifier, "past_the_end_of_the_contig", [feature])
        return None

    def genes(self) -> list[Gene]:
        """Join parts to transcripts and transcripts to genes, in order of contig and start."""
        self._join_utrs()
        waiting: list[_Unread] = []
        by_gene: dict[tuple[str, str], list[Transcript]] = defaultdict(list)
        with_parts: set[str] = set()
        for parent, by_strand in self._parts.items():
            own = self._lines(parent)
            for node, parts in by_own_lines(by_strand, own or self._nodes.get(parent, [])):
                gene, reason = self._gene_of(parent, node, parts)
                with_parts.add(gene)
                found = [] if reason else list(self._transcripts(parent, gene, node, parts))
                for transcript in found:
                    by_gene[gene, transcript.strand].append(transcript)
                if not found and reason != _SEEN_ELSEWHERE:
                    waiting.append(_Unread(parent, gene, reason or "trans_splicing", parts))
        read = {key for key, _ in by_gene}
        for key, lines in self._nodes.items():
            if (key in read or key not in with_parts) and self._is_gene(lines):
                for strand in _STRANDS.intersection(line.strand for line in lines):
                    by_gene.setdefault((key, strand), [])
        genes = [gene for key, each in by_gene.items() for gene in self._genes(*key, each)]
        self._leave_out_unread(waiting)
        self.left_out += self._lost
        self._leave_out_nodes(with_parts, by_gene)
        return sorted(genes, key=_place)

    # Which gene a transcript is of, and whether it can be read.

    def _gene_of(
        self, parent: str, node: Feature | None, parts: Sequence[Parts]
    ) -> tuple[str, str]:
        """Return the key of the gene above a transcript, and why it cannot be read, if so."""
        if node is None:
            is_known = parent.partition("\t")[0] in self._contigs_of
            return "", "parent_on_another_contig" if is_known else "parent_not_in_file"
        if "derives_from" in node.attributes and not node.is_gtf:
            # A protein, which some name as a parent of the CDS beside the transcript.
            of = self._parts.get(_key(node.attributes["derives_from"], node.contig), {})
            cds = {span for each in of.values() for span in each.cds}
            inside = all(span in cds for each in parts for span in each.cds)
            return "", _SEEN_ELSEWHERE if inside else "parent_is_a_protein"
        gene = self._above(node)
        if node.kind == "miRNA" and node.parents and gene != _key(node.parents[0], node.contig):
            return gene, "mature_mirna"  # cut out of the transcript above
        return gene, self._why_unread(node, gene, parts)

    @cached_property
    def _contigs_of(self) -> dict[str, set[str]]:
        """Contigs by the identifiers that stand on them."""
        contigs: dict[str, set[str]] = defaultdict(set)
        for key, lines in self._nodes.items():
            contigs[key.partition("\t")[0]].update(line.contig for line in lines)
        return dict(contigs)

    def _above(self, node: Feature) -> str:
        """Return the key of the gene above a transcript, which may be its own."""
        if node.is_gtf:
            if gene_id := node.attributes.get("gene_id"):
                return _gtf_key(node, "gene", gene_id)
            return _gtf_key(node, "transcript", node.identifier)
        above = _parent_of(node)
        over = self._nodes.get(above)
        return _parent_of(over[0]) if over and node.parents and over[0].parents else above

    def _why_unread(self, node: Feature, gene: str, parts: Sequence[Parts]) -> str:
        if any(each.strand not in _STRANDS for each in parts):
            return "no_strand"
        if all(each.has_utrs_only for each in parts):
            return "utr_without_cds"
        for each in parts:
            each.marks.see(node, self.contig_lengths_bp[each.contig])
            for line in self._nodes.get(gene, ()):
                each.marks.see_gene(line)
        spans = [line.span for each in parts for line in each.lines]
        return self._why_outside(parts[0].contig, spans)

    def _why_outside(self, contig: str, spans: list[Span]) -> str:
        length_bp = self.contig_lengths_bp[contig]
        inside = all(start >= 0 and end <= length_bp for start, end in spans)
        return "" if inside or not self._cut else "outside_of_the_sequence"

    def _is_gene(self, lines: Sequence[Feature]) -> bool:
        """Tell whether a feature is a gene, which may have no exon or CDS."""
        if not lines or not _is_gene_kind(lines[0].kind):
            return False
        over = self._nodes.get(_parent_of(lines[0])) if lines[0].parents else None
        return not (over and _is_gene_kind(over[0].kind))

    def _join_utrs(self) -> None:
        """Join UTRs to the other parts of their parent, or of the one transcript below a gene."""
        below: dict[str, list[str]] = defaultdict(list)
        for parent in self._parts:
            if lines := self._nodes.get(parent):
                below[self._above(lines[0])].append(parent)
        for parent, utrs in self._utrs.items():
            own = [parent] if parent in self._parts else below[parent]
            transcripts = [self._parts[each] for each in own]
            if parent not in own and all(_are_in_exons(u, transcripts) for u in utrs.values()):
                continue  # the exons say as much
            into = transcripts[0] if len(transcripts) == 1 else self._parts.setdefault(parent, {})
            for strand, parts in utrs.items():
                into[strand].take(parts) if strand in into else into.update({strand: parts})
        self._utrs.clear()

    # Transcripts.

    def _transcripts(
        self, parent: str, gene: str, node: Feature | None, parts: Sequence[Parts]
    ) -> Iterator[Transcript]:
        """Yield the transcripts of a parent: one, or one at each locus or of each protein."""
        above = self._lines(gene)
        is_marked = any(each.marks.trans_spliced for each in parts)
        if is_marked and len(self._contigs_of[parent.partition("\t")[0]]) > 1:
            return  # its parts cannot be put together
        own = [] if node is None or role_of(node.kind) else [node]
        if is_marked or (len(parts) > 1 and not are_two_loci(parts, [*own, *above])):
            found = self._trans_spliced(parent, parts, above)
            if found or len(parts) > 1 or len(above) > 1:
                yield from found
                return
        for each in parts:
            for locus in at_loci(each, own, above):
                proteins = locus.each_protein() if gene == parent else [(None, locus)]
                for name, protein in proteins:
                    yield self._transcript(parent, protein, name)

    def _trans_spliced(
        self, parent: str, parts: Sequence[Parts], gene_lines: Sequence[Feature]
    ) -> list[Transcript]:
        """Return the parts of a trans-spliced transcript; nothing where their order is unknown."""
        exons = reading_order(parts, gene_lines)
        length_bp = self.contig_lengths_bp[parts[0].contig]
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
        found = parts_of(template, exons, cds)
        return found if len(found) > 1 else []

    def _transcript(self, parent: str, parts: Parts, name: str | None) -> Transcript:
        length_bp = self.contig_lengths_bp[parts.contig]
        exons, cds = parts.exons, parts.cds
        if parts.contig in self.circular:
            # The two may be numbered from different sides of the origin.
            exons = list(unrolled(parts.spans("exon") or exons, length_bp))
            cds = list(unrolled(cds, length_bp))
        strand: Strand = "+" if parts.strand == "+" else "-"
        coding = coding_spans(cds, slips=parts.marks.slips)
        phase_bp = parts.marks.phase_bp(coding, strand, length_bp)
        return Transcript(
            transcript_id=_shown(name or parent),
            contig=parts.contig,
            strand=strand,
            exons=exons_of(exons),
            cds=coding,
            incomplete=parts.marks.incomplete or phase_bp != 0,
            where=parts.where,
            phase_bp=phase_bp,
            has_start=parts.marks.has_start and not phase_bp,
            genetic_code=parts.marks.genetic_code,
            is_mitochondrial=parts.contig in self.mitochondria,
        )

    # Genes.

    def _lines(self, key: str) -> list[Feature]:
        """Return the lines of a gene or transcript itself, none of its parts."""
        lines = [line for line in self._nodes.get(key, ()) if not role_of(line.kind)]
        if lines and lines[0].contig in self.circular:
            return joined_over_origin(lines, self.contig_lengths_bp[lines[0].contig])
        return lines

    def _genes(self, key: str, strand: str, transcripts: list[Transcript]) -> Iterator[Gene]:
        """Yield a gene of one strand at each of its loci."""
        lines = self._lines(key)
        here = [line for line in lines if line.strand == strand]
        contig = transcripts[0].contig if transcripts else here[0].contig
        if contig in self.circular and here:
            transcripts = [self._beside(here[0], transcript) for transcript in transcripts]
        node = next(iter(here or lines or self._nodes.get(key, [])), None)
        for own_lines, own in genes_apart(here, transcripts):
            spans = [(line.start, line.end) for line in own_lines]
            spans += [span for transcript in own for span in transcript.exons]
            if reason := self._why_outside(contig, spans):
                covered = [(contig, *span) for span in spans]
                self._lost.append(
                    self._as_left_out(_shown(key), reason, own_lines, covered, self._gene_name(key))
                )
            else:
                self._built.add(key)
                own_node = own_lines[0] if own_lines else node
                yield _gene(key, own_node, contig, strand, spans, own)

    def _beside(self, node: Feature, transcript: Transcript) -> Transcript:
        """Bring a transcript to its gene, where that goes over the origin."""
        length_bp = self.contig_lengths_bp[node.contig]
        whole = Interval(node.contig, node.start, node.end)
        exons = beside(transcript.exons, whole, length_bp)
        cds = beside(transcript.cds, whole, length_bp)
        if (exons, cds) == (transcript.exons, transcript.cds):
            return transcript
        return replace(transcript, exons=exons, cds=cds)

    # What is left out.

    def _leave_out_unread(self, unread: Iterable[_Unread]) -> None:
        """Leave transcripts out; one without which its gene is lost takes the lines of that."""
        for parent, gene, reason, parts in unread:
            is_lost = gene not in self._built
            lines = (self._lines(gene) or self._lines(parent)) if is_lost else []
            covered = [(each.contig, *span) for each in parts for span in _covered(each, reason)]
            stated = next((each.gene for each in parts if each.gene), None)
            name = self._gene_name(gene) or stated
            self._leave_out(_shown(parent), reason, lines, covered, name)

    def _leave_out_nodes(
        self, with_parts: Container[str], by_gene: Container[tuple[str, str]]
    ) -> None:
        """Leave out genes without a strand, and transcripts without exons and gene."""
        for key, lines in self._nodes.items():
            reason, lost = "", lines
            if self._is_gene(lines) and (key in self._built or key not in with_parts):
                reason, lost = "no_strand", [x for x in lines if (key, x.strand) not in by_gene]
            elif key not in with_parts and key not in self._parts and self._is_alone(lines):
                reason = "transcript_without_exons"
            if reason and lost:
                self._leave_out(_shown(key), reason, lost, gene=self._gene_name(key))

    def _is_alone(self, lines: Sequence[Feature]) -> bool:
        """Tell whether lines are of a transcript below no gene of the file."""
        if not lines or not _is_transcript_kind(lines[0].kind):
            return False
        above = self._above(lines[0])
        return above not in self._nodes or self._nodes[above] is lines

    def _leave_out(self, *what: Any, **more: Any) -> None:
        self.left_out.append(self._as_left_out(*what, **more))

    def _as_left_out(
        self,
        name: str,
        reason: str,
        lines: Iterable[Feature],
        covered: Iterable[tuple[str, int, int]] = (),
        gene: str | None = None,
    ) -> LeftOut:
        places = [*((line.contig, line.start, line.end) for line in lines), *covered]
        intervals = {
            interval
            for contig, start, end in places
            for interval in on_contig(contig, start, end, self._reach_bp(contig))
        }
        return LeftOut(name, reason, tuple(sorted(intervals)), gene)

    def _reach_bp(self, contig: str) -> int:
        """Return how far features of a contig go: once more around a circle."""
        return self.contig_lengths_bp[contig] * (2 if contig in self.circular else 1)

    def _gene_name(self, key: str) -> str | None:
        for line in self._nodes.get(key, ()):
            return next((line.attributes[n] for n in _NAMES if line.attributes.get(n)), None)
        return None


def _covered(parts: Parts, reason: str) -> list[Span]:
    """Return the bases of parts that are left out, with the introns between them.

    Parts that are trans-spliced may lie far apart, with other genes between.
    """
    if reason == "trans_splicing":
        return [line.span for line in parts.lines]
    return [parts.hull]


def _are_in_exons(utrs: Parts, transcripts: Sequence[Mapping[str, Parts]]) -> bool:
    """Tell whether UTRs lie in exons that the file gives."""
    exons = [
        span
        for by_strand in transcripts
        if utrs.strand in by_strand
        for span in by_strand[utrs.strand].spans("exon")
    ]
    return all(any(a <= s and e <= b for a, b in exons) for s, e in utrs.spans("utr"))


def _gene(
    key: str,
    node: Feature | None,
    contig: str,
    strand: str,
    spans: list[Span],
    transcripts: list[Transcript],
) -> Gene:
    attributes = node.attributes if node else {}
    gene_id = _shown(key)
    return Gene(
        gene_id=gene_id,
        name=next((attributes[n] for n in _NAMES if n in attributes), gene_id),
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


def _stated_gene(feature: Feature) -> str | None:
    """Return the name of the gene that an exon or CDS states."""
    names = ("gene_name", "gene", "gene_id")
    return next((feature.attributes[n] for n in names if feature.attributes.get(n)), None)


def _parent_of(node: Feature) -> str:
    """Return the key of the first parent of a GFF3 line, its own if it has none."""
    return _key(node.parents[0] if node.parents else node.identifier, node.contig)


def _key(identifier: str, contig: str) -> str:
    return f"{identifier}\t{contig}"


def _gtf_key(feature: Feature, kind: str, identifier: str) -> str:
    """Tell apart what a GTF names alike, such as `unknown_transcript_1` of all genes."""
    gene_id = feature.attributes.get("gene_id", "") if kind == "transcript" else ""
    return f"{kind}:{identifier}\t{feature.contig}\t{gene_id}"


def _is_gene_kind(kind: str) -> bool:
    return kind == "gene" or kind.endswith(("_gene", "pseudogene"))


def _is_transcript_kind(kind: str) -> bool:
    return kind.endswith(("RNA", "transcript"))


def _place(gene: Gene) -> tuple[str, int, int, str]:
    return gene.interval.contig, gene.interval.start, gene.interval.end, gene.gene_id


def _shown(key: str) -> str:
    return bare_identifier(key.partition("\t")[0])
