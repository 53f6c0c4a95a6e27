"""Open reading frames of a sequence, on both strands."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from carbon.genome import Strand, reverse_complement, translate

_CODON_BP = 3
_OPEN = re.compile(r"(M[^*]*)(\*?)")


class OpenFrame(NamedTuple):
    """An open reading frame: from a start codon to a stop codon or the end of the sequence.

    Attributes:
        start: 0-based start in the sequence, on either strand.
        end: end, exclusive.
        strand: strand of the frame.
        protein: amino acids, without the stop.
        has_stop: whether a stop codon ends it.
    """

    start: int
    end: int
    strand: Strand
    protein: str
    has_stop: bool


def open_frames(bases: str, least_codons: int) -> list[OpenFrame]:
    """Return the open reading frames of both strands, each from its first ATG, by start.

    Args:
        bases: DNA, in either case.
        least_codons: minimum number of amino acids.

    >>> open_frames("CATGGCCTAAC", 2)
    [OpenFrame(start=1, end=10, strand='+', protein='MA', has_stop=True)]
    """
    strands: tuple[tuple[Strand, str], ...] = (("+", bases), ("-", reverse_complement(bases)))
    frames = []
    for strand, read in strands:
        for start, end, protein, has_stop in _of_strand(read):
            if len(protein) >= least_codons:
                span = (start, end) if strand == "+" else (len(bases) - end, len(bases) - start)
                frames.append(OpenFrame(*span, strand, protein, has_stop))
    return sorted(frames)


def _of_strand(bases: str) -> Iterator[tuple[int, int, str, bool]]:
    """Yield start, end, protein and whether it ends with a stop codon, frame by frame."""
    for frame in range(_CODON_BP):
        whole = bases[frame : len(bases) - (len(bases) - frame) % _CODON_BP]
        for match in _OPEN.finditer(translate(whole)):
            start, end = (frame + _CODON_BP * at for at in match.span())
            yield start, end, match[1], match[2] == "*"
