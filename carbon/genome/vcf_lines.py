"""Lines of a VCF as they stand, and of a BCF as htslib prints them; a file's content says which."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pysam

from carbon.errors import GenomeError
from carbon.genome import streams
from carbon.genome.streams import BROKEN_GZIP, BYTE_ORDER_MARK, compression_of, open_bytes

_VCF = b"##fileformat=VCF"
_BCF = b"BCF\x02"


def is_vcf(path: Path) -> bool:
    """Return whether a file begins as a VCF, plain, gzip or bgzip, whatever its name."""
    return _first_bytes(path).removeprefix(BYTE_ORDER_MARK).startswith(_VCF)


def is_bcf(path: Path) -> bool:
    """Return whether a file begins as a BCF of version 2, compressed or not."""
    return _first_bytes(path).startswith(_BCF)


def holds_variants(path: Path) -> bool:
    """Return whether a file is a VCF or a BCF by its content; False if it is no regular file."""
    return path.is_file() and (is_vcf(path) or is_bcf(path))


def _first_bytes(path: Path) -> bytes:
    try:
        with open_bytes(path) as source:
            return source.read(len(BYTE_ORDER_MARK + _VCF))
    except BROKEN_GZIP:
        return b""


def variant_lines(path: Path) -> Iterator[bytes]:
    """Yield all lines of a VCF or BCF with their ends, header first, one in memory at a time.

    Raises:
        GenomeError: the file is broken or cut off, or a line is too long.
    """
    yield from _bcf_lines(path) if is_bcf(path) else _text_lines(path)


def _text_lines(path: Path) -> Iterator[bytes]:
    try:
        with open_bytes(path) as source:
            lines = iter(partial(source.readline, streams.MOST_LINE_BYTES + 1), b"")
            for number, line in enumerate(lines, start=1):
                if streams.is_too_long(len(line)):
                    raise GenomeError(f"{path} line {number}: {streams.too_long()}")
                yield line
    except BROKEN_GZIP as error:
        raise _broken(path, error) from None


def _bcf_lines(path: Path) -> Iterator[bytes]:
    if compression_of(path) == "gzip":
        raise GenomeError(f"{path}: is a BCF packed by plain gzip; unpack it with `gunzip`")
    try:
        with _opened(path) as records:
            yield from str(records.header).encode().splitlines(keepends=True)
            for record in records:
                yield str(record).encode()
    except OSError as error:
        raise _broken(path, error) from None
    except ValueError:
        raise _broken(path, "htslib cannot parse it") from None


@contextmanager
def _opened(path: Path) -> Iterator[pysam.VariantFile]:
    verbosity = pysam.set_verbosity(0)  # what fails is an exception
    try:
        records = pysam.VariantFile(str(path))
        try:
            yield records
        finally:
            with suppress(OSError):  # closing a broken file repeats the error that was raised
                records.close()
    finally:
        pysam.set_verbosity(verbosity)


def _broken(path: Path, why: Exception | str) -> GenomeError:
    return GenomeError(f"{path}: is broken or cut off ({why}); fetch it again")
