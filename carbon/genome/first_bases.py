"""The first coding bases of a gene, or the first of a place without one, and where they stand."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from carbon.genome.alphabet import reverse_complement
from carbon.genome.fasta import Reference
from carbon.genome.genes import Span, Transcript, spliced
from carbon.genome.interval import Interval, Strand
from carbon.genome.opened import Genome
from carbon.genome.variant import Variant

_TRANSITION = {"A": "G", "G": "A", "C": "T", "T": "C"}


@dataclass(frozen=True, slots=True)
class FirstBases:
    """Bases as they are read one after the other, introns cut out.

    Attributes:
        bases: along the strand, in capitals.
        contig: they stand on.
        strand: they are read along.
        spans: of the contig, ascending.
        exons: numbers of the exons they lie in, from 1 and along the strand; none where they are
            not coding.
    """

    bases: str
    contig: str
    strand: Strand
    spans: tuple[Span, ...]
    exons: tuple[int, ...] = ()

    @property
    def regions(self) -> list[str]:
        """Their spans as `contig:first-last`, in the order in which they are read."""
        spans = self.spans if self.strand == "+" else self.spans[::-1]
        return [Interval(self.contig, start, end).to_region() for start, end in spans]

    def last_transition(self, contig_bp: int) -> Variant | None:
        """Return the last base changed, A and G or C and T for one another; None of an N.

        Args:
            contig_bp: length of the contig, past which spans of a circular one may go.
        """
        is_forward = self.strand == "+"
        at = self.spans[-1][1] - 1 if is_forward else self.spans[0][0]
        ref = self.bases[-1] if is_forward else reverse_complement(self.bases[-1])
        alt = _TRANSITION.get(ref)
        return Variant(self.contig, at % contig_bp, ref, alt) if alt else None


def first_bases_at(genome: Genome, place: str, length_bp: int, most_bp: int) -> FirstBases:
    """Return the first coding bases of a place's gene by its first transcript.

    Where no gene with a transcript is, or its coding sequence is shorter, they are the first bases
    of the place on the forward strand, fewer where the place has fewer.

    Raises:
        GenomeError: there is no such gene or region.
        UserError: it is longer than `most_bp`.
    """
    gene = genome.gene_at(place, most_bp)
    if gene and (found := first_coding_bases(genome.reference, gene.transcripts[0], length_bp)):
        return found
    there = genome.place(place, 0, most_bp)
    first = Interval(there.contig, there.start, min(there.start + length_bp, there.end))
    bases = genome.reference.fetch(first).upper()
    return FirstBases(bases, first.contig, "+", ((first.start, first.end),))


def first_coding_bases(
    reference: Reference, transcript: Transcript, length_bp: int
) -> FirstBases | None:
    """Return the first bases of a CDS from its first whole codon on; None where it has fewer."""
    positions = transcript.codon_positions[:length_bp]
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
    """Return positions as spans; one that comes twice, where a ribosome slips back, begins anew."""
    runs = groupby(enumerate(positions), key=lambda pair: pair[1] - pair[0])
    spans = ([at for _, at in run] for _, run in runs)
    return tuple((span[0], span[-1] + 1) for span in spans)
