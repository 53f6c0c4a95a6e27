"""Read FASTA, FASTQ and other text files, plain, gzip or bgzip, from disk or standard input.

Sequences are streamed, and every letter is checked.
"""

import gzip
import io
import sys
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, takewhile
from pathlib import Path
from typing import IO, NamedTuple, cast

from carbon.errors import GenomeError
from carbon.genome.alphabet import FASTA_LETTERS, why_protein
from carbon.io.files import why_no_file

# Errors of a broken gzip stream: truncated, bad header or checksum, bad data.
BROKEN_GZIP = (EOFError, gzip.BadGzipFile, zlib.error)
# The empty block at the end of a bgzip file (SAM v1, 4.1.2).
BGZIP_END = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
# The longest chromosomes have some 10^9 bases; a small gzip may unpack to one endless line.
MOST_LINE_BYTES = 2**30
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # UTF-8
TO_UTF_8 = "convert the file, for example with `iconv -f latin1 -t utf-8`"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def open_bytes(path: Path) -> io.BufferedReader | gzip.GzipFile:
    """Open a file for reading, unpacking gzip, which is recognised by its first two bytes.

    `-` is standard input. Reading a truncated gzip raises one of `BROKEN_GZIP` at its end.

    Raises:
        GenomeError: the file is text in UTF-16, or standard input is closed.
    """
    # A pipe can be read only once, so nothing is opened twice.
    if str(path) == "-" and sys.stdin is None:
        raise GenomeError("standard input: is closed; give a file, or pipe something into it")
    source = cast("io.BufferedReader", sys.stdin.buffer if str(path) == "-" else path.open("rb"))
    start = source.peek(16)[:16]
    if start[:2] in _UTF_16_MARKS:
        raise GenomeError(
            f"{shown_name(path)}: is UTF-16 text; convert it with `iconv -f utf-16 -t utf-8`"
        )
    if start[:2] != b"\x1f\x8b":
        return source
    packed: IO[bytes] = cast("IO[bytes]", _WithEnd(source)) if is_bgzip(start) else source
    unpacked = gzip.GzipFile(fileobj=packed, mode="rb")
    unpacked.myfileobj = source  # type: ignore[assignment]  # closed together
    return unpacked


def is_bgzip(start: bytes) -> bool:
    """Return whether a gzip file is a bgzip, from its first 16 bytes."""
    return start[12:14] == b"BC"


def compression_of(path: Path) -> str:
    """Return `plain`, `bgzip` or `gzip`, from the first bytes of a file."""
    with path.open("rb") as handle:
        start = handle.read(16)
    if start[:2] != b"\x1f\x8b":
        return "plain"
    return "bgzip" if is_bgzip(start) else "gzip"


def check_bgzip_end(path: Path) -> None:
    """Raise GenomeError unless a bgzip file ends with its empty last block."""
    with path.open("rb") as source:
        source.seek(max(0, path.stat().st_size - len(BGZIP_END)))
        if source.read() != BGZIP_END:
            raise GenomeError(
                f"{path}: is cut off: the end of its bgzip is missing; fetch it again"
            )


class _WithEnd:
    """A bgzip stream that raises EOFError if it ends without its empty last block."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source, self._last = source, b""

    def read(self, num_bytes: int = -1) -> bytes:
        chunk = self._source.read(num_bytes)
        self._last = (self._last + chunk)[-len(BGZIP_END) :]
        if not chunk and self._last != BGZIP_END:
            raise EOFError("the end of its bgzip is missing")
        return chunk


def shown_name(path: Path) -> str:
    """Return the name of a file for messages, `standard input` for `-`."""
    return "standard input" if str(path) == "-" else str(path)


def is_too_long(num_bytes: int) -> bool:
    """Return whether a line is longer than the limit for lines in memory."""
    return num_bytes > MOST_LINE_BYTES


def too_long() -> str:
    """Return the message for a line that is too long."""
    return f"a line of more than {MOST_LINE_BYTES:,} bytes; is this the right file, and whole?"


@contextmanager
def open_text(path: Path, errors: str = "strict") -> Iterator[Iterator[str]]:
    """Open a file to read lines of UTF-8, unpacking gzip.

    Lines keep their ends; a byte-order mark is dropped.

    Raises:
        GenomeError: at a line that is too long, or the file is UTF-16.
    """
    source = open_bytes(path)
    with io.TextIOWrapper(source, encoding="utf-8-sig", errors=errors, newline="") as text:
        yield _lines_of(text, path)


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number, from 1, and text of each line; bytes that are not UTF-8 are replaced.

    Raises:
        GenomeError: as in `open_text`, or the file is truncated; after the lines before the fault.
    """
    number = 0
    try:
        with open_text(path, errors="replace") as lines:
            for number, line in enumerate(lines, start=1):
                yield number, line
    except BROKEN_GZIP as error:
        raise GenomeError(f"{path}: broken after line {number} ({error}); fetch it again") from None


