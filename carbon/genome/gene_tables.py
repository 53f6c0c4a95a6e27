"""Features of an annotation gathered by identifier, and divided by locus.

An annotation may use one identifier for two genes or transcripts of a contig.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

from carbon.errors import GenomeError
from carbon.genome.genes import LeftOut, Transcript, bare_identifier, on_contig
from carbon.genome.gff import Feature, is_set
from carbon.genome.transcripts import Line, Parts, Role, role_of

_Item = TypeVar("_Item")


def are_two_loci(parts: Sequence[Parts], lines: Sequence[Feature]) -> bool:
    """Return whether parts on two strands form two transcripts rather than a trans-spliced one.

    They do if each strand has a line of the gene or transcript, or if the file has no such lines
    and the two do not overlap.
    """
    if lines:
        return {line.strand for line in lines} >= {each.strand for each in parts}
    (first, second) = sorted(each.hull for each in parts)
    return first[1] <= second[0]


def by_own_lines(
    by_strand: Mapping[str, Parts], own: Sequence[Feature]
) -> list[tuple[Feature | None, list[Parts]]]:
    """Divide the parts of an identifier by the lines of its transcript.

    In a GTF, several lines are several transcripts. In GFF3 they are one feature, unless they name
    different genes.

    Returns:
        Pairs of a transcript line, or None, and its parts.
    """
    all_parts = list(by_strand.values())
    are_many = own and (own[0].is_gtf or len({line.attributes.get("parent") for line in own}) > 1)
    if are_many and len(own) > 1:
        by_line = [
            (line, [part] if (part := _inside(by_strand[line.strand], line)).lines else [])
            for line in own
            if line.strand in by_strand
        ]
        num_inside = sum(len(part.lines) for _, parts in by_line for part in parts)
        if num_inside == sum(len(part.lines) for part in all_parts):
            return [(line, parts) for line, parts in by_line if parts]
    return [(own[0] if own else None, all_parts)]


def at_loci(parts: Parts, own: Sequence[Feature], gene: Sequence[Feature]) -> list[Parts]:
    """Divide the parts of one identifier and strand by the loci of its gene.

    Several lines of the gene are several loci. Without a line of the transcript, exon numbers that
    start again distinguish the loci.
    """
    lines = [line for line in gene if line.strand == parts.strand]
    if len(lines) > 1:
        by_line = [_inside(parts, line) for line in lines]
        if sum(len(each.lines) for each in by_line) == len(parts.lines):
            return [each for each in by_line if each.lines]
    return [parts] if own else _by_exon_numbers(parts)


def _inside(parts: Parts, place: Feature) -> Parts:
    return parts.within(place.start, place.end)


def _by_exon_numbers(parts: Parts) -> list[Parts]:
    """Divide parts at each place where the exon numbers along the strand start again."""
    along = sorted(parts.exon_lines, key=lambda line: line.start, reverse=parts.strand == "-")
    numbers = [line.number or 0 for line in along]
    starts = [at for at, number in enumerate(numbers) if not at or number <= numbers[at - 1]]
    runs = [along[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)]
    if len(runs) < 2 or not all(numbers) or not _are_copies(runs):
        return [parts]
    hulls = [(min(x.start for x in run), max(x.end for x in run)) for run in runs]
    by_run = [parts.within(*hull) for hull in hulls]
    is_complete = sum(len(each.lines) for each in by_run) == len(parts.lines)
    return by_run if is_complete else [parts]


def _are_copies(runs: Sequence[Sequence[Line]]) -> bool:
    """Return whether runs have the same exon numbers, and the same length if they are one exon."""
    if len(runs[0]) == 1:
        return len({(len(run), run[0].end - run[0].start) for run in runs}) == 1
    return len({tuple(line.number for line in run) for run in runs}) == 1


def clusters(places: Iterable[tuple[int, int, _Item]]) -> Iterator[list[tuple[int, int, _Item]]]:
    """Yield groups of places (start, end, item) that overlap, directly or in a chain, in order."""
    group: list[tuple[int, int, _Item]] = []
    reach = -1
    for place in sorted(places, key=lambda place: place[:2]):
        if group and place[0] >= reach:
            yield group
            group = []
        group.append(place)
        reach = max(reach, place[1])
    if group:
        yield group


def genes_apart(
    lines: Sequence[Feature], transcripts: Sequence[Transcript]
) -> Iterator[tuple[list[Feature], list[Transcript]]]:
    """Yield the lines and transcripts of one gene and strand, grouped by locus.

    There is one locus unless the gene has several lines or a transcript identifier repeats.
    """
    identifiers = {transcript.transcript_id for transcript in transcripts}
    if len(lines) < 2 and len(identifiers) == len(transcripts):
        yield list(lines), list(transcripts)
        return
    places: list[tuple[int, int, Feature | Transcript]] = [
        *((line.start, line.end, line) for line in lines),
        *((each.exons[0][0], each.exons[-1][1], each) for each in transcripts),
    ]
    for group in clusters(places):
        items = [item for _, _, item in group]
        yield (
            [item for item in items if isinstance(item, Feature)],
            [item for item in items if isinstance(item, Transcript)],
        )


def joined_over_origin(lines: list[Feature], length_bp: int) -> list[Feature]:
    """Join two lines of a feature that touch at the origin of a circular contig."""
    last = next((line for line in lines if line.end == length_bp), None)
    first = next((line for line in lines if line.start == 0 and line is not last), None)
    if last is None or first is None or last.strand != first.strand:
        return lines
    whole = last._replace(end=length_bp + first.end)
    return [whole, *(line for line in lines if line not in (first, last))]


NAMES = ("gene_name", "name", "gene", "gene_id", "id")
# They cover the whole sequence: one longer than the contig belongs to another assembly.
_LANDMARKS = frozenset({"region", "chromosome", "contig", "scaffold", "supercontig", "plasmid"})
_GTF_NODES = frozenset({"gene", "transcript"})


class GeneTables:
    """Features gathered by identifier.

    Attributes:
        num_added: number of features added.
        circular: contigs with a feature that is marked as circular.
        mitochondria: contigs with the name of a mitochondrion; filled by the reader.
        left_out: features that do not become genes, with the reason.
        contig_lengths_bp: contigs of the reference.
        is_cut: whether the reference is only a part of the annotated sequence.
        nodes: lines of genes, transcripts and other features with an identifier, by key. A part of
            a transcript takes the place of a missing line of its transcript.
        parts: exons, UTRs and CDS by the key of their parent, then by strand.
    """

    def __init__(self, contig_lengths_bp: Mapping[str, int], *, cut: bool) -> None:
        self.num_added = 0
        self.circular: set[str] = set()
        self.mitochondria: set[str] = set()
        self.left_out: list[LeftOut] = []
        self.contig_lengths_bp = contig_lengths_bp
        self.is_cut = cut
        self._past_end: list[tuple[str, Feature]] = []  # keys and features
        self.nodes: dict[str, list[Feature]] = {}
        self.parts: dict[str, dict[str, Parts]] = {}
        self._utrs: dict[str, dict[str, Parts]] = {}

    def add(self, feature: Feature) -> None:
        """Add a feature that lies on a contig of the reference."""
        self.num_added += 1
        if "is_circular" in feature.attributes and is_set(feature.attributes, "is_circular"):
            self.circular.add(feature.contig)
        key = ""
        if role := role_of(feature.kind):
            for key in self._parents_of_part(feature):
                self._add_part(key, role, feature)
        elif key := self._node_key(feature):
            self.nodes.setdefault(key, []).append(feature)
        elif feature.is_gtf and feature.kind in _GTF_NODES:
            self.left_out.append(self.as_left_out(feature.identifier, "no_identifier", [feature]))
        if feature.end > self.contig_lengths_bp[feature.contig] and not self.is_cut:
            self._past_end.append((key, feature))

    def _node_key(self, feature: Feature) -> str:
        attributes, kind = feature.attributes, feature.kind
        if feature.is_gtf:
            identifier = attributes.get(f"{kind}_id") if kind in _GTF_NODES else ""
            return gtf_key(feature, kind, identifier) if identifier else ""
        identifier = attributes.get("id")
        if not identifier and "parent" not in attributes:
            is_known = is_gene_kind(kind) or is_transcript_kind(kind)
            identifier = feature.identifier if is_known else ""
        return key_of(identifier, feature.contig) if identifier else ""

    def _parents_of_part(self, feature: Feature) -> list[str]:
        if not feature.is_gtf:
            above = feature.parents or [feature.identifier]
            return [key_of(identifier, feature.contig) for identifier in above]
        transcript_id = feature.attributes.get("transcript_id")
        if not transcript_id:
            raise GenomeError(f"{feature.where}: a GTF {feature.kind} needs a transcript_id")
        return [gtf_key(feature, "transcript", transcript_id)]

    def _add_part(self, parent: str, role: Role, feature: Feature) -> None:
        by_strand = (self._utrs if role == "utr" else self.parts).setdefault(parent, {})
        parts = by_strand.get(feature.strand)
        if parts is None:
            parts = Parts(feature.contig, feature.strand, feature.where, _stated_gene(feature))
            by_strand[feature.strand] = parts
        parts.add(role, feature, self.contig_lengths_bp[feature.contig])
        if (feature.is_gtf or not feature.parents) and parent not in self.nodes:
            # A GTF need not have transcript lines, and a bacterial CDS may have no parent.
            self.nodes[parent] = [feature]

    def first_past_end(self) -> Feature | None:
        """Return a feature of a gene that ends past its contig for no known reason.

        Features of other types that end past their contig are left out.
        """
        past_end = [(k, f) for k, f in self._past_end if f.contig not in self.circular]
        if not past_end:
            return None
        used = {*self.parts, *self._utrs}
        used |= {self.above(node) for parent in set(used) for node in self.nodes.get(parent, ())}
        for key, feature in past_end:
            whole = feature.kind.casefold() in _LANDMARKS and feature.start == 0
            if role_of(feature.kind) or is_gene_kind(feature.kind) or key in used or whole:
                return feature
            if key:
                self.nodes[key] = [line for line in self.nodes[key] if line is not feature]
            reason, gene = "past_the_end_of_the_contig", _stated_gene(feature)
            self.left_out.append(self.as_left_out(feature.identifier, reason, [feature], gene=gene))
        return None

    def join_utrs(self) -> None:
        """Join UTRs to the other parts of their parent, or of the only transcript of a gene."""
        below: dict[str, list[str]] = defaultdict(list)
        for parent in self.parts:
            if lines := self.nodes.get(parent):
                below[self.above(lines[0])].append(parent)
        for parent, utrs in self._utrs.items():
            own = [parent] if parent in self.parts else below[parent]
            transcripts = [self.parts[each] for each in own]
            if parent not in own and all(_are_in_exons(u, transcripts) for u in utrs.values()):
                continue  # the exons include them
            into = transcripts[0] if len(transcripts) == 1 else self.parts.setdefault(parent, {})
            for strand, parts in utrs.items():
                into[strand].take(parts) if strand in into else into.update({strand: parts})
        self._utrs.clear()

    def lines(self, key: str) -> list[Feature]:
        """Return the lines of a gene or transcript itself, without its parts."""
        lines = [line for line in self.nodes.get(key, ()) if not role_of(line.kind)]
        if lines and lines[0].contig in self.circular:
            return joined_over_origin(lines, self.contig_lengths_bp[lines[0].contig])
        return lines

    def above(self, node: Feature) -> str:
        """Return the key of the gene of a transcript, which may be the transcript's own key."""
        if node.is_gtf:
            if gene_id := node.attributes.get("gene_id"):
                return gtf_key(node, "gene", gene_id)
            return gtf_key(node, "transcript", node.identifier)
        above = parent_key(node)
        over = self.nodes.get(above)
        return parent_key(over[0]) if over and node.parents and over[0].parents else above

    def is_gene(self, lines: Sequence[Feature]) -> bool:
        """Return whether a feature is a gene, with or without exons and CDS."""
        if not lines or not is_gene_kind(lines[0].kind):
            return False
        over = self.nodes.get(parent_key(lines[0])) if lines[0].parents else None
        return not (over and is_gene_kind(over[0].kind))

    @cached_property
    def contigs_of(self) -> dict[str, set[str]]:
        """Contigs on which each identifier occurs."""
        contigs: dict[str, set[str]] = defaultdict(set)
        for key, lines in self.nodes.items():
            contigs[key.partition("\t")[0]].update(line.contig for line in lines)
        return dict(contigs)

    def as_left_out(
        self,
        name: str,
        reason: str,
        lines: Iterable[Feature],
        covered: Iterable[tuple[str, int, int]] = (),
        gene: str | None = None,
    ) -> LeftOut:
        """Return a record of a skipped feature, which covers its lines and other spans.

        Args:
            name: identifier of the feature.
            reason: reason such as `no_strand`.
            lines: lines of the feature.
            covered: other spans, as contig, start and end.
            gene: name of its gene, if known.
        """
        places = [*((line.contig, line.start, line.end) for line in lines), *covered]
        intervals = {
            interval
            for contig, start, end in places
            for interval in on_contig(contig, start, end, self._reach_bp(contig))
        }
        return LeftOut(name, reason, tuple(sorted(intervals)), gene)

    def _reach_bp(self, contig: str) -> int:
        """Return the largest position on a contig: twice the length of a circular contig."""
        return self.contig_lengths_bp[contig] * (2 if contig in self.circular else 1)

    def gene_name(self, key: str) -> str | None:
        """Return the name of a gene by its key; None if the file has no line of the gene."""
        for line in self.nodes.get(key, ()):
            return next((line.attributes[n] for n in NAMES if line.attributes.get(n)), None)
        return None


