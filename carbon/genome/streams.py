"""Files that may or may not be compressed with gzip (bgzip is gzip to whoever reads it through)."""

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from carbon.errors import GenomeError

# What a broken gzip stream raises: cut off, a bad header or checksum, bad data inside.
BROKEN_GZIP = (EOFError, gzip.BadGzipFile, zlib.error)
# The empty block at the end of a bgzip file (SAM v1, 4.1.2).
BGZIP_END = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
# The longest chromosomes have some 10^9 bases; a gzip of little may unpack to one line of anything.
MOST_LINE_BYTES = 2**30
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # of UTF-8
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def open_bytes(path: Path) -> io.BufferedReader | gzip.GzipFile:
    """Open a file for reading, unpacking gzip, which is known by its first two bytes.

    `-` is standard input. What is read of a file that is cut off ends with one of `BROKEN_GZIP`.

    Raises:
        GenomeError: it is text in UTF-16.
    """
    # A pipe can be read but once, so nothing is opened twice.
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
    unpacked.myfileobj = source  # type: ignore[assignment]  # is closed with it
    return unpacked


def is_bgzip(start: bytes) -> bool:
    """Tell a bgzip file from another gzip by its first 16 bytes."""
    return start[12:14] == b"BC"


def compression_of(path: Path) -> str:
    """Tell whether a file is `plain`, `bgzip` or `gzip`."""
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
    """A bgzip stream that tells when it ends between two blocks before its last."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source, self._last = source, b""

    def read(self, num_bytes: int = -1) -> bytes:
        found = self._source.read(num_bytes)
        self._last = (self._last + found)[-len(BGZIP_END) :]
        if not found and self._last != BGZIP_END:
            raise EOFError("the end of its bgzip is missing")
        return found


def shown_name(path: Path) -> str:
    """Return what messages call a file."""
    return "standard input" if str(path) == "-" else str(path)


def is_too_long(num_bytes: int) -> bool:
    """Tell whether a line of so many bytes is more than is held in memory."""
    return num_bytes > MOST_LINE_BYTES


def too_long() -> str:
    """Say what is wrong with such a line."""
    return f"a line of more than {MOST_LINE_BYTES:,} bytes; is this the right file, and whole?"


@contextmanager
def open_text(path: Path, errors: str = "strict") -> Iterator[Iterator[str]]:
    """Open a file to read lines of UTF-8, unpacking gzip; line ends are kept, a mark is not.

    Raises:
        GenomeError: at a line that is too long, or the file is UTF-16.
    """
    source = open_bytes(path)
    with io.TextIOWrapper(source, encoding="utf-8-sig", errors=errors, newline="") as text:
        yield _lines_of(text, path)


def _lines_of(text: IO[str], path: Path) -> Iterator[str]:
    number = 0
    while line := text.readline(MOST_LINE_BYTES + 1):
        number += 1
        if is_too_long(len(line)):
            raise GenomeError(f"{shown_name(path)} line {number}: {too_long()}")
        yield line
