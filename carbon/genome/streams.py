"""Files that may or may not be compressed with gzip (bgzip is gzip to whoever reads it through)."""

import gzip
import io
import sys
import zlib
from pathlib import Path
from typing import IO, cast

# What a broken gzip stream raises: cut off, a bad header or checksum, bad data inside.
BROKEN_GZIP = (EOFError, gzip.BadGzipFile, zlib.error)


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading, unpacking gzip, which is known by its first two bytes.

    `-` is standard input.
    """
    # A pipe can be read but once, so nothing is opened twice.
    source = cast("io.BufferedReader", sys.stdin.buffer if str(path) == "-" else path.open("rb"))
    if source.peek(2)[:2] != b"\x1f\x8b":
        return source
    unpacked = gzip.GzipFile(fileobj=source)
    unpacked.myfileobj = source  # type: ignore[assignment]  # is closed with it
    return cast("IO[bytes]", unpacked)


def open_text(path: Path, errors: str = "strict") -> IO[str]:
    """Open a file for reading as UTF-8 text, unpacking gzip; line ends are kept, a mark is not."""
    return io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", errors=errors, newline="")
