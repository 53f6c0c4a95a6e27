"""A record on its way into the corpus.

A record is segments of one contig, each read along its strand, joined in reading order: one for a
region, one an exon for a transcript. From them every base can be traced back to its place.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from carbon.genome import Interval, Reference, Strand, reverse_complement


class Segment(NamedTuple):
    """Bases `start` to `end` of a contig, 0-based; `-` is read as the reverse complement.

    On a circular contig `end` may be past its length: it goes on from base 0.
    """

    start: int
    end: int
    strand: Strand


@dataclass(slots=True)
class Record:
    """Where a record lies and what it is, before its bases are fetched."""

    contig: str
    segments: tuple[Segment, ...]
    gene_type: str
    name: str

    def place(self) -> tuple[int, int, str]:
        """Return the outermost bases of all segments, and their strand, `.` where they differ."""
        if len(self.segments) == 1:
            return self.segments[0]
        starts, ends, strands = zip(*self.segments, strict=True)
        return min(starts), max(ends), strands[0] if len(set(strands)) == 1 else "."

    def intervals(self, contig_length_bp: int) -> list[Interval]:
        """Return where the segments lie, those past the end of a circular contig brought back."""
        result = []
        for start, end, _ in self.segments:
            turns = start // contig_length_bp
            start, end = start - turns * contig_length_bp, end - turns * contig_length_bp
            result.append(Interval(self.contig, start, min(end, contig_length_bp)))
            if end > contig_length_bp:
                result.append(Interval(self.contig, 0, end - contig_length_bp))
        return result


def read_bases(reference: Reference, contig: str, segments: Iterable[Segment]) -> str:
    """Return the bases of segments, joined in reading order, in the case of the file."""
    return "".join(
        bases if segment.strand == "+" else reverse_complement(bases)
        for segment in segments
        for bases in (reference.fetch_circular(contig, segment.start, segment.end),)
    )


def digest_of(sequence: str) -> int:
    """Return 64 bits that a sequence in any case and its reverse complement share."""
    return digests_of([sequence])[0]


def digests_of(sequences: Sequence[str]) -> list[int]:
    """Return `digest_of` some sequences, whose other strands are made all at once."""
    ends = accumulate(map(len, sequences), initial=0)
    text = "".join(sequences).upper()
    forward, backward = text.encode("ascii"), reverse_complement(text).encode("ascii")
    size = len(forward)
    return [
        _bits_of(min(forward[start:end], backward[size - end : size - start]))
        for start, end in pairwise(ends)
    ]


def _bits_of(letters: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(letters, digest_size=8).digest(), "little")