def _are_in_exons(utrs: Parts, transcripts: Sequence[Mapping[str, Parts]]) -> bool:
    """Return whether all UTRs lie in annotated exons of the transcripts."""
    exons = [
        span
        for by_strand in transcripts
        if utrs.strand in by_strand
        for span in by_strand[utrs.strand].spans("exon")
    ]
    return all(any(a <= s and e <= b for a, b in exons) for s, e in utrs.spans("utr"))


def _stated_gene(feature: Feature) -> str | None:
    """Return the gene name in the attributes of a feature that is not the gene's own line."""
    names = ("gene_name", "gene", "gene_id")
    return next((feature.attributes[n] for n in names if feature.attributes.get(n)), None)


def parent_key(node: Feature) -> str:
    """Return the key of the first parent of a GFF3 line, or its own key without a parent."""
    return key_of(node.parents[0] if node.parents else node.identifier, node.contig)


def key_of(identifier: str, contig: str) -> str:
    """Return the key of a GFF3 identifier on a contig."""
    return f"{identifier}\t{contig}"


def gtf_key(feature: Feature, kind: str, identifier: str) -> str:
    """Return the key of a GTF feature, which separates transcripts of different genes.

    NCBI uses identifiers such as `unknown_transcript_1` for many genes.
    """
    gene_id = feature.attributes.get("gene_id", "") if kind == "transcript" else ""
    return f"{kind}:{identifier}\t{feature.contig}\t{gene_id}"


def is_gene_kind(kind: str) -> bool:
    """Return whether a feature type (column 3) is a gene, such as `ncRNA_gene`."""
    return kind == "gene" or kind.endswith(("_gene", "pseudogene"))


def is_transcript_kind(kind: str) -> bool:
    """Return whether a feature type (column 3) is a transcript, such as `mRNA`."""
    return kind.endswith(("RNA", "transcript"))


def shown(key: str) -> str:
    """Return the identifier in a key, without the prefix of its database."""
    return bare_identifier(key.partition("\t")[0])