def _lines_of(text: IO[str], path: Path) -> Iterator[str]:
    number = 0
    while line := text.readline(MOST_LINE_BYTES + 1):
        number += 1
        if is_too_long(len(line)):
            raise GenomeError(f"{shown_name(path)} line {number}: {too_long()}")
        yield line


_BLOCK_BYTES = 1 << 16
_LETTERS_AND_ENDS = FASTA_LETTERS + b"\n"


def _as_dna(lines: bytes) -> bytes:
    """Return lines joined, with U as T."""
    return lines.replace(b"\n", b"").replace(b"U", b"T").replace(b"u", b"t")


Header = tuple[bytes, bytes]  # name and description
Part = tuple[Header | None, bytes]  # bases of a contig; its first part has the header


class SequenceRecord(NamedTuple):
    """A sequence of a FASTA or FASTQ; `description` is the header after the name."""

    name: str
    description: str
    bases: str


class SequenceChunk(NamedTuple):
    """Consecutive bases of a contig, in the case of the file; `start` is 0-based."""

    contig: str
    start: int
    bases: bytes


def read_sequences(path: str | Path) -> Iterator[tuple[str, str]]:
    """Return name and bases of the records of a file; see `read_records` for formats and errors."""
    return ((record.name, record.bases) for record in read_records(path))


def read_records(path: str | Path) -> Iterator[SequenceRecord]:
    """Return an iterator over FASTA or FASTQ records, with one record in memory at a time.

    A FASTA file is checked completely before this function returns; FASTQ and standard input (`-`)
    are checked record by record. Names need not be unique. Files may be plain, bgzip or gzip.

    Raises:
        GenomeError: the file is missing, empty, truncated or not DNA in one of the formats.
    """
    path = Path(path)
    if str(path) == "-":
        return _records(SequenceLines(path))
    if not path.is_file():
        raise GenomeError(
            f"{path}: {why_no_file(path)}; give a FASTA or FASTQ, or - for standard input"
        )
    if compression_of(path) == "bgzip":
        check_bgzip_end(path)
    lines = SequenceLines(path)
    is_fastq = lines.first_letter() == b"@"
    if not is_fastq:
        deque(_fasta(lines), maxlen=0)
    return _records(SequenceLines(path, is_checked=not is_fastq))


def read_chunks(path: str | Path, chunk_bp: int) -> Iterator[SequenceChunk]:
    """Yield the contigs of a FASTA in chunks of `chunk_bp`; the last of a contig may be shorter.

    A contig without bases yields one empty chunk. Memory does not depend on the length of contigs
    or lines.

    Args:
        path: FASTA, plain, bgzip or gzip; `-` reads standard input.
        chunk_bp: number of bases per chunk.

    Raises:
        GenomeError: at the first line that is not DNA in FASTA, after the chunks before it.
    """
    path = Path(path)
    if chunk_bp < 1:
        raise ValueError(f"chunk_bp = {chunk_bp}: give 1 or more")
    if str(path) != "-" and (not path.exists() or path.is_dir()):
        raise GenomeError(f"{path}: {why_no_file(path)}; give a FASTA, or - for standard input")
    contig, start, bases = "", 0, bytearray()
    for header, text in SequenceLines(path).fasta():
        if header:
            yield from _last_chunk(contig, start, bases)
            contig, start, bases = header[0].decode(), 0, bytearray()
        bases += text
        at = 0
        while len(bases) - at >= chunk_bp:
            yield SequenceChunk(contig, start, bytes(bases[at : at + chunk_bp]))
            start, at = start + chunk_bp, at + chunk_bp
        del bases[:at]
    yield from _last_chunk(contig, start, bases)


def _last_chunk(contig: str, start: int, bases: bytearray) -> Iterator[SequenceChunk]:
    if contig and (bases or not start):
        yield SequenceChunk(contig, start, bytes(bases))


def fasta_text(pairs: Iterable[tuple[str, str]], line_bp: int | None = None) -> str:
    r"""Return headers and bases as FASTA, in lines of `line_bp`, or one line per record.

    >>> fasta_text([("a", "ACGTA")], 3)
    '>a\nACG\nTA\n'
    """
    lines = []
    for header, bases in pairs:
        step = line_bp or max(1, len(bases))
        lines += [f">{header}", *(bases[n : n + step] for n in range(0, len(bases), step))]
    return "".join(f"{line}\n" for line in lines)


