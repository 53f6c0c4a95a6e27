"""Lines of a VCF as they stand, and of a BCF as htslib prints them; a file's content says which.

htslib repairs a VCF in silence: it drops or completes header lines, and a value that does not fit
its Type becomes a missing one. So text is read as text, and `check_with_htslib` compares it with
what htslib makes of it.
"""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

import pysam

from carbon.errors import GenomeError
from carbon.genome import streams
from carbon.genome.streams import BROKEN_GZIP, BYTE_ORDER_MARK, compression_of, open_bytes

_VCF, _BCF = b"##fileformat=VCF", b"BCF\x02"
_ENCODING = ("utf-8", "utf-8-sig")  # of the first line, which may begin with a byte-order mark
# htslib declares PASS itself, and drops text in brackets that is no list of key=value.
_NOT_COMPARED = re.compile(r"##FILTER=<ID=PASS,.*|##[^=]+=<(?!\w+=).+>")
_FIXED_COLUMNS = 9  # up to FORMAT
_SEPARATOR = re.compile("[;:,=]")


def is_bcf(path: Path) -> bool:
    """Return whether a file begins as a BCF of version 2, compressed or not."""
    return _first_bytes(path).startswith(_BCF)


def holds_variants(path: Path) -> bool:
    """Return whether a file is a VCF or a BCF by its content; False if it is no regular file."""
    if not path.is_file():
        return False
    return _first_bytes(path).removeprefix(BYTE_ORDER_MARK).startswith((_VCF, _BCF))


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
    yield from _bcf_lines(path) if is_bcf(path) else _vcf_lines(path)


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines that are not empty, with their ends.

    Raises:
        GenomeError: as `variant_lines` does, or the file is not UTF-8.
    """
    number = 0
    try:
        for number, line in enumerate(variant_lines(path), start=1):
            if line.strip(b"\r\n"):
                yield number, line.decode(_ENCODING[number == 1])
    except UnicodeDecodeError:
        raise GenomeError(
            f"{path} line {number}: is not UTF-8; convert the file, for example with "
            "`iconv -f latin1 -t utf-8`"
        ) from None


def _vcf_lines(path: Path) -> Iterator[bytes]:
    try:
        with open_bytes(path) as source:
            lines = iter(partial(source.readline, streams.MOST_LINE_BYTES + 1), b"")
            for number, line in enumerate(lines, start=1):
                if streams.is_too_long(len(line)):
                    raise GenomeError(f"{path} line {number}: {streams.too_long()}")
                yield line
    except BROKEN_GZIP as error:
        raise GenomeError(f"{path}: is broken or cut off ({error}); fetch it again") from None


def _bcf_lines(path: Path) -> Iterator[bytes]:
    if compression_of(path) == "gzip":
        raise GenomeError(f"{path}: is a BCF packed by plain gzip; unpack it with `gunzip`")
    place, remedy = f"{path}", "fetch it again"
    try:
        with _opened(str(path)) as records:
            yield from str(records.header).encode().splitlines(keepends=True)
            remedy += ", or declare its contig, FILTER, INFO and FORMAT in the header"
            place = f"{path} record 1"
            for number, record in enumerate(records, start=2):
                yield str(record).encode()
                place = f"{path} record {number}"
    except (OSError, ValueError) as error:
        why = error if isinstance(error, OSError) else "htslib cannot parse it"
        raise GenomeError(f"{place}: is broken or cut off ({why}); {remedy}") from None


@contextmanager
def _opened(source: str | IO[bytes]) -> Iterator[pysam.VariantFile]:
    verbosity = pysam.set_verbosity(0)  # what fails is an exception
    try:
        records = pysam.VariantFile(source)
        try:
            yield records
        finally:
            with suppress(OSError):  # closing a broken file repeats the error that was raised
                records.close()
    finally:
        pysam.set_verbosity(verbosity)


def check_with_htslib(path: Path) -> None:
    """Raise GenomeError unless htslib parses each line of a VCF to what the text says.

    htslib declares the names in a record that the header does not; VCF does not require the header
    to declare them. Values without a declaration are text.
    """
    lines = ((number, line.rstrip("\r\n")) for number, line in text_lines(path))
    why = f"`bcftools view -h {path}` prints why"
    wrong: str | None = f"{path}: htslib cannot parse the header; {why}"
    try:
        # By its name pysam cannot open a plain gzip.
        with path.open("rb") as source, _opened(source) as file:
            wrong = _first_change(path, file, lines)
    except (OSError, ValueError) as error:
        if isinstance(error, GenomeError):
            raise
    if wrong:
        raise GenomeError(f"{wrong} (not checked without `--strict`)")


def _first_change(
    path: Path, file: pysam.VariantFile, lines: Iterator[tuple[int, str]]
) -> str | None:
    """Return what htslib changes first, None if it parses the whole file as it stands."""
    kept, names = set(str(file.header).splitlines()), []
    declared = set()
    for number, text in lines:
        name = text.partition(",")[0].rstrip(">")
        is_second = name in declared  # of which htslib keeps the first, as VCF before 4.3 allows
        declared.add(name)
        if text not in kept and not is_second and not _NOT_COMPARED.fullmatch(text):
            return f"{path} line {number}: htslib drops or rewrites {text[:60]!r}; correct the line"
        names = text.split("\t")
        if not text.startswith("##"):
            break
    for number, (_, text) in enumerate(lines, start=1):
        columns = text.split("\t")
        where = f"{path} record {number} ({columns[0]}:{columns[1]}): htslib"
        try:
            printed = str(next(file)).rstrip("\n").split("\t")
        except (OSError, ValueError, StopIteration):
            printed = []
        if len(printed) != len(columns):
            return f"{where} cannot parse the record; `bcftools view {path}` prints why"
        for column, (name, ours, theirs) in enumerate(zip(names, columns, printed, strict=True)):
            if ours != theirs and not _same_values(ours, theirs, column >= _FIXED_COLUMNS):
                there = f"{name} {ours[:60]!r} as {theirs[:60]!r}"
                return f"{where} reads {there}; correct it, or its declaration in the header"
    return None


def _same_values(ours: str, theirs: str, is_sample: bool) -> bool:
    """Return whether two columns have the same values; htslib adds the missing ones of a sample."""
    values, others = _SEPARATOR.split(ours), _SEPARATOR.split(theirs)
    if is_sample:
        values = [value or "." for value in values] + ["."] * (len(others) - len(values))
    return len(values) == len(others) and all(map(_is_same, values, others))


def _is_same(ours: str, theirs: str) -> bool:
    """Return whether two values are equal; htslib prints six digits of a float of 32 bits."""
    if ours == theirs:
        return True
    try:
        a, b = float(ours), float(theirs)
    except ValueError:
        return False
    return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-37) or (math.isnan(a) and math.isnan(b))
