"""A gene in words and numbers, ready for JSON."""

from collections import Counter
from typing import Any

from carbon.genome.alphabet import translate
from carbon.genome.fasta import Reference
from carbon.genome.genes import Gene, Transcript, spliced
from carbon.genome.opened import Genome


def described(reference: Reference, gene: Gene, transcript: Transcript) -> dict[str, Any]:
    """Return what is told of a gene by one of its transcripts.

    Returns:
        `name`, `region` (1-based), `length_bp`, `strand`, number of `exons`, `coding_bp`, the
        edges of `introns` as `GT…AG`, `protein` by the standard code, `codons` with their numbers.
    """
    where = (reference, transcript.contig)
    coding = spliced(*where, transcript.cds, gene.strand).upper()
    introns = [spliced(*where, [span], gene.strand).upper() for span in transcript.introns]
    codons = [coding[at : at + 3] for at in range(0, len(coding) // 3 * 3, 3)]
    return {
        "name": gene.name,
        "region": gene.interval.to_region(),
        "length_bp": gene.interval.length_bp,
        "strand": gene.strand,
        "exons": len(transcript.exons),
        "coding_bp": len(coding),
        "introns": [f"{intron[:2]}…{intron[-2:]}" for intron in introns],
        "protein": translate("".join(codons)),
        "codons": dict(sorted(Counter(codons).items())),
    }


def described_at(genome: Genome, place: str, most_bp: int) -> dict[str, Any] | None:
    """Return what is told of a gene by its first transcript; None where no gene is.

    Raises:
        GenomeError: there is no such gene or region.
        UserError: it is longer than `most_bp`.
    """
    gene = genome.gene_at(place, most_bp)
    return described(genome.reference, gene, gene.transcripts[0]) if gene else None
