"""FASTA as a stream of pieces: a genome of any size, a contig of any length, in constant memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from carbon.errors import GenomeError
from carbon.genome.alphabet import FASTA_LETTERS
from carbon.genome.streams import BROKEN_GZIP, LONE_CR, open_bytes

_BLOCK_BYTES = 1 << 20


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
    shown_as = "standard input" if str(path) == "-" else str(path)
    if piece_bp < 1:
        raise ValueError(f"piece_bp = {piece_bp}: give 1 or more")
    if shown_as == str(path) and (not Path(path).exists() or Path(path).is_dir()):
        raise GenomeError(f"{path}: no such file; give a FASTA, or - for standard input")
    parser = _Parser(shown_as, piece_bp)
    try:
        with open_bytes(Path(path)) as source:
            while block := source.read(_BLOCK_BYTES):
                yield from parser.feed(block)
    except BROKEN_GZIP as error:
        raise GenomeError(
            f"{shown_as}: broken after line {parser.line} ({error}); fetch it again"
        ) from None
    yield from parser.end()


class _Parser:
    """Holds what one block leaves for the next: part of a line, part of a piece."""

    def __init__(self, shown_as: str, piece_bp: int) -> None:
        self.line = 0  # the last one that is complete
        self._shown_as = shown_as
        self._piece_bp = piece_bp
        self._header = b""  # the beginning of one that goes on in the next block
        self._at_line_start = True
        self._contig: str | None = None
        self._contigs: set[str] = set()
        self._start = 0
        self._bases = bytearray()

    def feed(self, block: bytes) -> Iterator[Piece]:
        """Take a block of the file and yield the pieces that are full."""
        text, at = self._header + block, 0
        self._header = b""
        while at < len(text):
            if self._at_line_start and text.startswith(b">", at):
                end = text.find(b"\n", at) + 1
                if not end:
                    self._header = text[at:]
                    return
                yield from self._begin(text[at:end])
            else:
                end = text.find(b"\n>", at) + 1 or len(text)
                self._add(text[at:end])
                self._at_line_start = text.endswith(b"\n", at, end)
                yield from self._full_pieces()
            at = end

    def end(self) -> Iterator[Piece]:
        """Yield what is left of the last contig."""
        if self._header:  # the last line, without an end
            yield from self._begin(self._header)
        if self._contig is None:
            raise GenomeError(f"{self._shown_as}: has no sequence; give a FASTA")
        yield from self._last_piece()

    def _begin(self, header: bytes) -> Iterator[Piece]:
        yield from self._last_piece()
        self.line += 1
        words = header[1:].split(maxsplit=1)
        where = f"{self._shown_as} line {self.line}"
        if b"\r" in header.rstrip(b"\r\n"):
            raise GenomeError(f"{where}: {LONE_CR}")
        if not words or header[1:2].isspace():
            raise GenomeError(f"{where}: a contig without a name; write it right after '>'")
        self._contig = words[0].decode("utf-8", errors="replace")
        if self._contig in self._contigs:
            raise GenomeError(f"{where}: contig '{self._contig}' stands twice; keep one")
        self._contigs.add(self._contig)
        self._start = 0

    def _add(self, lines: bytes) -> None:
        bases = lines.translate(None, b"\r\n")
        if self._contig is None and bases.strip():
            raise GenomeError(
                f"{self._shown_as} line {self.line + 1}: expected a header that begins with '>'; "
                "is this a FASTA file?"
            )
        if self._contig is None:
            bases = b""
        elif wrong := bases.translate(None, FASTA_LETTERS):
            line = self.line + 1 + lines.count(b"\n", 0, lines.index(wrong[:1]))
            raise GenomeError(
                f"{self._shown_as} line {line}: {wrong[:1].decode('latin-1')!r} is not a DNA "
                "letter (ACGT, N and IUPAC codes); is this a protein or a damaged file?"
            )
        self.line += lines.count(b"\n")
        self._bases += bases

    def _full_pieces(self) -> Iterator[Piece]:
        at = 0
        while len(self._bases) - at >= self._piece_bp:
            yield self._piece(bytes(self._bases[at : at + self._piece_bp]))
            at += self._piece_bp
        del self._bases[:at]

    def _last_piece(self) -> Iterator[Piece]:
        if self._contig is not None and (self._bases or self._start == 0):
            yield self._piece(bytes(self._bases))
            self._bases.clear()

    def _piece(self, bases: bytes) -> Piece:
        assert self._contig is not None
        piece = Piece(self._contig, self._start, bases)
        self._start += len(bases)
        return piece
