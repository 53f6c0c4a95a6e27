"""Open reading frames of a sequence."""

from collections.abc import Iterator
from typing import NamedTuple

from carbon.genome.alphabet import reverse_complement, translate
from carbon.genome.interval import Strand

_CODON_BP = 3


class OpenFrame(NamedTuple):
    """A stretch from a start codon to the stop codon of its frame, or to the sequence's end.

    Attributes:
        start: 0-based, of the sequence as it is given, whatever the strand.
        end: behind the last base.
        strand: on which it is read.
        protein: its amino acids, without the stop.
        has_stop: whether a stop codon ends it.
    """

    start: int
    end: int
    strand: Strand
    protein: str
    has_stop: bool


def open_frames(bases: str, least_codons: int) -> list[OpenFrame]:
    """Return the open reading frames of both strands, by start; each from its first ATG.

    Args:
        bases: DNA, in either case.
        least_codons: amino acids that one has at least.

    >>> open_frames("CATGGCCTAAC", 2)
    [OpenFrame(start=1, end=10, strand='+', protein='MA', has_stop=True)]
    """
    strands: tuple[tuple[Strand, str], ...] = (("+", bases), ("-", reverse_complement(bases)))
    found = []
    for strand, read in strands:
        for start, end, protein, has_stop in _of_strand(read.upper()):
            if len(protein) >= least_codons:
                span = (start, end) if strand == "+" else (len(bases) - end, len(bases) - start)
                found.append(OpenFrame(*span, strand, protein, has_stop))
    return sorted(found)


def _of_strand(bases: str) -> Iterator[tuple[int, int, str, bool]]:
    """Yield start, end, protein and whether there is a stop, frame by frame."""
    for frame in range(_CODON_BP):
        whole_bp = (len(bases) - frame) // _CODON_BP * _CODON_BP
        at = frame
        for part, is_last in _parts(translate(bases[frame : frame + whole_bp])):
            end = at + _CODON_BP * (len(part) + (not is_last))
            met = part.find("M")
            if met >= 0:
                yield at + _CODON_BP * met, end, part[met:], not is_last
            at = end


def _parts(protein: str) -> Iterator[tuple[str, bool]]:
    *stopped, last = protein.split("*")
    yield from ((part, False) for part in stopped)
    yield last, True
