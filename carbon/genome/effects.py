"""What a change of one base does to a transcript."""

from typing import NamedTuple

from carbon.genome.alphabet import reverse_complement, translate
from carbon.genome.fasta import Reference
from carbon.genome.genes import Transcript, spliced
from carbon.genome.variant import Variant

_SPLICE_BP = 2  # GT and AG, at either end of an intron
_CODON_BP = 3


class SnvEffect(NamedTuple):
    """An effect on a transcript, named as the Sequence Ontology does.

    Attributes:
        term: `synonymous_variant`, `missense_variant`, `start_lost`, `stop_gained`, `stop_lost`,
            `stop_retained_variant`, `splice_donor_variant` or `splice_acceptor_variant`.
        change: the amino acid before, the number of its codon from 1, and the amino acid after it,
            such as `Q39*`; empty for those of an intron.
    """

    term: str
    change: str


def snv_effect(reference: Reference, transcript: Transcript, variant: Variant) -> SnvEffect | None:
    """Return what an SNV does to a transcript by the standard code.

    None if it is no SNV, lies outside the CDS and the ends of the introns, its codon has an unknown
    base, or the CDS is incomplete or no whole number of codons.
    """
    is_snv = len(variant.ref) == len(variant.alt) == 1
    if variant.contig != transcript.contig or not is_snv:
        return None
    offset = _cds_offset(transcript, variant.position)
    if offset is None:
        return _intron_effect(transcript, variant.position)
    cds = spliced(reference, transcript.contig, transcript.cds, transcript.strand).upper()
    if transcript.incomplete or len(cds) % _CODON_BP:
        return None
    first, within = offset - offset % _CODON_BP, offset % _CODON_BP
    codon = cds[first : first + _CODON_BP]
    alt = variant.alt if transcript.strand == "+" else reverse_complement(variant.alt)
    before, after = (translate(c) for c in (codon, codon[:within] + alt + codon[within + 1 :]))
    if "X" in before + after:
        return None
    return SnvEffect(_coding_term(first, before, after), f"{before}{first // _CODON_BP + 1}{after}")


def _cds_offset(transcript: Transcript, position: int) -> int | None:
    """Return where a base of the contig stands in the CDS, as the strand reads it."""
    before_bp = 0
    for start, end in transcript.cds:
        if start <= position < end:
            offset = before_bp + position - start
            return offset if transcript.strand == "+" else transcript.cds_length_bp - 1 - offset
        before_bp += end - start
    return None


def _coding_term(first: int, before: str, after: str) -> str:
    if before == "*":
        return "stop_retained_variant" if after == "*" else "stop_lost"
    if after == "*":
        return "stop_gained"
    if first == 0 and before != after:
        return "start_lost"
    return "synonymous_variant" if before == after else "missense_variant"


def _intron_effect(transcript: Transcript, position: int) -> SnvEffect | None:
    for start, end in transcript.introns:
        left, right = start <= position < start + _SPLICE_BP, end - _SPLICE_BP <= position < end
        if left or right:
            is_donor = left == (transcript.strand == "+")
            return SnvEffect(f"splice_{'donor' if is_donor else 'acceptor'}_variant", "")
    return None
