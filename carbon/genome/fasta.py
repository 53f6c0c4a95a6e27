"""Reference sequences with random access (pysam), from plain, bgzip or gzip FASTA.

An index that is missing is written beside the file, as `samtools faidx` does, or into a temporary
folder where that is not allowed. Plain gzip has no random access, so it is unpacked into the
temporary folder first. Whoever builds an index reads the whole file once; that is when its form is
checked.
"""

import os
import re
import shutil
import tempfile
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import numpy as np
import pysam
from pysam.utils import SamtoolsError

from carbon.errors import GenomeError
from carbon.genome.alphabet import IUPAC_BASES, IUPAC_DNA
from carbon.genome.interval import Interval
from carbon.genome.streams import BGZIP_END, BROKEN_GZIP, LONE_CR, is_bgzip, open_bytes

_CONTIGS_LOOKED_AT = 1000
_HEADER_BYTES = 4096
_BGZIP_BLOCK_BYTES = 1 << 16
_NAME_BYTES = 65_000  # htslib reads no index line of 64 KiB
_NOT_DNA = re.compile(rb"[^" + (IUPAC_DNA + IUPAC_DNA.lower()).encode() + rb"\-\r\n]")


class Reference:
    """A FASTA file opened for random access.

    Attributes:
        path: the file as the user named it.
        contig_lengths_bp: length of every contig, in the order of the file.
    """

    def __init__(self, path: str | Path) -> None:
        """Open and, where needed, check and index the file.

        Raises:
            GenomeError: the file is missing, empty, truncated or not DNA in FASTA.
        """
        self.path = Path(path)
        if not self.path.is_file():
            raise GenomeError(f"{path}: no such file; give a FASTA, plain, bgzip or gzip")
        self._scratch = tempfile.TemporaryDirectory(prefix="carbon-fasta-")
        try:
            self._fasta = _open_indexed(self.path, Path(self._scratch.name))
        except BaseException:
            self._scratch.cleanup()
            raise
        names, lengths_bp = self._fasta.references, self._fasta.lengths
        self.contig_lengths_bp = dict(zip(names, lengths_bp, strict=True))

    def fetch(self, interval: Interval) -> str:
        """Return the bases of an interval, in the case of the file.

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
        return str(self._fasta.fetch(interval.contig, interval.start, interval.end))

    def fetch_circular(self, contig: str, start: int, end: int) -> str:
        """Return bases `start` to `end` of a contig; past its end they go on from base 0."""
        length_bp = self.contig_lengths_bp.get(contig)
        if length_bp is None or end <= length_bp or start >= end:
            return self.fetch(Interval(contig, start, end))
        if start >= length_bp:
            return self.fetch_circular(contig, start - length_bp, end - length_bp)
        first = self.fetch(Interval(contig, start, length_bp))
        return first + self.fetch_circular(contig, 0, end - length_bp)

    def check_ref(self, contig: str, position: int, ref: str, where: str) -> None:
        """Raise GenomeError, opening with `where`, unless REF stands at `position` (0-based)."""
        there = self.disagreement(contig, position, ref, where)
        if there is not None:
            raise GenomeError(
                f"{where}: REF is {short(ref)} but {self.path} has {short(there)}; "
                "is it the assembly that the variants were called on?"
            )

    def disagreement(self, contig: str, position: int, ref: str, where: str) -> str | None:
        """Return the bases at `position` (0-based) if they are not those of REF, else None.

        Where the reference has an IUPAC code, any base that it stands for agrees: VCF 4.3 (section
        1.6.1) reduces such a REF to one base. A REF of N, as structural variants have, agrees with
        any; and nothing stands at the telomeres, which VCF numbers 0 and one past the end.

        Raises:
            GenomeError: there is no such contig, or REF ends past it; the message opens with
                `where`.
        """
        length_bp = self.contig_lengths_bp.get(contig)
        if length_bp is None:
            raise GenomeError(f"{where}: {self.explain_missing([contig])}")
        if position in (-1, length_bp):
            return None
        if position < 0 or position + len(ref) > length_bp:
            raise GenomeError(
                f"{where}: REF ends past the contig's {length_bp} bases; "
                f"is {self.path} the assembly that the variants were called on?"
            )
        there = self.fetch(Interval(contig, position, position + len(ref))).upper()
        agree = (
            a in ("N", b, *IUPAC_BASES.get(b, "")) for a, b in zip(ref.upper(), there, strict=True)
        )
        return None if all(agree) else there

    def explain_missing(self, contigs: Iterable[str]) -> str:
        """Say which contigs are absent, and whether a `chr` prefix is all that is between."""
        contigs = list(contigs)
        ours = list(self.contig_lengths_bp)
        swapped = [c[3:] if c.startswith("chr") else f"chr{c}" for c in contigs]
        hint = "; are both of the same assembly?"
        if any(c in self.contig_lengths_bp for c in swapped):
            hint = "; one side writes a 'chr' prefix: rename the contigs of one of the two"
        return f"no contig {_some(contigs)} in the FASTA, which has {_some(ours)}{hint}"

    def close(self) -> None:
        """Close the file and remove what was unpacked for it."""
        self._fasta.close()
        self._scratch.cleanup()

    def __enter__(self) -> "Reference":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def short(bases: str) -> str:
    """Write bases, the first of them if they are many."""
    return bases if len(bases) <= 12 else f"{bases[:12]}... ({len(bases)} bases)"


def _some(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names[:3]) + (" ..." if len(names) > 3 else "")


def _open_indexed(path: Path, scratch: Path) -> pysam.FastaFile:
    compression = compression_of(path)
    source = path
    if compression == "gzip":
        source = scratch / "unpacked.fa"
        _unpack(path, source)
    bgzip = compression == "bgzip"
    if bgzip:
        check_bgzip_end(source)
    if (indexes := _fresh_indexes(source, bgzip=bgzip)) and (found := _open(source, *indexes)):
        return found
    check_fasta(source, shown_as=path)
    opened = _open(source, *_build_indexes(source, scratch, bgzip=bgzip, shown_as=path))
    if opened is None:
        raise GenomeError(f"{path}: cannot be opened with its index; is the disk full?")
    return opened


def _open(path: Path, fai: Path, gzi: Path | None) -> pysam.FastaFile | None:
    """Open a FASTA with its indexes, or return None if these are not of any use."""
    try:
        fasta = pysam.FastaFile(
            str(path), filepath_index=str(fai), filepath_index_compressed=str(gzi) if gzi else None
        )
    except (OSError, ValueError):
        return None
    return fasta if fasta.nreferences else None


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
            raise GenomeError(f"{path}: is cut off: the end of its bgzip is missing; fetch again")


def _unpack(path: Path, target: Path) -> None:
    try:
        with open_bytes(path) as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
    except BROKEN_GZIP as error:
        raise GenomeError(f"{path}: the gzip stream is broken ({error}); fetch it again") from None


def _fresh_indexes(path: Path, *, bgzip: bool) -> tuple[Path, Path | None] | None:
    """Return the index files beside `path`, unless one is missing or older than the sequence."""
    fai = Path(f"{path}.fai")
    gzi = Path(f"{path}.gzi") if bgzip else None
    modified = path.stat().st_mtime
    for index in filter(None, (fai, gzi)):
        if not index.is_file() or index.stat().st_mtime < modified:
            return None
    return (fai, gzi) if _describes(fai, gzi, path) else None


def _describes(fai: Path, gzi: Path | None, path: Path) -> bool:
    """Tell whether indexes are of a FASTA: a file that is put in its place may be older.

    Every contig that is looked at must stand where the index says, behind its own header, and the
    file must end with the last of them.
    """
    try:
        lines = [line.split("\t") for line in fai.read_text(encoding="utf-8").splitlines()]
        entries = [(line[0], [int(number) for number in line[1:]]) for line in lines]
        looked_at = entries[:: len(entries) // _CONTIGS_LOOKED_AT + 1]
        with _Unpacked(path, gzi) if gzi else path.open("rb") as source:
            for name, (length_bp, offset, line_bp, _) in [*looked_at, entries[-1]]:
                source.seek(max(0, offset - _HEADER_BYTES))
                before = source.read(min(offset, _HEADER_BYTES))
                header = before[before.rfind(b">") + 1 :]
                first_line = source.read(min(line_bp, length_bp))
                if header.split(maxsplit=1)[:1] != [name.encode()] or _NOT_DNA.search(first_line):
                    return False
            length_bp, offset, line_bp, line_bytes = entries[-1][1]
            whole_lines, rest_bp = divmod(length_bp, line_bp) if line_bp else (0, 0)
            source.seek(offset + whole_lines * line_bytes + rest_bp)
            return not source.read(_HEADER_BYTES).strip()
    except (OSError, ValueError, IndexError):
        return False


class _Unpacked:
    """A bgzip file read at places of what it unpacks to, which its index (.gzi) tells."""

    def __init__(self, path: Path, gzi: Path) -> None:
        blocks = np.fromfile(gzi, dtype="<u8")[1:].tolist()
        self._packed_at, self._unpacked_at = [0, *blocks[::2]], [0, *blocks[1::2]]
        pysam.set_verbosity(0)
        self._file = pysam.BGZFile(str(path), "r", index=None)

    def seek(self, at: int) -> None:
        block = bisect_right(self._unpacked_at, at) - 1
        within = at - self._unpacked_at[block]
        if within >= _BGZIP_BLOCK_BYTES:
            raise ValueError("the index ends before the file")
        self._file.seek(self._packed_at[block] * _BGZIP_BLOCK_BYTES + within)

    def read(self, num_bytes: int) -> bytes:
        return bytes(self._file.read(num_bytes))

    def __enter__(self) -> "_Unpacked":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def _build_indexes(
    path: Path, scratch: Path, *, bgzip: bool, shown_as: Path
) -> tuple[Path, Path | None]:
    fai, gzi = scratch / "index.fai", scratch / "index.gzi" if bgzip else None
    options = ["--fai-idx", str(fai)] + (["--gzi-idx", str(gzi)] if gzi else [])
    pysam.set_verbosity(0)
    try:
        pysam.faidx(str(path), *options, catch_stdout=False)
    except SamtoolsError:
        raise GenomeError(
            f"{shown_as}: cannot be indexed: the lines of a contig must have one length; "
            "rewrite it, for example with `seqtk seq -l 60`"
        ) from None
    if not os.access(path.parent, os.W_OK) or path.parent == scratch:
        return fai, gzi
    beside = Path(f"{path}.fai"), Path(f"{path}.gzi") if gzi else None
    for made, kept in zip((fai, gzi), beside, strict=True):
        if made and kept:
            # Copy to a temporary name first: two processes may index the same file at once.
            temporary = kept.with_name(f".{os.getpid()}.{kept.name}")
            shutil.copyfile(made, temporary)
            os.replace(temporary, kept)
    return beside


def check_fasta(path: Path, shown_as: Path) -> None:
    """Read a FASTA once and raise GenomeError at the first line that is not right."""
    seen: set[bytes] = set()
    number = 0
    try:
        with open_bytes(path) as lines:
            for number, line in enumerate(lines, start=1):
                if b"\r" in line[:-2]:
                    raise GenomeError(f"{shown_as} line {number}: {LONE_CR}")
                if line.startswith(b">"):
                    _check_header(line, seen, f"{shown_as} line {number}")
                elif not seen and line.strip():
                    raise GenomeError(
                        f"{shown_as} line {number}: expected a header that begins with '>'; "
                        "is this a FASTA file?"
                    )
                elif wrong := _NOT_DNA.search(line):
                    raise GenomeError(
                        f"{shown_as} line {number}: {wrong[0].decode('latin-1')!r} is not a DNA "
                        "letter (ACGT, N and IUPAC codes); is this a protein or a damaged file?"
                    )
    except BROKEN_GZIP as error:
        raise GenomeError(
            f"{shown_as}: broken after line {number} ({error}); fetch it again"
        ) from None
    if not seen:
        raise GenomeError(f"{shown_as}: has no sequence; give a FASTA with at least one contig")


def _check_header(line: bytes, seen: set[bytes], where: str) -> None:
    name = line[1:].split(maxsplit=1)[:1]
    if not name or line[1:2].isspace():
        raise GenomeError(f"{where}: a contig without a name; write it right after '>'")
    if len(name[0]) > _NAME_BYTES:
        raise GenomeError(
            f"{where}: a contig's name of {len(name[0]):,} letters, more than an index can hold; "
            "the name ends at the first space"
        )
    if name[0] in seen:
        raise GenomeError(f"{where}: contig '{name[0].decode()}' stands twice; keep one")
    seen.add(name[0])
