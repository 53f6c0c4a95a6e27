"""What variants do to the genes of an annotation: for each, the most severe of its consequences."""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from carbon.genome.effects import Effect, effect_on, touched_span
from carbon.genome.fasta import Reference
from carbon.genome.genes import Annotation, Gene, Transcript
from carbon.genome.interval import Interval
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
        self._genes: dict[tuple[str, int], list[Gene]] = defaultdict(list)
        self._contigs = {gene.interval.contig for gene in annotation.genes}
        for gene in annotation.genes:
            for part in self._parts(gene.interval):
                for number in _bins(part):
                    self._genes[part.contig, number].append(gene)

    def of(self, variant: Variant) -> Consequence:
        """Return the most severe consequence for any transcript.

        The variant is trimmed and left-aligned first (`carbon.genome.normalize`).

        Of equals it is that of the transcript with the longest CDS, then of the first identifier.
        A gene without a transcript of which something can be told is named alone.

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
        genes = self._genes_at(Interval(variant.contig, max(0, start), end))
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

    def _genes_at(self, interval: Interval) -> list[Gene]:
        """Return the genes that hold a base of an interval, in their order."""
        found = {
            id(gene): gene
            for number in _bins(interval)
            for gene in self._genes.get((interval.contig, number), ())
            if any(part.overlaps(interval) for part in self._parts(gene.interval))
        }
        return list(found.values())

    def _parts(self, interval: Interval) -> Iterator[Interval]:
        """Yield what an interval covers, in two parts if it goes over an origin."""
        length_bp = self._reference.contig_lengths_bp[interval.contig]
        yield Interval(interval.contig, interval.start, min(interval.end, length_bp))
        if interval.end > length_bp:
            yield Interval(interval.contig, 0, interval.end - length_bp)


def _bins(interval: Interval) -> range:
    return range(interval.start // _BIN_BP, (interval.end - 1) // _BIN_BP + 1)


def _order(told: tuple[Gene, Transcript, Effect]) -> tuple[int, int, str]:
    _, transcript, effect = told
    return _RANK[effect.term], -transcript.cds_length_bp, transcript.transcript_id
