"""Gene summaries, and the first coding bases of a gene."""

from typing import Any

from carbon.genome.fasta import Reference
from carbon.genome.genes import Gene, Transcript, spliced


def first_coding_bases(reference: Reference, transcript: Transcript, length_bp: int) -> str | None:
    """Return the first bases of a CDS along its strand, from its first whole codon on.

    In upper case; None if the CDS is shorter.
    """
    left_out = transcript.phase_bp or 0
    coding = spliced(reference, transcript.contig, transcript.cds, transcript.strand).upper()
    bases = coding[left_out : left_out + length_bp]
    return bases if len(bases) == length_bp else None


def codon_positions(transcript: Transcript) -> tuple[int, ...]:
    """Return the positions of a CDS in the direction of the strand, from its first whole codon.

    Every third position, starting with the first, is the first base of a codon.
    """
    positions = [at for start, end in transcript.cds for at in range(start, end)]
    along = positions if transcript.strand == "+" else positions[::-1]
    return tuple(along[transcript.phase_bp or 0 :])


def described(reference: Reference, gene: Gene, transcript: Transcript) -> dict[str, Any]:
    """Return the summary of a gene according to one of its transcripts.

    Returns:
        `name`, `length_bp`, `coding_bp`, and the edges of `introns` as `GT…AG`.
    """
    contig, strand = transcript.contig, gene.strand
    introns = [spliced(reference, contig, [span], strand).upper() for span in transcript.introns]
    return {
        "name": gene.name,
        "length_bp": gene.interval.length_bp,
        "coding_bp": transcript.cds_length_bp,
        "introns": [f"{intron[:2]}…{intron[-2:]}" for intron in introns],
    }
