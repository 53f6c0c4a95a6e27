"""Gene summaries, and the first coding bases of a gene or the first bases of a region."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from carbon.genome.alphabet import reverse_complement
from carbon.genome.annotation import code_of
from carbon.genome.fasta import Reference
from carbon.genome.genes import Gene, Span, Transcript, spliced
from carbon.genome.genome import Genome
from carbon.genome.interval import Interval, Strand, Variant

_TRANSITION = {"A": "G", "G": "A", "C": "T", "T": "C"}


@dataclass(frozen=True, slots=True)
class FirstBases:
    """Bases in reading order, with introns removed.

    Attributes:
        bases: upper-case bases in the direction of the strand.
        contig: contig that contains the bases.
        strand: strand of the bases.
        spans: spans on the contig, ascending.
        exons: numbers of the exons that contain the bases, from 1 and in the direction of the
            strand; empty if the bases are not coding.
    """

    bases: str
    contig: str
    strand: Strand
    spans: tuple[Span, ...]
    exons: tuple[int, ...] = ()

    @property
    def regions(self) -> list[str]:
        """Spans as `contig:first-last`, in reading order."""
        spans = self.spans if self.strand == "+" else self.spans[::-1]
        return [Interval(self.contig, start, end).to_region() for start, end in spans]

    def last_transition(self, contig_bp: int) -> Variant | None:
        """Return the transition (A<->G, C<->T) of the last base; None for an N.

        Args:
            contig_bp: length of the contig; spans of a circular contig may extend past it.
        """
        is_forward = self.strand == "+"
        at = self.spans[-1][1] - 1 if is_forward else self.spans[0][0]
        ref = self.bases[-1] if is_forward else reverse_complement(self.bases[-1])
        alt = _TRANSITION.get(ref)
        return Variant(self.contig, at % contig_bp, ref, alt) if alt else None


def first_bases_at(genome: Genome, place: str, length_bp: int, most_bp: int) -> FirstBases:
    """Return the first coding bases of the first transcript of the gene at a place.

    If there is no gene with a transcript, or its coding sequence is shorter than `length_bp`,
    return the first bases of the place on the forward strand, fewer if the place is shorter.

    Raises:
        GenomeError: the gene or region does not exist.
        UserError: the place is longer than `most_bp`.
    """
    gene = gene_at(genome, place, most_bp)
    if gene and (first := first_coding_bases(genome.reference, gene.transcripts[0], length_bp)):
        return first
    interval = genome.place(place, 0, most_bp)
    end = min(interval.start + length_bp, interval.end)
    bases = genome.reference.fetch(Interval(interval.contig, interval.start, end)).upper()
    return FirstBases(bases, interval.contig, "+", ((interval.start, end),))


def first_coding_bases(
    reference: Reference, transcript: Transcript, length_bp: int
) -> FirstBases | None:
    """Return the first bases of a CDS from its first whole codon; None if the CDS is too short."""
    positions = codon_positions(transcript)[:length_bp]
    if len(positions) < length_bp:
        return None
    contig, strand, exons = transcript.contig, transcript.strand, transcript.exons
    along, ascending = (exons, positions) if strand == "+" else (exons[::-1], positions[::-1])
    spans = _runs(ascending)
    bases = spliced(reference, contig, spans, strand).upper()
    numbers = tuple(
        number
        for number, (start, end) in enumerate(along, start=1)
        if any(start <= first < end for first, _ in spans)
    )
    return FirstBases(bases, contig, strand, spans, numbers)


def _runs(positions: Sequence[int]) -> tuple[Span, ...]:
    """Return positions as spans; a repeated position (ribosomal slippage) starts a new span."""
    runs = groupby(enumerate(positions), key=lambda pair: pair[1] - pair[0])
    spans = ([at for _, at in run] for _, run in runs)
    return tuple((span[0], span[-1] + 1) for span in spans)


def codon_positions(transcript: Transcript) -> tuple[int, ...]:
    """Return the positions of a CDS in the direction of the strand, from its first whole codon.

    Every third position, starting with the first, is the first base of a codon.
    """
    positions = [at for start, end in transcript.cds for at in range(start, end)]
    along = positions if transcript.strand == "+" else positions[::-1]
    return tuple(along[transcript.phase_bp or 0 :])


def gene_at(genome: Genome, place: str, most_bp: int) -> Gene | None:
    """Return the gene that a place names, or the first in a region, among genes with transcripts.

    Raises:
        GenomeError: the gene or region does not exist.
        UserError: the interval is longer than `most_bp`.
    """
    genes = genome.genes_in(genome.place(place, 0, most_bp))
    transcribed = [gene for gene in genes if gene.transcripts]
    named = [gene for gene in transcribed if place in (gene.name, gene.gene_id)]
    return next(iter(named + transcribed), None)


def described(reference: Reference, gene: Gene, transcript: Transcript) -> dict[str, Any]:
    """Return the summary of a gene according to one of its transcripts.

    Returns:
        `name`, `region` (1-based), `length_bp`, `strand`, number of `exons`, `coding_bp`, the
        edges of `introns` as `GT…AG`, `protein` by the genetic code of the transcript (empty if
        the code is not known), and `codons` with their counts.
    """
    where = (reference, transcript.contig)
    coding = spliced(*where, transcript.cds, gene.strand).upper()
    introns = [spliced(*where, [span], gene.strand).upper() for span in transcript.introns]
    code = code_of(transcript)
    codons = [coding[at : at + 3] for at in range(0, len(coding) // 3 * 3, 3)]
    return {
        "name": gene.name,
        "region": gene.interval.to_region(),
        "length_bp": gene.interval.length_bp,
        "strand": gene.strand,
        "exons": len(transcript.exons),
        "coding_bp": len(coding),
        "introns": [f"{intron[:2]}…{intron[-2:]}" for intron in introns],
        "protein": code.translate("".join(codons), ends_cds=True) if code else "",
        "codons": dict(sorted(Counter(codons).items())),
    }
