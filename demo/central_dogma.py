"""Amino acids of a transcript, and the positions of their codons on the contig."""

from typing import Any, NamedTuple

from carbon.genome.alphabet import STANDARD_TABLE, genetic_code, reverse_complement
from carbon.genome.annotation import code_of
from carbon.genome.fasta import Reference
from carbon.genome.genes import Transcript, spliced
from carbon.genome.genome import Genome
from demo.gene_summary import (
    AS_IT_STANDS,
    FirstBases,
    described_at,
    exons_in_words,
    first_bases_at,
    first_bases_in_words,
    gene_at,
    many,
    place_in_words,
    splicing_in_words,
)


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
    places = [place for start, end in transcript.cds for place in range(start, end)]
    read = places if transcript.strand == "+" else places[::-1]
    coding = spliced(reference, transcript.contig, transcript.cds, transcript.strand).upper()
    starts = range(transcript.phase_bp, len(read) - 2, 3)
    return [
        Residue(
            number,
            tuple(read[at : at + 3]),
            code.translate(coding[at : at + 3], ends_cds=at + 3 == len(coding)),
        )
        for number, at in enumerate(starts, start=1)
    ]


MOST_GENE_BP = 5800
SEQUENCE_BP = 66


def first_of(genome: Genome, place: str) -> FirstBases:
    """Return the bases of a place that the primer follows, as `first_bases_at` selects them."""
    return first_bases_at(genome, place, SEQUENCE_BP, MOST_GENE_BP)


def told_in_cell(genome: Genome, place: str, own: str = "") -> dict[str, Any]:
    """Return the facts on the first bases of a place, or on a visitor's own bases.

    Args:
        genome: genome that contains the place.
        place: a gene's name, or `contig:first-last`.
        own: bases to use instead of the place's bases.

    Returns:
        `sequence`; its `regions` in the direction of its strand, empty for `own`; its
        `reverse_complement`; `protein` from its first base by the genetic code of the gene if the
        bases are its coding bases (each codon an X if that code is unknown), else by the standard
        code; `gene` as `described` returns it, or None; `variant`, a transition of the last of the
        place's bases, or None; and `said`, sentences on `origin`, `place`, `splicing` and `exons`.

    Raises:
        GenomeError: the gene or region does not exist.
        UserError: the place is longer than `MOST_GENE_BP`.
    """
    first, gene = first_of(genome, place), described_at(genome, place, MOST_GENE_BP)
    sequence = own or first.bases
    origin, exons = first_bases_in_words(first, gene, place), exons_in_words(first)
    if own:
        beside = f" The gene {gene['name']} stands beside it." if gene else ""
        origin, exons = f"your own, of {many(len(own), 'base')}.{beside}", AS_IT_STANDS
    changed = first.last_transition(genome.reference.contig_lengths_bp[first.contig])
    return {
        "sequence": sequence,
        "regions": [] if own else first.regions,
        "reverse_complement": reverse_complement(sequence),
        "protein": _translated(genome, place, sequence, coding=bool(first.exons) and not own),
        "gene": gene,
        "variant": changed.to_text() if changed else None,
        "said": {
            "origin": origin,
            "place": place_in_words(gene),
            "splicing": splicing_in_words(gene) if gene else "",
            "exons": exons,
        },
    }


def _translated(genome: Genome, place: str, bases: str, *, coding: bool) -> str:
    """Translate bases from the first base; coding bases by the genetic code of their gene."""
    gene = gene_at(genome, place, MOST_GENE_BP) if coding else None
    code = code_of(gene.transcripts[0]) if gene else genetic_code(STANDARD_TABLE)
    whole = bases[: len(bases) // 3 * 3].upper()
    return code.translate(whole) if code else "X" * (len(whole) // 3)
