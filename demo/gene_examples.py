"""An example gene, with its bases, an intron's start and variants."""

from dataclasses import dataclass
from itertools import chain

from carbon.genome.consequence_terms import TERMS
from carbon.genome.consequences import snv_effect
from carbon.genome.genes import Gene, Transcript, spliced
from carbon.genome.genome import Genome
from carbon.genome.interval import Interval, Variant, from_region
from demo.coding import changes_side_by_side, first_coding_bases, snvs_in

_FIT_BP = (600, 2500)
_EFFECTS = {
    name: f"A {TERMS[name].label}"
    for name in ("stop_gained", "splice_donor_variant", "synonymous_variant")
}
_OTHER, _INSERTED = "A change of a base", "A base inserted"


def example_gene(genome: Genome) -> str:
    """Return the gene with the most exons, of genes short enough to read at once on one contig.

    The contig is the last with such a gene. Without such genes, return a region.
    """
    genes = genome.annotation.genes if genome.annotation else ()
    fit = [
        gene
        for gene in genes
        if _FIT_BP[0] <= gene.interval.length_bp <= _FIT_BP[1] and gene.transcripts
    ]
    if fit:
        last = [gene for gene in fit if gene.interval.contig == fit[-1].interval.contig]
        return max(last, key=lambda gene: len(gene.transcripts[0].exons)).name
    contig, length_bp = next(iter(genome.reference.contig_lengths_bp.items()))
    return Interval(contig, 0, min(length_bp, _FIT_BP[1])).to_region()


@dataclass(frozen=True, slots=True)
class Example:
    """Gene or region that pages show first.

    Attributes:
        genome: genome of the gene.
        name: name of the gene, or `contig:first-last` if there is no gene.
    """

    genome: Genome
    name: str

    @property
    def gene(self) -> Gene | None:
        """Return the gene; None if no gene with this name has a transcript."""
        genes = self.genome.annotation.genes if self.genome.annotation else ()
        return next((g for g in genes if g.name == self.name and g.transcripts), None)

    @property
    def transcript(self) -> Transcript | None:
        """Return its first transcript."""
        return self.gene.transcripts[0] if self.gene else None

    def bases(self, length_bp: int) -> str:
        """Return coding bases from the first codon on, or the first bases of the longest contig."""
        transcript, reference = self.transcript, self.genome.reference
        if transcript and (first := first_coding_bases(reference, transcript, length_bp)):
            return first
        contig, contig_bp = max(reference.contig_lengths_bp.items(), key=lambda item: item[1])
        return reference.fetch(Interval(contig, 0, min(length_bp, contig_bp))).upper()

    def donor(self, before_bp: int, after_bp: int) -> str | None:
        """Return bases around the start of an intron, along its strand; None without an intron."""
        transcript = self.transcript
        if transcript is None or not transcript.introns:
            return None
        start, end = transcript.introns[0]
        if transcript.strand == "+":
            span = (start - before_bp, start + after_bp)
        else:
            span = (end - after_bp, end + before_bp)
        reference = self.genome.reference
        if span[0] < 0 or span[1] > reference.contig_lengths_bp[transcript.contig]:
            return None
        return spliced(reference, transcript.contig, [span], transcript.strand).upper()

    def variants(self) -> dict[str, Variant]:
        """Return example variants by consequence, and an insertion.

        They lie as near as possible to the middle of the longest coding exon, where the preceding
        bases provide the model with the most evidence that the sequence is coding.
        """
        gene, transcript, reference = self.gene, self.transcript, self.genome.reference
        place = gene.interval if gene else from_region(self.name, reference.contig_lengths_bp)
        coding = transcript.cds if transcript else ()
        longest = max(coding, key=lambda span: span[1] - span[0], default=(place.start, place.end))
        snvs: dict[str, Variant] = {}
        end = min(place.end, reference.contig_lengths_bp[place.contig])
        nearest = sorted(range(place.start, end), key=lambda at: abs(at - sum(longest) // 2))
        sites = (Interval(place.contig, at, at + 1) for at in nearest)
        for snv in chain.from_iterable(snvs_in(reference, site) for site in sites):
            effect = snv_effect(reference, transcript, snv) if transcript else None
            snvs.setdefault(_EFFECTS.get(effect.term if effect else "", _OTHER), snv)
            if set(snvs) >= set(_EFFECTS.values()) or not transcript:
                break
        named = {label: snvs[label] for label in _EFFECTS.values() if label in snvs} or snvs
        first = next(iter(named.values()), Variant(place.contig, place.start, "A", "C"))
        inserted = Variant(first.contig, first.position, first.ref, first.ref + first.alt)
        return named | {_INSERTED: inserted}

    def first_variant(self) -> Variant:
        """Return a stop of the gene, or else another change of the gene or region."""
        changes = changes_side_by_side(self.genome, self.gene) if self.gene else {}
        return next(iter((changes or self.variants()).values()))

    def spellings(self) -> tuple[str, ...]:
        """Return what a visitor may type: the name, and a variant by its protein and its place."""
        variant, transcript = self.first_variant(), self.transcript
        effect = snv_effect(self.genome.reference, transcript, variant) if transcript else None
        by_protein = (f"{effect.change} of {self.name}",) if effect and effect.change else ()
        return (self.name, *by_protein, variant.to_text())
