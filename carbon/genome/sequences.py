"""A stream of named sequences from FASTA or FASTQ, for what needs no random access."""

from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import IO, NamedTuple

from carbon.errors import GenomeError
from carbon.genome.alphabet import FASTA_LETTERS
from carbon.genome.fasta import check_bgzip_end, check_fasta, compression_of
from carbon.genome.streams import BROKEN_GZIP, LONE_CR, open_bytes


class Record(NamedTuple):
    """A sequence of a FASTA or FASTQ; the description is what follows its name in the header."""

    name: str
    description: str
    bases: str


def read_sequences(path: str | Path) -> Iterator[tuple[str, str]]:
    """Return `(name, bases)` of what `read_records` returns.

    Raises:
        GenomeError: as there.
    """
    return ((record.name, record.bases) for record in read_records(path))


def read_records(path: str | Path) -> Iterator[Record]:
    """Return the records of FASTA or FASTQ, plain, bgzip or gzip, one in memory at a time.

    A FASTA file is checked as a whole before the first record is given; FASTQ and what comes
    through standard input (`-`) record by record.

    Raises:
        GenomeError: the file is missing, empty, truncated or not DNA in one of the formats.
    """
    path = Path(path)
    is_stream = str(path) == "-"
    if not (is_stream or path.is_file()):
        raise GenomeError(f"{path}: no such file; give a FASTA or FASTQ, or - for standard input")
    if not is_stream and compression_of(path) == "bgzip":
        check_bgzip_end(path)
    if not (is_stream or _is_fastq(path)):
        check_fasta(path, shown_as=path)
    return _records(path)


def _is_fastq(path: Path) -> bool:
    try:
        with open_bytes(path) as source:
            return source.read(1) == b"@"
    except BROKEN_GZIP:
        return False  # said where the FASTA is checked


def _records(path: Path) -> Iterator[Record]:
    lines = _Lines("standard input" if str(path) == "-" else str(path))
    try:
        with open_bytes(path) as source:
            yield from lines.records(source)
    except BROKEN_GZIP as error:
        raise lines.error(f"is broken behind this ({error}); fetch it again") from None


class _Lines:
    """The lines of FASTA or FASTQ, and where it is wrong."""

    def __init__(self, shown_as: str) -> None:
        self._shown_as = shown_as
        self._number = 0

    def error(self, wrong: str) -> GenomeError:
        """Return what is wrong with the line that was read last."""
        return GenomeError(f"{self._shown_as} line {self._number}: {wrong}")

    def records(self, source: IO[bytes]) -> Iterator[Record]:
        lines = self._lines(source)
        header = next(filter(None, lines), None)
        if header is None:
            raise GenomeError(f"{self._shown_as}: has no sequence; give a FASTA or FASTQ")
        if header[:1] not in (b">", b"@"):
            raise self.error("expected a header that begins with '>' or '@'; is this a FASTA file?")
        yield from (self._fasta if header[:1] == b">" else self._fastq)(header, lines)

    def _lines(self, source: IO[bytes]) -> Iterator[bytes]:
        for self._number, line in enumerate(source, start=1):
            if b"\r" in line[:-2]:
                raise self.error(LONE_CR)
            yield line.rstrip()

    def _fasta(self, header: bytes, lines: Iterator[bytes]) -> Iterator[Record]:
        name, bases = self._named(header), bytearray()
        for line in lines:
            if line.startswith(b">"):
                yield Record(*name, bases.decode())
                name, bases = self._named(line), bytearray()
            else:
                bases += self._bases(line)
        yield Record(*name, bases.decode())

    def _fastq(self, header: bytes | None, lines: Iterator[bytes]) -> Iterator[Record]:
        while header is not None:
            if not header.startswith(b"@"):
                raise self.error("expected a header that begins with '@'; is the file damaged?")
            name = self._named(header)
            letters = takewhile(lambda line: not line.startswith(b"+"), lines)
            bases = b"".join(map(self._bases, letters)).decode()
            num_missing = len(bases)
            while num_missing > 0 and (quality := next(lines, None)) is not None:
                num_missing -= len(quality)
            if num_missing:
                raise self.error(
                    f"record '{name[0]}' has no quality, or not one for each base; is the file cut "
                    "off?"
                )
            yield Record(*name, bases)
            header = next(filter(None, lines), None)

    def _named(self, header: bytes) -> tuple[str, str]:
        """Return name and description."""
        words = header[1:].decode("utf-8", errors="replace").split(maxsplit=1)
        if not words or header[1:2].isspace():
            raise self.error("a record without a name; write it right behind the first letter")
        return words[0], words[1] if len(words) > 1 else ""

    def _bases(self, line: bytes) -> bytes:
        if wrong := line.translate(None, FASTA_LETTERS):
            letter = wrong[:1].decode("latin-1")
            raise self.error(
                f"{letter!r} is not a DNA letter (ACGT, N and IUPAC codes); is this a protein or a "
                "damaged file?"
            )
        return line