class SequenceLines:
    """Lines of FASTA, FASTQ or plain sequences, from a file or standard input, read once."""

    def __init__(self, path: Path, *, is_checked: bool = False) -> None:
        """Prepare to read a file, which is opened when the first line is read.

        Args:
            path: file, or `-`.
            is_checked: whether its letters are known to be DNA.
        """
        self._is_checked = is_checked
        self._shown_as = shown_name(path)
        self._num_before = 0  # number of lines that end before the block
        self._block = b""
        self._at = 0  # offset in the block of the line that errors refer to
        self._blocks: Iterator[bytes] = self._read(path)

    def error(self, wrong: str, num_further: int = 0) -> GenomeError:
        """Return an error about the line that was read last, or a later one."""
        number = self._num_ended(self._at) + 1 + num_further
        return GenomeError(f"{self._shown_as} line {number}: {wrong}")

    def _num_ended(self, offset: int | None = None) -> int:
        """Return the number of lines that end before an offset in the block, or before its end."""
        return self._num_before + self._block.count(b"\n", 0, offset)

    def _error_of_next(self, wrong: str) -> GenomeError:
        self._at = len(self._block)
        return self.error(wrong)

    def first_letter(self) -> bytes:
        """Return the first letter of the first line that is not blank, or empty bytes."""
        for text in self._blocks:
            num_blank = len(text) - len(text.lstrip())
            if num_blank < len(text):
                self._blocks = chain((text,), self._blocks)
                self._at = text.rfind(b"\n", 0, num_blank) + 1
                return text[self._at : self._at + 1]
        return b""

    def lines(self) -> Iterator[bytes]:
        """Yield each line without its end."""
        parts: list[bytes] = []  # parts of a line that continues in the next block
        for text in self._blocks:
            parts.append(text)
            if text.endswith(b"\n"):
                *lines, _ = b"".join(parts).split(b"\n")
                parts = []
                self._block, self._at = b"\n", 0
                for number, line in enumerate(lines, start=self._num_before):
                    self._num_before = number
                    yield line
        if parts:
            yield b"".join(parts)

    def fasta(self) -> Iterator[Part]:
        """Yield each contig in blocks; the first block of a contig comes with its header.

        Raises:
            GenomeError: at the first line that is not DNA in FASTA.
        """
        first = self.first_letter()
        if not first:
            wrong = "has no sequence; give a FASTA with at least one contig"
            raise GenomeError(f"{self._shown_as}: {wrong}")
        if first != b">":
            raise self.error("expected a header that begins with '>'; is this a FASTA file?")
        is_line_start = True
        for text in self._blocks:
            end = 0
            while (start := end) < len(text):
                self._at, header = start, None
                if is_line_start and text.startswith(b">", start):
                    start = text.find(b"\n", start) + 1 or len(text)
                    header = self.header(text[self._at : start])
                end = _end_of_contig(text, start)
                yield header, self.bases(text[start:end], 1 if header else 0)
                is_line_start = text.endswith(b"\n", 0, end)

    def header(self, line: bytes) -> Header:
        """Return name and description from the header that was read last.

        Raises:
            GenomeError: the header has no name, or one that is not UTF-8.
        """
        words = line[1:].split(None, 1)
        if not words:
            raise self.error(f"a record without a name; write it right after '{line[:1].decode()}'")
        try:
            words[0].decode()
        except UnicodeDecodeError:
            raise self.error(f"the name {words[0]!r} is not UTF-8; {TO_UTF_8}") from None
        return words[0], words[1].rstrip() if len(words) > 1 else b""

    def bases(self, text: bytes, num_further: int = 0) -> bytes:
        """Return the letters of lines with U as T, without blanks at line ends.

        Args:
            text: whole lines, or a part of a line.
            num_further: number of lines from the line that was read last to the first line of
                `text`.

        Raises:
            GenomeError: a letter is not DNA.
        """
        if self._is_checked:
            bases = _as_dna(text)
            return bases.translate(None, b" \t") if b" " in bases or b"\t" in bases else bases
        if text.translate(None, _LETTERS_AND_ENDS):
            text = b"\n".join(line.rstrip(b" \t") for line in text.split(b"\n"))
            if wrong := text.translate(None, _LETTERS_AND_ENDS)[:1]:
                raise self.error(
                    f"{wrong.decode('latin-1')!r} is not a DNA letter (ACGT, N and IUPAC codes); "
                    "is this a protein or a damaged file?",
                    num_further + text.count(b"\n", 0, text.index(wrong)),
                )
        return _as_dna(text)

    def record(self, header: Header, parts: Iterable[bytes]) -> SequenceRecord:
        """Return the record of a header and its bases.

        Raises:
            GenomeError: most letters are ambiguity codes.
        """
        name, description = header[0].decode(), header[1].decode("utf-8", "replace")
        bases = b"".join(parts)
        if why := why_protein(bases):
            raise GenomeError(f"{self._shown_as}: record '{name}': {why}")
        return SequenceRecord(name, description, bases.decode())

    def _read(self, path: Path) -> Iterator[bytes]:
        """Yield blocks of whole lines that end in LF, or parts of a line longer than a block.

        Raises:
            GenomeError: after the lines before the fault: the stream is truncated, a line is too
                long, or there is a lone CR.
        """
        held = bytearray()  # bytes that are not yielded yet
        num_yielded = 0  # bytes of the current line that have been yielded
        try:
            with open_bytes(path) as source:
                if source.peek(3)[:3] == BYTE_ORDER_MARK:
                    source.read(3)
                while chunk := source.read1(_BLOCK_BYTES):
                    held += chunk
                    end = _end_of_block(held, chunk)
                    num_yielded = 0 if b"\n" in chunk else num_yielded + end
                    with memoryview(held) as view:
                        text = view[:end].tobytes()
                    del held[:end]
                    yield from self._without_cr(text)
                    if is_too_long(num_yielded + len(held)):
                        raise self._error_of_next(too_long())
            yield from self._without_cr(bytes(held.removesuffix(b"\r")))
        except BROKEN_GZIP as error:
            raise GenomeError(
                f"{self._shown_as}: broken after line {self._num_ended()} ({error}); fetch it again"
            ) from None

    def _without_cr(self, text: bytes) -> Iterator[bytes]:
        """Make the text, up to a lone CR, the current block, and yield it."""
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        lone_cr = text.find(b"\r")
        if lone_cr >= 0:
            text = text[: text.rfind(b"\n", 0, lone_cr) + 1]
        if text:
            self._num_before, self._block = self._num_ended(), text
            yield text
        if lone_cr >= 0:
            raise self._error_of_next("lines end in a lone CR; convert them to LF")


