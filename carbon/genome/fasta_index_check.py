"""Whether an index is of a FASTA: it is held against the file at both ends of every contig.

A file that is put in the place of another may be older than the index of that, and indexes are
edited and cut off. The formats: `.fai` as in samtools' faidx(5), `.gzi` as bgzip(1) writes it.
"""

import os
import re
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import pysam

from carbon.genome.alphabet import FASTA_LETTERS
from carbon.genome.streams import is_bgzip

_MOST_HEADER_BYTES = 1 << 20
_BYTES_AT_ONCE = 1 << 16
_MOST_BLANKS = 1 << 10  # at the end of a line
_BGZIP_BLOCK_BYTES = 1 << 16
# What ends a block of bgzip, the size that it unpacks to, and what begins the next.
_ISIZE_BYTES, _HEADER_BYTES = 4, 16
# From the last base of a contig, if it has one, to the first base of the next.
_BETWEEN = re.compile(rb"(?:\s*\n)?>[ \t]*(\S+)[^\n]*\n")
_FROM_LAST_BASE = re.compile(rb"[!-~]\s*\n>[ \t]*(\S+)[^\n]*\n")


class Entry(NamedTuple):
    """A line of an index; the offset is that of the first base."""

    name: bytes
    length_bp: int
    offset: int
    line_bp: int
    line_bytes: int

    @property
    def first_line_bytes(self) -> int:
        """Of the first line, with its end if another follows."""
        return self.line_bytes if self.length_bp > self.line_bp else self.length_bp

    @property
    def last_base(self) -> int:
        """Where the last base stands, or the first would, if there is none."""
        if not self.length_bp:
            return self.offset
        lines, rest_bp = divmod(self.length_bp - 1, self.line_bp)
        return self.offset + lines * self.line_bytes + rest_bp


class _Source(Protocol):
    def read(self, at: int, num_bytes: int) -> bytes:
        """Return so many bytes of the text of a FASTA, or what is left of it."""


def describes(fai: Path, gzi: Path | None, path: Path) -> bool:
    """Tell whether indexes are of a FASTA.

    Every contig must stand where the index says: right behind its own header, with a first line of
    DNA that is as long as told, and up to the header of the next or the end of the file. Every
    block of a bgzip must begin where `.gzi` says. Lines between the first and the last are not
    looked at.
    """
    try:
        with path.open("rb") as file:
            source = _Blocks(file.fileno(), gzi, path) if gzi else _Plain(file.fileno())
            return _all_stand(_entries(fai), source)
    except (OSError, ValueError, ArithmeticError):
        return False


def _entries(fai: Path) -> Iterator[Entry]:
    with fai.open("rb") as lines:
        for line in lines:
            name, *numbers = line.removesuffix(b"\n").split(b"\t")
            if len(numbers) != 4 or not all(map(bytes.isdigit, numbers)):
                raise ValueError(line)
            entry = Entry(name, *map(int, numbers))
            if not entry.line_bp <= entry.line_bytes <= entry.line_bp + _MOST_BLANKS:
                raise ValueError(line)
            yield entry


def _all_stand(entries: Iterator[Entry], source: _Source) -> bool:
    before: Entry | None = None
    for entry in entries:
        if not _stands(entry, before, source):
            return False
        before = entry
    return before is not None and _ends_the_file(before, source)


def _stands(entry: Entry, before: Entry | None, source: _Source) -> bool:
    """Tell whether a contig begins where an index says, and the one before it ends there."""
    at = before.last_base if before else 0
    num_between = entry.offset - at
    if not 0 < num_between <= _MOST_HEADER_BYTES:
        return False
    text = source.read(at, num_between + min(entry.first_line_bytes, _BYTES_AT_ONCE))
    form = _FROM_LAST_BASE if before and before.length_bp else _BETWEEN
    header = form.fullmatch(text, 0, num_between)
    if header is None or header[1] != entry.name:
        return False
    return _first_line_stands(entry, text[num_between:], source)


def _first_line_stands(entry: Entry, text: bytes, source: _Source) -> bool:
    """Tell whether a line of DNA is as long as told, given the first bytes of it."""
    first_bp = min(entry.length_bp, entry.line_bp)
    end = text[first_bp:]
    if len(text) < entry.first_line_bytes:  # so long that it is not held in memory
        at, until = entry.offset + len(text), entry.offset + first_bp
        for here in range(at, until, _BYTES_AT_ONCE):
            if b"\n" in source.read(here, min(_BYTES_AT_ONCE, until - here)):
                return False
        end = source.read(until, entry.first_line_bytes - first_bp)
    is_dna = not text[:first_bp].translate(None, FASTA_LETTERS)
    goes_on = entry.length_bp > entry.line_bp
    return is_dna and (not goes_on or (end.find(b"\n") == len(end) - 1 and not end.strip()))


def _ends_the_file(last: Entry, source: _Source) -> bool:
    end = source.read(last.last_base, _BYTES_AT_ONCE)
    base, rest = (end[:1], end[1:]) if last.length_bp else (b"A", end)
    return len(end) < _BYTES_AT_ONCE and bool(base.strip()) and not rest.strip()


class _Plain:
    def __init__(self, file: int) -> None:
        self._file = file

    def read(self, at: int, num_bytes: int) -> bytes:
        return os.pread(self._file, num_bytes, at)


class _Blocks:
    """A bgzip, read by whole blocks: contigs that follow one another unpack each but once."""

    def __init__(self, file: int, gzi: Path, path: Path) -> None:
        number, *places = np.fromfile(gzi, dtype="<u8").tolist()
        if len(places) != 2 * number:
            raise ValueError("cut off")
        self._packed_at, self._unpacked_at = [0, *places[::2]], [0, *places[1::2]]
        self._check(file)
        pysam.set_verbosity(0)
        self._packed = pysam.BGZFile(str(path), "r", index=None)
        self._number, self._block = -1, b""  # which was read last

    def _check(self, file: int) -> None:
        """Raise ValueError unless each block begins, and the one before it ends, where told."""
        for number, at in enumerate(self._packed_at[1:]):
            size = self._unpacked_at[number + 1] - self._unpacked_at[number]
            found = os.pread(file, _ISIZE_BYTES + _HEADER_BYTES, at - _ISIZE_BYTES)
            told, begun = found[:_ISIZE_BYTES], found[_ISIZE_BYTES:]
            if told != size.to_bytes(_ISIZE_BYTES, "little") or not is_bgzip(begun):
                raise ValueError(f"no block begins at {at}")

    def read(self, at: int, num_bytes: int) -> bytes:
        number = bisect_right(self._unpacked_at, at) - 1
        found = b""
        at -= self._unpacked_at[number]
        while len(found) < num_bytes and number < len(self._unpacked_at):
            found += self._unpacked(number)[at : at + num_bytes - len(found)]
            number, at = number + 1, 0
        return found

    def _unpacked(self, number: int) -> bytes:
        if number != self._number:
            self._packed.seek(self._packed_at[number] << 16)
            self._number = number
            following = self._unpacked_at[number + 1 : number + 2]
            size = following[0] - self._unpacked_at[number] if following else _BGZIP_BLOCK_BYTES
            self._block = self._packed.read(size)
        return self._block
