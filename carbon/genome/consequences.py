"""Consequences of variants: the effect on each transcript, and the most severe effect.

Effects are Sequence Ontology terms (`carbon.genome.consequence_terms`). Codons are the whole codons
of the CDS in its genetic code, without the bases that the phase leaves before the first codon and
the bases after the last one. The first whole codon has number 1, because the protein of a partial
record begins with it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from carbon.genome.alphabet import GeneticCode, reverse_complement
from carbon.genome.annotation import code_of, has_unexplained_stop, whole_frame
from carbon.genome.consequence_terms import SEVERITY_RANKS
from carbon.genome.fasta import Reference
from carbon.genome.genes import (
    Annotation,
    Gene,
    LeftOut,
    Span,
    Transcript,
    coding_bases,
    parts_on_contig,
)
from carbon.genome.interval import Interval, Variant
from carbon.genome.normalize import common_start_bp, normalize_variant

_SPLICE_SITE_BP = 2  # GT and AG, at either end of an intron
# SO:0001630: 1 to 3 bases of the exon, and 3 to 8 bases of the intron, next to a splice site.
_REGION_EXON_BP, _REGION_INTRON_BP = 3, 8
_SPLICE_REGION = "splice_region_variant"
_CODON_BP = 3
_UNDETERMINED = "coding_sequence_variant"


class Effect(NamedTuple):
    """An effect on a transcript.

    Attributes:
        term: Sequence Ontology term.
        codon: number of the first codon that changes, from 1; None if no whole codon changes.
        codons: codons before and after, such as `CAG/TAG`; `-` for no codon. Empty if `codon` is
            None or the reading frame shifts.
        amino_acids: amino acids before and after, such as `Q/*`; one letter if they are equal.
    """

    term: str
    codon: int | None = None
    codons: str = ""
    amino_acids: str = ""


class SnvEffect(NamedTuple):
    """An effect of an SNV on a codon or a splice site.

    Attributes:
        term: `synonymous_variant`, `missense_variant`, `start_lost`, `start_retained_variant`,
            `stop_gained`, `stop_lost`, `stop_retained_variant`, `splice_donor_variant`,
            `splice_acceptor_variant` or `splice_region_variant`.
        change: amino acid before, number of its codon from 1, and amino acid after, such as
            `Q39*`; empty if no codon changes.
    """

    term: str
    change: str


def snv_effect(reference: Reference, transcript: Transcript, variant: Variant) -> SnvEffect | None:
    """Return the effect of an SNV on a codon, a splice site or a splice region.

    Returns:
        None for other variants, for an SNV outside of codons and splice regions, and if
        `effect_on` cannot determine the codon.
    """
    variant = normalize_variant(reference, variant)
    if not len(variant.ref) == len(variant.alt) == 1:
        return None
    effect = effect_on(reference, transcript, variant)
    if effect is None or not (effect.codon or effect.term.startswith("splice_")):
        return None
    before, _, after = effect.amino_acids.partition("/")
    number = effect.codon or ""
    return SnvEffect(effect.term, f"{before}{number}{after or before}")


def effect_on(reference: Reference, transcript: Transcript, variant: Variant) -> Effect | None:
    """Return the most severe effect of a variant on a transcript, if it can be determined.

    The variant is trimmed and left-aligned first (`carbon.genome.normalize`), without the anchor
    base. A change in the CDS is a `coding_sequence_variant` if its codon cannot be determined: the
    reading frame, the genetic code or a base is unknown, the codon is an internal stop codon
    (selenocysteine), or the change is not within one coding exon. So is a stop codon that is
    gained, lost or retained in a CDS with unexplained internal stop codons
    (`has_unexplained_stop`), whose genetic code may be another.

    A splice region is bases 1 to 3 of the exon and 3 to 8 of the intron at a splice site
    (SO:0001630). `splice_region_variant` replaces a less severe term, such as `synonymous_variant`,
    and the effect keeps its codons.

    Args:
        reference: reference of the annotation.
        transcript: a transcript of the annotation.
        variant: alleles must be bases, and REF as in the reference.

    Returns:
        None for a variant outside of the transcript, or across a boundary between its exons,
        introns and UTRs, so that no term applies.
    """
    if variant.contig != transcript.contig or variant.why_unscorable():
        return None
    start, end, alt = trimmed(normalize_variant(reference, variant))
    exons = transcript.exons
    if start < exons[0][0] and exons[-1][1] > reference.contig_lengths_bp[variant.contig]:
        turn_bp = reference.contig_lengths_bp[variant.contig]  # the transcript spans the origin
        start, end = start + turn_bp, end + turn_bp
    touched, is_insertion = _touched(start, end), start == end
    whole = transcript.trans_spliced
    if not whole and not alt and start <= exons[0][0] and end >= exons[-1][1]:
        return Effect("transcript_ablation")
    if site := _splice_site(transcript, touched, is_insertion):
        return Effect(site)
    effect = _effect_beyond_splice_sites(reference, transcript, touched, is_insertion, alt)
    if _is_in_splice_region(transcript, touched, is_insertion):
        return _with_splice_region(effect)
    return effect


def _effect_beyond_splice_sites(
    reference: Reference, transcript: Transcript, touched: Span, is_insertion: bool, alt: str
) -> Effect | None:
    """Return the effect on a codon, or the part of the transcript that holds the bases."""
    if (inside := _in_cds(transcript, touched)) is None:
        term = _region(transcript, touched, is_insertion)
        return Effect(term) if term else None
    first, last = (inside[0] + 1, inside[1] - 1) if is_insertion else inside
    if whole := transcript.trans_spliced:
        first, last = first + whole.before_bp, last + whole.before_bp
    read = alt if transcript.strand == "+" else reverse_complement(alt)
    return _coding_effect(reference, transcript, first, last, read)


def touched_span(variant: Variant) -> Span:
    """Return the bases of the contig that a variant replaces, or the two next to an insertion.

    At the end of a contig, one of the two lies outside of it.
    """
    return _touched(*trimmed(variant)[:2])


def _touched(start: int, end: int) -> Span:
    # An insertion lies in a region that holds both of its neighbours.
    return (start - 1, start + 1) if start == end else (start, end)


def trimmed(variant: Variant) -> tuple[int, int, str]:
    """Return start and end of the bases that change, and their replacement.

    Bases that REF and ALT share at their ends are removed, first at the right end.
    """
    ref, alt = variant.ref.upper(), variant.alt.upper()
    after_bp = common_start_bp(ref[::-1], alt[::-1])
    ref, alt = ref[: len(ref) - after_bp], alt[: len(alt) - after_bp]
    before_bp = common_start_bp(ref, alt)
    return variant.position + before_bp, variant.position + len(ref), alt[before_bp:]


def _splice_site(transcript: Transcript, touched: Span, is_insertion: bool) -> str | None:
    sites = set()
    for start, end in transcript.introns:
        for site, is_left in (
            ((start, start + _SPLICE_SITE_BP), True),
            ((end - _SPLICE_SITE_BP, end), False),
        ):
            hit = _holds(site, touched) if is_insertion else _meets(site, touched)
            if hit:
                sites.add("donor" if is_left == (transcript.strand == "+") else "acceptor")
    return f"splice_{min(sites)}_variant" if sites else None


def _is_in_splice_region(transcript: Transcript, touched: Span, is_insertion: bool) -> bool:
    """Return whether a variant that touches no splice site lies in a splice region.

    An insertion must have both of its neighbours in the region or in the site next to it.
    """
    for start, end in transcript.introns:
        reach_bp = min(_REGION_INTRON_BP, end - start)
        regions = (
            (start - _REGION_EXON_BP, start + reach_bp),
            (end - reach_bp, end + _REGION_EXON_BP),
        )
        if any((_holds if is_insertion else _meets)(region, touched) for region in regions):
            return True
    return False


def _with_splice_region(effect: Effect | None) -> Effect:
    """Return an effect in a splice region: the more severe term, with the codons if known."""
    if effect is None:
        return Effect(_SPLICE_REGION)
    return effect._replace(term=min(effect.term, _SPLICE_REGION, key=SEVERITY_RANKS.__getitem__))


def _in_cds(transcript: Transcript, touched: Span) -> Span | None:
    """Return the position of bases of the contig in the CDS, along the strand.

    None if they are not all in one span of the CDS, or are read twice by a slipping ribosome.
    """
    places = []
    before_bp = 0
    for start, end in transcript.cds:
        if _holds((start, end), touched):
            places.append((before_bp + touched[0] - start, before_bp + touched[1] - start))
        before_bp += end - start
    if len(places) != 1:
        return None
    return places[0] if transcript.strand == "+" else _turned(places[0], before_bp)


def _region(transcript: Transcript, touched: Span, is_insertion: bool) -> str | None:
    """Return the term of the part of a transcript that holds bases."""
    cds = transcript.cds
    if any(_holds(span, touched) for span in cds) or (
        not is_insertion and any(_meets(span, touched) for span in cds)
    ):
        return _UNDETERMINED
    if any(_holds(intron, touched) for intron in transcript.introns):
        return "intron_variant"
    if not any(_holds(exon, touched) for exon in transcript.exons):
        return None
    if not cds:
        is_coding = transcript.trans_spliced and transcript.trans_spliced.spans
        return None if is_coding else "non_coding_transcript_exon_variant"
    is_left, is_right = touched[1] <= cds[0][0], touched[0] >= cds[-1][1]
    if not is_left and not is_right:
        return None
    return f"{5 if is_left == (transcript.strand == '+') else 3}_prime_UTR_variant"


def _coding_effect(
    reference: Reference, transcript: Transcript, first: int, last: int, alt: str
) -> Effect:
    """Return the effect of replacing bases `first` to `last` of the CDS."""
    phase_bp, cds_bp, leftover_bp = whole_frame(transcript)
    code = code_of(transcript)
    if phase_bp is None or code is None or first < phase_bp:
        return Effect(_UNDETERMINED)
    if last > cds_bp - leftover_bp:
        is_behind = first >= cds_bp - leftover_bp
        return Effect("incomplete_terminal_codon_variant" if is_behind else _UNDETERMINED)
    start = first - (first - phase_bp) % _CODON_BP
    end = last + (phase_bp - last) % _CODON_BP
    number = (start - phase_bp) // _CODON_BP + 1
    if (len(alt) - (last - first)) % _CODON_BP:
        return Effect("frameshift_variant", number)
    before = coding_bases(reference, transcript, (start, end))
    after = before[: first - start] + alt + before[last - start :]
    ends_cds = end == cds_bp and before[-_CODON_BP:] in code.stops
    old, new = (code.translate(codons, ends_cds=ends_cds) for codons in (before, after))
    if "X" in old + new or "*" in (old[:-1] if ends_cds else old):
        return Effect(_UNDETERMINED)
    term = _stop_term(old, new, ends_cds)
    if term and has_unexplained_stop(reference, transcript):
        return Effect(_UNDETERMINED)
    if not term and start == 0 and transcript.has_start:
        following = coding_bases(reference, transcript, (end, end + _CODON_BP))
        term = _start_term(code, before[:_CODON_BP], (after + following)[:_CODON_BP])
    term = term or _term(old, new, len(alt), last - first)
    amino_acids = old if old == new else f"{old or '-'}/{new or '-'}"
    return Effect(term, number, f"{before or '-'}/{after or '-'}", amino_acids)


def _stop_term(old: str, new: str, ends_cds: bool) -> str | None:
    if not ends_cds:
        return "stop_gained" if "*" in new else None
    protein, stop, _ = new.partition("*")
    if not stop:
        return "stop_lost"
    if protein == old[:-1]:
        return "stop_retained_variant"
    return "stop_gained" if len(protein) < len(new) - 1 else None


def _start_term(code: GeneticCode, before: str, after: str) -> str | None:
    """Return the effect on the first codon; None if it is not a start codon or does not change."""
    if before not in code.starts or before == after:
        return None
    return "start_retained_variant" if code.is_start(after) else "start_lost"


def _term(old: str, new: str, alt_bp: int, ref_bp: int) -> str:
    if alt_bp == ref_bp:
        return "synonymous_variant" if old == new else "missense_variant"
    if alt_bp and ref_bp:
        return "protein_altering_variant"
    return "inframe_insertion" if alt_bp else "inframe_deletion"


def _turned(span: Span, length_bp: int) -> Span:
    return length_bp - span[1], length_bp - span[0]


def _holds(whole: Span, part: Span) -> bool:
    return whole[0] <= part[0] and part[1] <= whole[1]


def _meets(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


_BIN_BP = 1 << 14  # size of the bins by which genes are looked up
_Item = TypeVar("_Item", Gene, LeftOut)


class Consequence(NamedTuple):
    """The most severe consequence of a variant; unknown fields are None.

    Attributes:
        gene: name of the gene.
        transcript: identifier of the affected transcript.
        consequence: Sequence Ontology term, a key of `consequence_terms.TERMS`.
        codon: number of the first codon that changes, from 1.
        codons: codons before and after, such as `CAG/TAG`.
        amino_acids: amino acids before and after, such as `Q/*`, or one letter if they are equal.
    """

    gene: str | None = None
    transcript: str | None = None
    consequence: str | None = None
    codon: int | None = None
    codons: str | None = None
    amino_acids: str | None = None


class Consequences:
    """Looks up consequences in an annotation of a reference."""

    def __init__(self, reference: Reference, annotation: Annotation) -> None:
        """Index the genes of an annotation, which must belong to the reference."""
        self._reference = reference
        lengths_bp = reference.contig_lengths_bp
        self._genes = _Places(lengths_bp, ((gene, gene.interval) for gene in annotation.genes))
        self._left_out = _Places(
            lengths_bp,
            ((each, interval) for each in annotation.left_out for interval in each.intervals),
        )
        self._contigs = {interval.contig for interval in annotation.occupied()}

    def of(self, variant: Variant) -> Consequence:
        """Return the most severe consequence for any transcript.

        The variant is trimmed and left-aligned first (`carbon.genome.normalize`).

        Among transcripts with the same consequence, the longest CDS wins, then the first
        identifier. If no transcript of the gene has an effect that can be determined, only the gene
        is set. The same holds for a gene that the annotation reader left out.

        Args:
            variant: its REF must agree with the reference.

        Returns:
            All fields are None if the alleles are not bases, the variant lies outside of the
            reference, or the annotation has no gene on its contig.
        """
        if not self._has_place(variant) or variant.why_unscorable():
            return Consequence()
        variant = normalize_variant(self._reference, variant)
        start, end = touched_span(variant)
        place = Interval(variant.contig, max(0, start), end)
        genes = self._genes.at(place)
        left_out = self._left_out.at(place) if not genes else []
        if left_out:
            return Consequence(gene=next((each.gene for each in left_out if each.gene), None))
        if not genes:
            return Consequence(consequence="intergenic_variant")
        effects = [
            (gene, transcript, effect)
            for gene in genes
            for transcript in gene.transcripts
            if (effect := effect_on(self._reference, transcript, variant))
        ]
        if not effects:
            return Consequence(gene=genes[0].name)
        gene, transcript, effect = min(effects, key=_by_severity)
        return Consequence(
            gene=gene.name,
            transcript=transcript.transcript_id,
            consequence=effect.term,
            codon=effect.codon,
            codons=effect.codons or None,
            amino_acids=effect.amino_acids or None,
        )

    def _has_place(self, variant: Variant) -> bool:
        if variant.contig not in self._contigs:
            return False
        return 0 <= variant.position < self._reference.contig_lengths_bp[variant.contig]


class _Places(Generic[_Item]):
    """Genes, or features that the reader left out, by bins of a contig."""

    def __init__(
        self, lengths_bp: Mapping[str, int], items: Iterable[tuple[_Item, Interval]]
    ) -> None:
        self._bins: dict[tuple[str, int], list[tuple[_Item, Interval]]] = defaultdict(list)
        for item, interval in items:
            for part in parts_on_contig(interval, lengths_bp[interval.contig]):
                for number in _bins(part):
                    self._bins[part.contig, number].append((item, part))

    def at(self, interval: Interval) -> list[_Item]:
        """Return the items that overlap an interval, without repeats, in order."""
        overlapping = {
            id(item): item
            for number in _bins(interval)
            for item, part in self._bins.get((interval.contig, number), ())
            if part.overlaps(interval)
        }
        return list(overlapping.values())


def _bins(interval: Interval) -> range:
    return range(interval.start // _BIN_BP, (interval.end - 1) // _BIN_BP + 1)


def _by_severity(affected: tuple[Gene, Transcript, Effect]) -> tuple[int, int, str]:
    _, transcript, effect = affected
    return SEVERITY_RANKS[effect.term], -transcript.cds_length_bp, transcript.transcript_id
