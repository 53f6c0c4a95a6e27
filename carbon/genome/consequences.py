"""What variants do to the genes of an annotation: for each, the most severe of its consequences."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from carbon.genome.effects import Effect, effect_on, touched_span
from carbon.genome.fasta import Reference
from carbon.genome.genes import Annotation, Gene, Transcript, parts_on_contig
from carbon.genome.interval import Interval
from carbon.genome.left_out import LeftOut
from carbon.genome.normalize import normalize_variant
from carbon.genome.variant import Variant

# The most severe first, in the order of Ensembl (VEP, "Calculated variant consequences"); of its
# terms those that are told apart here.
SEVERITY = (
    "transcript_ablation",
    "splice_acceptor_variant",
    "splice_donor_variant",
    "stop_gained",
    "frameshift_variant",
    "stop_lost",
    "start_lost",
    "inframe_insertion",
    "inframe_deletion",
    "missense_variant",
    "protein_altering_variant",
    "incomplete_terminal_codon_variant",
    "start_retained_variant",
    "stop_retained_variant",
    "synonymous_variant",
    "coding_sequence_variant",
    "5_prime_UTR_variant",
    "3_prime_UTR_variant",
    "non_coding_transcript_exon_variant",
    "intron_variant",
    "intergenic_variant",
)
_RANK = {term: rank for rank, term in enumerate(SEVERITY)}
_BIN_BP = 1 << 14  # genes are found by the bins that they lie in
_Item = TypeVar("_Item", Gene, LeftOut)


class Consequence(NamedTuple):
    """The most severe consequence of a variant; what is not known is None.

    Attributes:
        gene: name of the gene.
        transcript: identifier of the transcript that it is of.
        consequence: a term of SEVERITY.
        codon: number of the first codon that changes, from 1.
        codons: before and after, such as `CAG/TAG`.
        amino_acids: before and after, such as `Q/*`, or the one that stays.
    """

    gene: str | None = None
    transcript: str | None = None
    consequence: str | None = None
    codon: int | None = None
    codons: str | None = None
    amino_acids: str | None = None


class Consequences:
    """Finds consequences by an annotation of a reference."""

    def __init__(self, reference: Reference, annotation: Annotation) -> None:
        """Take the annotation, which must be of the reference."""
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

        Of equals it is that of the transcript with the longest CDS, then of the first identifier.
        A gene without a transcript of which something can be told is named alone, and so is a gene
        that the reader left out.

        Args:
            variant: its REF must be what the reference has.

        Returns:
            All None if the variant has no bases of its own, or lies where the reference has none or
            on a contig where the annotation has no gene.
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
        told = [
            (gene, transcript, effect)
            for gene in genes
            for transcript in gene.transcripts
            if (effect := effect_on(self._reference, transcript, variant))
        ]
        if not told:
            return Consequence(gene=genes[0].name)
        gene, transcript, effect = min(told, key=_order)
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
    """Genes, or what was left out, by the bins of a contig."""

    def __init__(
        self, lengths_bp: Mapping[str, int], items: Iterable[tuple[_Item, Interval]]
    ) -> None:
        self._bins: dict[tuple[str, int], list[tuple[_Item, Interval]]] = defaultdict(list)
        for item, interval in items:
            for part in parts_on_contig(interval, lengths_bp[interval.contig]):
                for number in _bins(part):
                    self._bins[part.contig, number].append((item, part))

    def at(self, interval: Interval) -> list[_Item]:
        """Return what holds a base of an interval, each once, in order."""
        found = {
            id(item): item
            for number in _bins(interval)
            for item, part in self._bins.get((interval.contig, number), ())
            if part.overlaps(interval)
        }
        return list(found.values())


def _bins(interval: Interval) -> range:
    return range(interval.start // _BIN_BP, (interval.end - 1) // _BIN_BP + 1)


def _order(told: tuple[Gene, Transcript, Effect]) -> tuple[int, int, str]:
    _, transcript, effect = told
    return _RANK[effect.term], -transcript.cds_length_bp, transcript.transcript_id
