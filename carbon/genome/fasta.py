"""Random access to a reference FASTA, through an index that is checked or built first.

A FASTA may be replaced by an older file, and an index may be edited or truncated. So an index is
used only if both ends of every contig are where it says. Formats: `.fai` as in samtools' faidx(5),
`.gzi` as written by bgzip(1).
"""

import os
import re
import shutil
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np
import pysam
from pysam.utils import SamtoolsError

from carbon.errors import GenomeError, UserError
from carbon.genome.alphabet import FASTA_LETTERS, IUPAC_BASES, as_dna
from carbon.genome.contig_names import prefix_hint, shown_names
from carbon.genome.interval import Interval
from carbon.genome.sequences import (
    BROKEN_GZIP,
    BYTE_ORDER_MARK,
    TO_UTF_8,
    Part,
    SequenceLines,
    check_bgzip_end,
    compression_of,
    is_bgzip,
    open_bytes,
)
from carbon.io.files import atomic_file, errors_naming, scratch_folder, why_no_file
from carbon.progress import say

_NAME_BYTES = 65_000  # htslib does not read index lines of 64 KiB
_HEADER_BYTES = 1 << 20
_LINE_BYTES = 1 << 16
_BLANK_BYTES = 1 << 10  # blanks at the end of a line
_BGZIP_BLOCK_BYTES = 1 << 16
# Text from the last base of a contig, if it has one, to the first base of the next; an index leaves
# out contigs without bases, which may stand between the two.
_BETWEEN = re.compile(rb"(?:\s*\n)?(?:>[^\n]*\n\s*)*>[ \t]*(\S+)[^\n]*\n")
_FROM_LAST_BASE = re.compile(rb"[!-~]\s*\n(?:>[^\n]*\n\s*)*>[ \t]*(\S+)[^\n]*\n")

Indexes = tuple[Path, Path | None]  # .fai, and .gzi for a bgzip
Read = Callable[[int, int], bytes]  # reads text of a FASTA, by offset and number of bytes


def open_indexed(path: Path) -> pysam.FastaFile:
    """Open a FASTA for random access, with the index next to it or with a new one.

    An index that is older than the file, or belongs to another file, is built again: next to the
    file, or in a temporary folder if that is not writable.

    Raises:
        GenomeError: the file is empty, truncated or not DNA in FASTA, or two contigs share a name.
        OSError: the disk of the temporary folder is full.
    """
    compression = compression_of(path)
    if compression == "bgzip":
        check_bgzip_end(path)
    indexes = _indexes_of(path, is_bgzip=compression == "bgzip")
    if _is_fresh(path, indexes) and (fasta := _open(path, indexes)):
        return fasta
    with scratch_folder("fasta") as scratch:
        if compression == "gzip" or _has_mark(path):
            opened = _open_copy(path, scratch)
        else:
            for _ in _distinct_contigs(path):
                pass
            built = _build_indexes(path, scratch, is_bgzip=compression == "bgzip")
            _check_names(built[0], path)
            _keep(built, indexes)
            opened = _open(path, built)
    # An open file does not need its name, so the folder can be removed now.
    if opened is None:
        raise GenomeError(f"{path}: cannot be opened with its index; was it changed meanwhile?")
    return opened


def _check_names(fai: Path, path: Path) -> None:
    for entry in _entries(fai):
        try:
            entry.name.decode("utf-8")
        except UnicodeDecodeError:
            raise GenomeError(f"{path}: the name {entry.name!r} is not UTF-8; {TO_UTF_8}") from None


def _indexes_of(path: Path, *, is_bgzip: bool) -> Indexes:
    return Path(f"{path}.fai"), Path(f"{path}.gzi") if is_bgzip else None


def _open(path: Path, indexes: Indexes) -> pysam.FastaFile | None:
    """Open a FASTA with its indexes, or return None if htslib cannot use them."""
    fai, gzi = indexes
    try:
        fasta = pysam.FastaFile(
            str(path), filepath_index=str(fai), filepath_index_compressed=str(gzi) if gzi else None
        )
    except (OSError, ValueError):
        return None
    return fasta if fasta.nreferences else None


def _has_mark(path: Path) -> bool:
    try:
        with open_bytes(path) as source:
            return source.peek(3)[:3] == BYTE_ORDER_MARK
    except BROKEN_GZIP:
        return False  # reading the whole file reports where


