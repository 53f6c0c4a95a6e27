"""Amino acids of a transcript, and the positions of their codons on the contig."""

from typing import NamedTuple

from carbon.genome.annotation import code_of
from carbon.genome.fasta import Reference
from carbon.genome.genes import Transcript, spliced
from demo.gene_summary import codon_positions


class Residue(NamedTuple):
    """One codon; `places` are the 0-based positions of its bases in the direction of the strand."""

    number: int
    places: tuple[int, ...]
    amino_acid: str


def residues(reference: Reference, transcript: Transcript) -> list[Residue]:
    """Return the whole codons of a CDS by its genetic code, numbered from 1; `*` is a stop.

    Empty if the annotation lacks the CDS phase, or if the genetic code is unknown.
    """
    code = code_of(transcript)
    if transcript.phase_bp is None or code is None:
        return []
    places = codon_positions(transcript)
    spliced_bases = spliced(reference, transcript.contig, transcript.cds, transcript.strand)
    coding = spliced_bases[transcript.phase_bp :].upper()
    starts = range(0, len(places) - 2, 3)
    return [
        Residue(
            number,
            places[at : at + 3],
            code.translate(coding[at : at + 3], ends_cds=at + 3 == len(coding)),
        )
        for number, at in enumerate(starts, start=1)
    ]
