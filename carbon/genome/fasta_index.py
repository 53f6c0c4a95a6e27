"""Indexes of FASTA files: found beside them and held against them, or built."""

import os
import shutil
from bisect import bisect_right
from pathlib import Path

import numpy as np
import pysam
from pysam.utils import SamtoolsError

from carbon.errors import GenomeError
from carbon.genome.alphabet import FASTA_LETTERS
from carbon.genome.sequence_lines import SequenceLines, check
from carbon.genome.streams import BROKEN_GZIP, check_bgzip_end, compression_of, open_bytes

_CONTIGS_LOOKED_AT = 1000
_HEADER_BYTES = 4096
_BGZIP_BLOCK_BYTES = 1 << 16


def open_indexed(path: Path, scratch: Path) -> pysam.FastaFile:
    """Open a FASTA for random access; what has to be made for that may be put into `scratch`.

    Raises:
        GenomeError: the file is empty, truncated or not DNA in FASTA.
    """
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
    check(SequenceLines(source, shown_as=path))
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
                if header.split(maxsplit=1)[:1] != [name.encode()] or first_line.translate(
                    None, FASTA_LETTERS + b"\r\n"
                ):
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