def _open_copy(path: Path, scratch: Path) -> pysam.FastaFile | None:
    """Open an unpacked copy, one line per contig, of a file that htslib cannot access randomly."""
    copy = scratch / "unpacked.fa"
    with errors_naming(scratch), copy.open("wb") as sink:
        for header, bases in _distinct_contigs(path):
            if header:
                sink.write(b"\n>%b\n" % header[0])
            sink.write(bases)
    return _open(copy, _build_indexes(copy, scratch, is_bgzip=False, shown_as=path))


def _distinct_contigs(path: Path) -> Iterator[Part]:
    """Yield headers and bases of a FASTA, and report contigs without bases at the end.

    Raises:
        GenomeError: the file is not a FASTA, two contigs share a name, or a name is too long for an
            index.
    """
    has_bases: dict[bytes, bool] = {}
    name = b""
    lines = SequenceLines(path)
    for header, bases in lines.fasta():
        if header:
            name, _ = header
            if len(name) > _NAME_BYTES:
                raise lines.error(
                    f"a contig's name of {len(name):,} letters, more than an index can hold; the "
                    "name ends at the first space"
                )
            if name in has_bases:
                raise lines.error(
                    f"contig '{name.decode(errors='replace')}' occurs twice; keep one"
                )
            has_bases[name] = False
        if bases:
            has_bases[name] = True
        yield header, bases
    if empty := [name.decode(errors="replace") for name, has in has_bases.items() if not has]:
        say(f"{path}: contigs without bases are left out: {len(empty)} ({shown_names(empty)})")


def _build_indexes(
    path: Path, scratch: Path, *, is_bgzip: bool, shown_as: Path | None = None
) -> Indexes:
    fai, gzi = _indexes_of(scratch / "index", is_bgzip=is_bgzip)
    options = ["--fai-idx", str(fai)] + (["--gzi-idx", str(gzi)] if gzi else [])
    pysam.set_verbosity(0)
    try:
        pysam.faidx(str(path), *options, catch_stdout=False)
    except SamtoolsError:
        with errors_naming(scratch), (scratch / "room").open("wb") as sink:
            sink.write(bytes(1 << 16))  # a full disk raises here; samtools does not report it
        raise GenomeError(
            f"{shown_as or path}: cannot be indexed: the lines of a contig must have one length, "
            "and the last contig must have a base; rewrite it, for example with `seqtk seq -l 60`"
        ) from None
    return fai, gzi


def _keep(built: Indexes, targets: Indexes) -> None:
    """Copy indexes next to their file for later runs, if permissions and disk space allow it."""
    with suppress(OSError, UserError):
        for index, target in zip(built, targets, strict=True):
            if index and target:
                with atomic_file(target) as temporary:
                    shutil.copyfile(index, temporary)


class _Entry(NamedTuple):
    """A line of an index; `offset` is the byte offset of the first base."""

    name: bytes
    length_bp: int
    offset: int
    line_bp: int
    line_bytes: int

    @property
    def last_base(self) -> int:
        """Byte offset of the last base; `offset` for an empty contig."""
        if not self.length_bp:
            return self.offset
        lines, rest_bp = divmod(self.length_bp - 1, self.line_bp)
        return self.offset + lines * self.line_bytes + rest_bp


def _is_fresh(path: Path, indexes: Indexes) -> bool:
    """Return whether the indexes exist, are not older than a FASTA, and describe it."""
    try:
        modified = path.stat().st_mtime
        if any(index.stat().st_mtime < modified for index in filter(None, indexes)):
            return False
        return _describes(indexes, path)
    except (OSError, ValueError, ArithmeticError):
        return False


def _describes(indexes: Indexes, path: Path) -> bool:
    """Return whether all contigs of a FASTA are where its indexes say.

    Each contig must begin right after its own header with a line of DNA of the indexed length, and
    end before the next header or at the end of the file. Lines between the first and the last are
    not read, but in a bgzip every block must begin where `.gzi` says.
    """
    fai, gzi = indexes
    with path.open("rb") as file:
        read: Read = _Blocks(file.fileno(), gzi, path).read if gzi else _reader_of(file.fileno())
        before: _Entry | None = None
        for entry in _entries(fai):
            if not (_follows(entry, before, read) and _first_line_stands(entry, read)):
                return False
            before = entry
        return before is not None and _ends_the_file(before, read)


def _entries(fai: Path) -> Iterator[_Entry]:
    with fai.open("rb") as lines:
        for line in lines:
            name, *numbers = line.removesuffix(b"\n").split(b"\t")
            if len(numbers) != 4 or not all(map(bytes.isdigit, numbers)):
                raise ValueError(line)
            entry = _Entry(name, *map(int, numbers))
            if not entry.line_bp <= entry.line_bytes <= entry.line_bp + _BLANK_BYTES:
                raise ValueError(line)
            yield entry


