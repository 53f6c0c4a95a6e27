"""The genes of a GenBank record: features that name one locus, joined."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from carbon.genome import marks
from carbon.genome.genbank_places import Place, known_parts, place_of
from carbon.genome.gene_parts import role_of
from carbon.genome.genes import (
    MITOCHONDRIA,
    Gene,
    Span,
    Transcript,
    beside,
    coding_spans,
    exons_of,
)
from carbon.genome.genetic_codes import table_stated
from carbon.genome.interval import Interval, Strand
from carbon.genome.left_out import LeftOut
from carbon.genome.loci import clusters
from carbon.genome.trans_splicing import Ordered, numbered_by_gene, parts_of

if TYPE_CHECKING:
    from Bio.SeqFeature import SeqFeature
    from Bio.SeqRecord import SeqRecord

_RNA_KINDS = {"mRNA", "tRNA", "rRNA", "ncRNA", "tmRNA", "misc_RNA", "precursor_RNA"}
_Member = tuple[Any, Place]  # a feature of Biopython, and where it lies


class GenBankGenes:
    """The features of one record, and the genes that follow from them."""

    def __init__(self, record: SeqRecord, contig: str, where: str, left_out: list[LeftOut]) -> None:
        """Take a record of Biopython; what is left out is added to a list."""
        self._contig = contig
        self._length_bp = len(record)
        self._circular = record.annotations.get("topology") == "circular"
        self._features = record.features
        self._where = where
        self._left_out = left_out
        self._utrs = self._utrs_of_loci()

    def genes(self) -> list[Gene]:
        """Join features that name one locus on one strand to a gene."""
        of_locus: dict[tuple[str, Strand], list[_Member]] = defaultdict(list)
        trans_spliced: dict[str, list[_Member]] = defaultdict(list)
        features = [f for f in self._features if f.type in _RNA_KINDS | {"gene", "CDS"}]
        marked = {_locus(f) for f in features if marks.is_trans_spliced(_attributes(f))}
        for feature in features:
            locus = _locus(feature)
            place = place_of(
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
            for key, found in of_locus.items()
            for members in self._apart(found)
        ]
        for locus, members in trans_spliced.items():
            genes += self._trans_spliced(locus, members)
        return genes

    def _utrs_of_loci(self) -> dict[tuple[str, Strand], list[Span]]:
        """Return UTRs by the locus and strand of their gene."""
        found: dict[tuple[str, Strand], list[Span]] = defaultdict(list)
        for feature in self._features:
            if role_of(feature.type) == "utr":
                place = place_of(
                    feature, self._length_bp, is_circular=self._circular, is_trans_spliced=False
                )
                if not isinstance(place, str) and not place.trans_spliced:
                    found[_locus(feature), place.strand] += place.spans
        return found

    def _leave_out(self, feature: SeqFeature, locus: str, reason: str) -> None:
        intervals = known_parts(feature, self._contig, self._length_bp)
        name = feature.qualifiers.get("gene", [locus])[0]
        self._left_out.append(LeftOut(locus, reason, intervals, name))

    def _trans_spliced(self, locus: str, members: list[_Member]) -> Iterator[Gene]:
        """Yield a gene for each part of a trans-spliced one, or leave all of it out."""
        lines = [span for f, place in members if f.type == "gene" for span in place.trans_spliced]
        is_pseudo = any(marks.is_pseudo(_attributes(f)) for f, _ in members if f.type == "gene")
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
        is_pseudo = any(marks.is_pseudo(_attributes(feature)) for feature, _ in nodes)
        for rna, place in rnas:
            mine = next((c for c in waiting if _is_inside(c[1], place)), None)
            if mine:
                waiting.remove(mine)
            name = rna.qualifiers.get("transcript_id", [locus])[0]
            is_dead = is_pseudo or marks.is_pseudo(_attributes(rna))
            transcripts.append(self._transcript(name, place, mine, is_dead))
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

    def _with_utrs(self, locus: str, place: Place, members: list[_Member]) -> Place:
        """Return where a CDS lies with its UTRs: those inside of its gene, or that touch it."""
        start, end = (f(p for _, m in members for p in (m.start, m.end)) for f in (min, max))
        utrs = self._utrs[locus, place.strand] if end <= self._length_bp else []
        own = (utr for utr in utrs if start <= utr[1] and utr[0] <= end)
        return place.moved(tuple(sorted({*place.spans, *own})))

    def _transcript(
        self,
        transcript_id: str,
        place: Place,
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
            is_mitochondrial=self._contig in MITOCHONDRIA,
        )
        return _with_cds(transcript, *coding, is_pseudo) if coding else transcript


def _with_cds(
    transcript: Transcript, feature: SeqFeature, place: Place, is_pseudo: bool
) -> Transcript:
    qualifiers, attributes = feature.qualifiers, _attributes(feature)
    exceptional = is_pseudo or marks.is_exceptional(attributes) or place.has_gaps
    is_partial = marks.is_set(attributes, "partial")
    partial = is_partial or marks.has_completed_stop(attributes)
    phase_bp = None if exceptional else _phase_bp(qualifiers, place.begins_before)
    return replace(
        transcript,
        cds=coding_spans(place.spans, slips=marks.slips(attributes)),
        incomplete=place.incomplete or exceptional or partial or bool(phase_bp),
        phase_bp=phase_bp,
        has_start=not (place.begins_before or phase_bp or is_partial),
        genetic_code=table_stated(qualifiers.get("transl_table", [""])[0], transcript.where),
        has_recoded_codon=marks.has_recoded_codon(attributes),
    )


def _attributes(feature: SeqFeature) -> dict[str, str]:
    """Return the qualifiers as the attributes of GFF3 are read."""
    return {key.casefold(): ",".join(values) for key, values in feature.qualifiers.items()}


def _gene_name(features: list[SeqFeature], locus: str) -> str:
    return next((f.qualifiers["gene"][0] for f in features if "gene" in f.qualifiers), locus)


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


def _is_inside(coding: Place, rna: Place) -> bool:
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
    if any(marks.is_pseudo(_attributes(feature)) for feature in features):
        return "pseudogene"
    kinds = [feature.type for feature in features]
    if "CDS" in kinds or "mRNA" in kinds:
        return "protein_coding"
    if "ncRNA" in kinds:
        return "ncRNA"
    return next((kind for kind in kinds if kind != "gene"), "gene")
