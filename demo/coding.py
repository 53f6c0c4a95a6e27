"""Codons of a transcript, and the SNVs of a place, as the pages number and draw them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from carbon.genome.annotation import code_of
from carbon.genome.fasta import Reference
from carbon.genome.genes import Gene, Transcript, spliced
from carbon.genome.interval import Interval, Variant
from carbon.inference.scan.score import SCANNED_BASES


class Residue(NamedTuple):
    """One codon; `places` are the 0-based positions of its bases in the direction of the strand."""

    number: int
    places: tuple[int, ...]
    amino_acid: str


def codon_positions(transcript: Transcript) -> tuple[int, ...]:
    """Return the positions of a CDS in the direction of the strand, from its first whole codon.

    Every third position, starting with the first, is the first base of a codon.
    """
    positions = [at for start, end in transcript.cds for at in range(start, end)]
    along = positions if transcript.strand == "+" else positions[::-1]
    return tuple(along[transcript.phase_bp or 0 :])


def whole_codons(reference: Reference, transcript: Transcript) -> str:
    """Return the bases at `codon_positions`, along the strand and in upper case."""
    bases = spliced(reference, transcript.contig, transcript.cds, transcript.strand)
    return bases[transcript.phase_bp or 0 :].upper()


def first_coding_bases(reference: Reference, transcript: Transcript, length_bp: int) -> str | None:
    """Return the first bases of a CDS, from its first whole codon on; None if it is shorter."""
    bases = whole_codons(reference, transcript)[:length_bp]
    return bases if len(bases) == length_bp else None


def residues(reference: Reference, transcript: Transcript) -> list[Residue]:
    """Return the whole codons of a CDS by its genetic code, numbered from 1; `*` is a stop.

    Empty if the annotation lacks the CDS phase, or if the genetic code is unknown.
    """
    code = code_of(transcript)
    if transcript.phase_bp is None or code is None:
        return []
    places, coding = codon_positions(transcript), whole_codons(reference, transcript)
    return [
        Residue(
            number,
            places[at : at + 3],
            code.translate(coding[at : at + 3], ends_cds=at + 3 == len(coding)),
        )
        for number, at in enumerate(range(0, len(places) - 2, 3), start=1)
    ]


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


def snvs_in(reference: Reference, interval: Interval) -> Iterator[Variant]:
    """Yield all SNVs of a region; unknown bases have none."""
    for position, ref in enumerate(reference.fetch(interval).upper(), start=interval.start):
        for alt in SCANNED_BASES:
            if ref != alt and ref in SCANNED_BASES:
                yield Variant(interval.contig, position, ref, alt)
