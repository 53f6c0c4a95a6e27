"""Codons of a transcript, changes of one amino acid, and the SNVs of a place."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from Bio.Data.IUPACData import protein_letters_3to1

from carbon.errors import UserError
from carbon.genome import Interval, Reference, Variant, reverse_complement, snv_effect
from carbon.genome.annotation import code_of
from carbon.genome.genes import Gene, Transcript, spliced
from carbon.genome.genome import Genome
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


def described(reference: Reference, gene: Gene) -> dict[str, Any]:
    """Return the summary of a gene according to its first transcript.

    Returns:
        `name`, `length_bp`, `coding_bp`, and the edges of `introns` as `GT…AG`.
    """
    transcript = gene.transcripts[0]
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


_AMINO_ACID = "[A-Za-z]{3}|[A-Za-z]"
CHANGE = re.compile(
    rf"(?:p\.)?\(?(?P<ref>{_AMINO_ACID}|\*)(?P<number>[1-9]\d{{0,5}})(?P<alt>{_AMINO_ACID}|\*|=)\)?"
)


_ONE_LETTER: dict[str, str] = protein_letters_3to1 | {"Ter": "*"}
_SHOWN_TERMS = ("stop_gained", "missense_variant", "synonymous_variant")
_SHOWN_CODONS = {"ENO2": 52}


class ProteinChange(NamedTuple):
    """A changed amino acid.

    Attributes:
        ref: one-letter code of the reference; `*` is a stop.
        number: number of the residue, from 1.
        alt: one-letter code of the new amino acid.
    """

    ref: str
    number: int
    alt: str


def read_change(text: str) -> ProteinChange | None:
    """Return a change in one- or three-letter codes, with or without `p.`; None for other texts.

    >>> read_change("p.Glu52Ter"), read_change("E52=")
    (ProteinChange(ref='E', number=52, alt='*'), ProteinChange(ref='E', number=52, alt='E'))
    """
    match = CHANGE.fullmatch(text)
    if match is None:
        return None
    ref, alt = (_one_letter(match[name]) for name in ("ref", "alt"))
    return ProteinChange(ref, int(match["number"]), ref if alt == "=" else alt)


def variant_of_change(
    genome: Genome, gene: Gene, transcript: Transcript, change: ProteinChange
) -> Variant:
    """Return the variant with the fewest changed bases that makes a change; of equals, the first.

    Args:
        genome: genome of the gene.
        gene: a gene.
        transcript: its transcript that numbers the residues.
        change: the changed amino acid.

    Raises:
        UserError: the protein has no such residue, or an intron divides the codon where two of its
            bases would change.
    """
    residue = _residue(genome, gene, transcript, change)
    codon = "".join(_base(genome, gene, place) for place in residue.places)
    code = code_of(transcript)
    assert code is not None  # `residues` is empty without a code
    codons = [c for c in _codons_of(code.amino_acids, code.stops, change.alt) if c != codon]
    if not codons:
        raise UserError(f"{gene.name} {change.ref}{change.number}: no other codon encodes it")
    nearest = min(codons, key=lambda other: (sum(map(str.__ne__, codon, other)), other))
    places = [p for p, a, b in zip(residue.places, codon, nearest, strict=True) if a != b]
    if max(places) - min(places) > 2:
        raise UserError(f"{gene.name} codon {change.number}: an intron divides it; give bases")
    span = range(min(places), max(places) + 1)
    new = dict(zip(residue.places, nearest, strict=True))
    reference = genome.reference.fetch(Interval(gene.interval.contig, span.start, span.stop))
    forward = gene.strand == "+"
    alt = "".join(new[p] if forward else reverse_complement(new[p]) for p in span)
    return Variant(gene.interval.contig, span.start, reference.upper(), alt)


def changes_side_by_side(
    genome: Genome, gene: Gene, position: int | None = None
) -> dict[str, Variant]:
    """Return SNVs of one codon by consequence: a stop, a missense and a synonymous change.

    Args:
        genome: genome of the gene.
        gene: a gene.
        position: position of the contig whose codon is changed, even if it lacks one of the three;
            without it, a codon that has all three, from the middle of the gene on.
    """
    protein = residues(genome.reference, gene.transcripts[0]) if gene.transcripts else []
    if position is not None:
        codons = [residue for residue in protein if position in residue.places]
    else:
        start = _SHOWN_CODONS.get(gene.name, len(protein) // 2 + 1) - 1
        codons = protein[start:]
    for residue in codons:
        snvs = _snvs_of_codon(genome, gene, residue)
        if position is not None or len(snvs) == len(_SHOWN_TERMS):
            return snvs
    return {}


def _snvs_of_codon(genome: Genome, gene: Gene, residue: Residue) -> dict[str, Variant]:
    """Return the first SNV of each shown consequence, along the strand."""
    transcript, snvs = gene.transcripts[0], dict[str, Variant]()
    for place in residue.places:
        for variant in snvs_in(genome.reference, Interval(transcript.contig, place, place + 1)):
            effect = snv_effect(genome.reference, transcript, variant)
            if effect and effect.term in _SHOWN_TERMS:
                snvs.setdefault(effect.term, variant)
    return {term: snvs[term] for term in _SHOWN_TERMS if term in snvs}


def _residue(genome: Genome, gene: Gene, transcript: Transcript, change: ProteinChange) -> Residue:
    protein = residues(genome.reference, transcript)
    if not protein:
        raise UserError(f"{gene.name}: has no coding sequence to count residues in; give bases")
    if change.number > len(protein):
        raise UserError(f"{gene.name} has {len(protein):,} residues, not {change.number:,}")
    residue = protein[change.number - 1]
    if residue.amino_acid != change.ref:
        raise UserError(
            f"residue {change.number} of {gene.name} is {residue.amino_acid}, not {change.ref}"
        )
    return residue


def _base(genome: Genome, gene: Gene, place: int) -> str:
    base = genome.reference.fetch(Interval(gene.interval.contig, place, place + 1)).upper()
    return base if gene.strand == "+" else reverse_complement(base)


def _codons_of(amino_acids: Mapping[str, str], stops: Iterable[str], amino_acid: str) -> list[str]:
    if amino_acid == "*":
        return sorted(stops)
    return sorted(codon for codon, own in amino_acids.items() if own == amino_acid)


def _one_letter(code: str) -> str:
    return _ONE_LETTER.get(code.capitalize(), "X") if len(code) == 3 else code.upper()
