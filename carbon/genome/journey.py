"""A sequence on its way through the cell: where it stands, what is cut out, what it stands for."""

from typing import Any

from carbon.genome.alphabet import reverse_complement
from carbon.genome.cds_codes import code_of
from carbon.genome.described import (
    AS_IT_STANDS,
    described_at,
    exons_in_words,
    first_bases_in_words,
    many,
    place_in_words,
    splicing_in_words,
)
from carbon.genome.first_bases import FirstBases, first_bases_at
from carbon.genome.genetic_codes import STANDARD_TABLE, genetic_code
from carbon.genome.opened import Genome

MOST_GENE_BP = 5800
SEQUENCE_BP = 66


def first_of(genome: Genome, place: str) -> FirstBases:
    """Return the bases of a place that go on the way, as `first_bases_at` finds them."""
    return first_bases_at(genome, place, SEQUENCE_BP, MOST_GENE_BP)


def told_in_cell(genome: Genome, place: str, own: str = "") -> dict[str, Any]:
    """Return what is told of the first bases of a place, or of bases beside its gene.

    Args:
        genome: with the place.
        place: a gene's name, or `contig:first-last`.
        own: bases that are told of in stead of the place's.

    Returns:
        `sequence`; `regions` that it stands in along its strand, none of `own`; its
        `reverse_complement`; `protein` from its first base on, by the genetic code of the gene
        (each codon an X where that is not known) and else by the standard one; `gene` as
        `described` tells it, or None; `variant`, a transition of the last of the place's bases, or
        None; and `said`, sentences on `origin`, `place`, `splicing` and `exons`.

    Raises:
        GenomeError: there is no such gene or region.
        UserError: it is longer than `MOST_GENE_BP`.
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
    """Translate bases from the first on; coding ones by the genetic code of their gene."""
    gene = genome.gene_at(place, MOST_GENE_BP) if coding else None
    code = code_of(gene.transcripts[0]) if gene else genetic_code(STANDARD_TABLE)
    whole = bases[: len(bases) // 3 * 3].upper()
    return code.translate(whole) if code else "X" * (len(whole) // 3)