def _end_of_block(held: bytearray, chunk: bytes) -> int:
    """Return how many of the held bytes to yield, given the chunk at their end.

    A header is yielded whole. A part of a line does not end in a blank or CR, because only the next
    chunk shows whether the line ends there.
    """
    num_before = len(held) - len(chunk)
    if num_lines := chunk.rfind(b"\n") + 1:
        return num_before + num_lines
    num_letters = len(chunk.rstrip(b" \t\r"))
    return num_before + num_letters if num_letters and not held.startswith(b">") else 0


def _end_of_contig(text: bytes, start: int) -> int:
    """Return the offset of the next header, at `start` or after it, or else of the end of text."""
    at = text.find(b">", start)  # much faster than a search for two letters
    if at > 0 and text[at - 1 : at] != b"\n":
        at = text.find(b"\n>", start) + 1 or -1
    return at if at >= 0 else len(text)


def _records(lines: SequenceLines) -> Iterator[SequenceRecord]:
    yield from (_fastq if lines.first_letter() == b"@" else _fasta)(lines)


def _fasta(lines: SequenceLines) -> Iterator[SequenceRecord]:
    begun: Header | None = None
    bases: list[bytes] = []
    for header, text in lines.fasta():
        if header:
            if begun:
                yield lines.record(begun, bases)
            begun, bases = header, []
        bases.append(text)
    if begun:
        yield lines.record(begun, bases)


def _fastq(lines: SequenceLines) -> Iterator[SequenceRecord]:
    stripped = map(bytes.rstrip, lines.lines())
    for line in filter(None, stripped):
        if not line.startswith(b"@"):
            raise lines.error("expected a header that begins with '@'; is the file damaged?")
        header = lines.header(line)
        letters = takewhile(lambda line: not line.startswith(b"+"), stripped)
        record = lines.record(header, map(lines.bases, letters))
        num_missing = len(record.bases)
        while num_missing > 0 and (quality := next(stripped, None)) is not None:
            num_missing -= len(quality)
        if num_missing:
            raise lines.error(
                f"record '{record.name}' has no quality, or not one for each base; is the file "
                "cut off?"
            )
        yield record