def _follows(entry: _Entry, before: _Entry | None, read: Read) -> bool:
    """Return whether only its own header is between the previous contig and the first base."""
    at = before.last_base if before else 0
    if not 0 < entry.offset - at <= _HEADER_BYTES:
        return False
    form = _FROM_LAST_BASE if before and before.length_bp else _BETWEEN
    header = form.fullmatch(read(at, entry.offset - at))
    return header is not None and header[1] == entry.name


def _first_line_stands(entry: _Entry, read: Read) -> bool:
    """Return whether a contig begins with a line of DNA of the indexed length.

    Only the beginning and the end of a long line are read.
    """
    bases = read(entry.offset, min(entry.length_bp, entry.line_bp, _LINE_BYTES))
    if bases.translate(None, FASTA_LETTERS):
        return False
    if entry.length_bp <= entry.line_bp:
        return True
    end = read(entry.offset + entry.line_bp - 1, 1 + entry.line_bytes - entry.line_bp)
    return end.rstrip() == end[:1] and end.find(b"\n") == len(end) - 1


def _ends_the_file(last: _Entry, read: Read) -> bool:
    end = read(last.last_base, _LINE_BYTES)
    base, rest = (end[:1], end[1:]) if last.length_bp else (b"A", end)
    return len(end) < _LINE_BYTES and bool(base.strip()) and not rest.strip()


def _reader_of(file: int) -> Read:
    return lambda at, num_bytes: os.pread(file, num_bytes, at)


class _Blocks:
    """Text of a bgzip, unpacked by whole blocks, each once if contigs are read in order."""

    def __init__(self, file: int, gzi: Path, path: Path) -> None:
        """Open a bgzip; raises ValueError unless its blocks begin where `.gzi` says."""
        number, *offsets = np.fromfile(gzi, dtype="<u8").tolist()
        if len(offsets) != 2 * number:
            raise ValueError("cut off")
        self._packed_at, self._unpacked_at = [0, *offsets[::2]], [0, *offsets[1::2]]
        bounds = zip(self._packed_at[1:], pairwise(self._unpacked_at), strict=True)
        for at, (start, end) in bounds:
            around = os.pread(file, 20, at - 4)  # size of the block before, and a header
            if around[:4] != (end - start).to_bytes(4, "little") or not is_bgzip(around[4:]):
                raise ValueError(f"no block begins at {at}")
        pysam.set_verbosity(0)
        self._packed = pysam.BGZFile(str(path), "r", index=None)
        self._number, self._block = -1, b""  # the block that was read last

    def read(self, at: int, num_bytes: int) -> bytes:
        """Return bytes of the text, fewer at its end."""
        number = bisect_right(self._unpacked_at, at) - 1
        text = b""
        at -= self._unpacked_at[number]
        while len(text) < num_bytes and number < len(self._unpacked_at):
            text += self._unpacked(number)[at : at + num_bytes - len(text)]
            number, at = number + 1, 0
        return text

    def _unpacked(self, number: int) -> bytes:
        if number != self._number:
            self._packed.seek(self._packed_at[number] << 16)
            self._number = number
            following = self._unpacked_at[number + 1 : number + 2]
            size = following[0] - self._unpacked_at[number] if following else _BGZIP_BLOCK_BYTES
            self._block = self._packed.read(size)
        return self._block


class Disagreement(NamedTuple):
    """Disagreement of a REF allele with the reference.

    Attributes:
        reason: `ref_mismatch`, `ref_past_end`, `contig_unknown`, or `reference_unknown` if the
            reference has N.
        reference_bases: bases of the reference in upper case; empty outside of its contigs.
    """

    reason: str
    reference_bases: str

    @property
    def is_contradiction(self) -> bool:
        """Whether REF and the reference contradict each other."""
        return self.reason != "reference_unknown"


