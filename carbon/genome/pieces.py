"""FASTA as a stream of pieces: a genome of any size, a contig of any length, in constant memory."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from carbon.errors import GenomeError
from carbon.genome.sequence_lines import FASTA_WORDING, Part, SequenceLines, checked
from carbon.io.files import why_no_file

_WORDING = replace(FASTA_WORDING, empty="has no sequence; give a FASTA")


class Piece(NamedTuple):
    """Consecutive bases of a contig, in the case of the file; `start` is 0-based."""

    contig: str
    start: int
    bases: bytes


def read_pieces(path: str | Path, piece_bp: int) -> Iterator[Piece]:
    """Yield the contigs of a FASTA in pieces of `piece_bp`, the last of a contig shorter.

    A contig without bases gives one empty piece. Lines may have any length.

    Args:
        path: plain, bgzip or gzip; `-` reads standard input.
        piece_bp: bases of a piece.

    Raises:
        GenomeError: at the first line that is not DNA in FASTA; what was good before it has been
            yielded.
    """
    path = Path(path)
    if piece_bp < 1:
        raise ValueError(f"piece_bp = {piece_bp}: give 1 or more")
    if str(path) != "-" and (not path.exists() or path.is_dir()):
        raise GenomeError(f"{path}: {why_no_file(path)}; give a FASTA, or - for standard input")
    yield from _cut(checked(SequenceLines(path, _WORDING)), piece_bp)


def _cut(parts: Iterable[Part], piece_bp: int) -> Iterator[Piece]:
    contig, start, bases = "", 0, bytearray()
    for header, text in parts:
        if header:
            yield from _last_of(contig, start, bases)
            contig, start, bases = header[0].decode("utf-8", "replace"), 0, bytearray()
        bases += text.replace(b"\n", b"")
        at = 0
        while len(bases) - at >= piece_bp:
            yield Piece(contig, start, bytes(bases[at : at + piece_bp]))
            start, at = start + piece_bp, at + piece_bp
        del bases[:at]
    yield from _last_of(contig, start, bases)


def _last_of(contig: str, start: int, bases: bytearray) -> Iterator[Piece]:
    if contig and (bases or not start):
        yield Piece(contig, start, bytes(bases))
