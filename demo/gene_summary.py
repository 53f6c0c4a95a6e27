"""Gene summaries, and the first coding bases of a gene."""

from collections import Counter
from typing import Any

from carbon.genome.annotation import code_of
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