class Reference:
    """A FASTA file opened for random access; several threads may share it.

    Attributes:
        path: path of the file, as the user wrote it.
        contig_lengths_bp: length of every contig, in the order of the file.
    """

    def __init__(self, path: str | Path) -> None:
        """Open the file, and check and index it if it has no usable index.

        Raises:
            GenomeError: the file is missing, empty, truncated or not DNA in FASTA.
        """
        self.path = Path(path)
        if not self.path.is_file():
            raise GenomeError(f"{path}: {why_no_file(path)}; give a FASTA, plain, bgzip or gzip")
        self._fasta = open_indexed(self.path)
        self._lock = Lock()  # htslib seeks and reads in two steps
        names, lengths_bp = self._fasta.references, self._fasta.lengths
        self.contig_lengths_bp = dict(zip(names, lengths_bp, strict=True))

    def fetch(self, interval: Interval) -> str:
        """Return the bases of an interval, in the case of the file and with U as T.

        Raises:
            GenomeError: the contig is unknown or the interval ends past it.
        """
        length_bp = self.contig_lengths_bp.get(interval.contig)
        if length_bp is None:
            raise GenomeError(f"{self.path}: {self.explain_missing([interval.contig])}")
        if interval.end > length_bp:
            raise GenomeError(
                f"{self.path}: {interval.to_region()} ends past the contig's {length_bp} bases"
            )
        if not interval.length_bp:  # pysam refuses the end of a contig of 2^31 - 1 bases
            return ""
        return self._read(interval.contig, interval.start, interval.end)

    def fetch_circular(self, contig: str, start: int, end: int) -> str:
        """Return bases `start` to `end` of a contig, continuing at base 0 past its end."""
        length_bp = self.contig_lengths_bp.get(contig)
        if length_bp is not None and 0 <= start < end <= length_bp:
            return self._read(contig, start, end)
        if length_bp is None or end <= length_bp or start >= end:
            return self.fetch(Interval(contig, start, end))
        if start >= length_bp:
            return self.fetch_circular(contig, start - length_bp, end - length_bp)
        first = self.fetch(Interval(contig, start, length_bp))
        return first + self.fetch_circular(contig, 0, end - length_bp)

    def _read(self, contig: str, start: int, end: int) -> str:
        with self._lock:
            return as_dna(self._fasta.fetch(contig, start, end))

    def check_ref(self, contig: str, position: int, ref: str, where: str) -> str | None:
        """Check that REF agrees with the reference at `position` (0-based).

        Returns:
            `reference_unknown` if the reference has N for a base of REF, else None.

        Raises:
            GenomeError: REF contradicts the reference; the message begins with `where`.
        """
        disagreement = self.disagreement(contig, position, ref)
        if disagreement is None or not disagreement.is_contradiction:
            return disagreement.reason if disagreement else None
        raise GenomeError(
            f"{where}: {self.explain(disagreement, contig, ref)}; "
            "is it the assembly that the variants were called on?"
        )

    def disagreement(self, contig: str, position: int, ref: str) -> Disagreement | None:
        """Return the disagreement of REF with the reference at `position` (0-based), or None.

        Case does not matter. An IUPAC code in the reference agrees with each of its bases, because
        VCF 4.3 (section 1.6.1) reduces such a REF to one base. N in the reference leaves every base
        of REF unconfirmed (`reference_unknown`). N in REF, as structural variants have, agrees with
        any base. At the telomeres, which VCF numbers 0 and one past the end, any REF agrees.
        """
        length_bp = self.contig_lengths_bp.get(contig)
        if length_bp is None:
            return Disagreement("contig_unknown", "")
        if position in (-1, length_bp):
            return None
        if position < 0 or position + len(ref) > length_bp:
            return Disagreement("ref_past_end", "")
        bases = self.fetch(Interval(contig, position, position + len(ref))).upper()
        pairs = [(a, b) for a, b in zip(ref.upper(), bases, strict=True) if a not in ("N", b)]
        if not all(b == "N" or a in IUPAC_BASES.get(b, "") for a, b in pairs):
            return Disagreement("ref_mismatch", bases)
        is_unknown = any(b == "N" for _, b in pairs)
        return Disagreement("reference_unknown", bases) if is_unknown else None

    def explain(self, disagreement: Disagreement, contig: str, ref: str) -> str:
        """Return a disagreement in words, for messages."""
        if disagreement.reason == "contig_unknown":
            return self.explain_missing([contig])
        if disagreement.reason == "ref_past_end":
            return f"REF ends past the contig's {self.contig_lengths_bp[contig]} bases"
        return f"REF is {short(ref)} but {self.path} has {short(disagreement.reference_bases)}"

    def explain_missing(self, contigs: Iterable[str]) -> str:
        """Return which contigs are missing, and whether only a `chr` prefix differs."""
        contigs = list(contigs)
        hint = prefix_hint(contigs, self.contig_lengths_bp) or "; are both of the same assembly?"
        known = shown_names(self.contig_lengths_bp)
        return f"no contig {shown_names(contigs)} in the FASTA, which has {known}{hint}"

    def close(self) -> None:
        """Close the file and delete a temporary unpacked copy."""
        self._fasta.close()

    def __enter__(self) -> "Reference":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def short(bases: str) -> str:
    """Return bases for a message: the first 12 and the number of bases if there are more."""
    return bases if len(bases) <= 12 else f"{bases[:12]}... ({len(bases)} bases)"
