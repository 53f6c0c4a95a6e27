"""Indexes of FASTA files: found beside them and held against them, or built."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pysam
from pysam.utils import SamtoolsError

from carbon.errors import GenomeError, UserError
from carbon.genome.fasta_index_check import describes
from carbon.genome.sequence_lines import Part, SequenceLines, checked
from carbon.genome.streams import (
    BROKEN_GZIP,
    BYTE_ORDER_MARK,
    check_bgzip_end,
    compression_of,
    open_bytes,
)
from carbon.io.files import atomic_file, scratch_folder, told_of

_NAME_BYTES = 65_000  # htslib reads no index line of 64 KiB
Indexes = tuple[Path, Path | None]  # .fai, and of a bgzip .gzi


def open_indexed(path: Path) -> pysam.FastaFile:
    """Open a FASTA for random access, by an index beside it or by one that is made.

    An index that is older than the file, or that is not of it, is made anew: beside the file, or in
    a temporary folder where that cannot be written.

    Raises:
        GenomeError: the file is empty, truncated or not DNA in FASTA, or two contigs have one name.
        OSError: the disk of the temporary folder is full.
    """
    compression = compression_of(path)
    if compression == "bgzip":
        check_bgzip_end(path)
    indexes = _indexes_of(path, is_bgzip=compression == "bgzip")
    if _is_fresh(path, indexes) and (found := _open(path, indexes)):
        return found
    with scratch_folder("fasta") as scratch:
        if compression == "gzip" or _has_mark(path):
            opened = _open_copy(path, scratch)
        else:
            for _ in _with_names_of_their_own(SequenceLines(path)):
                pass
            made = _build_indexes(path, scratch, is_bgzip=compression == "bgzip", shown_as=path)
            _keep(made, indexes)
            opened = _open(path, made)
    # What is open needs no name, so the folder is gone before the work begins.
    if opened is None:
        raise GenomeError(f"{path}: cannot be opened with its index; was it changed meanwhile?")
    return opened


def _indexes_of(path: Path, *, is_bgzip: bool) -> Indexes:
    return Path(f"{path}.fai"), Path(f"{path}.gzi") if is_bgzip else None


def _is_fresh(path: Path, indexes: Indexes) -> bool:
    """Tell whether indexes are there, not older than the sequence, and of it."""
    modified = path.stat().st_mtime
    for index in filter(None, indexes):
        if not index.is_file() or index.stat().st_mtime < modified:
            return False
    return describes(*indexes, path)


def _open(path: Path, indexes: Indexes) -> pysam.FastaFile | None:
    """Open a FASTA with its indexes, or return None if these are not of any use."""
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
        return False  # whoever reads on will say where


def _open_copy(path: Path, scratch: Path) -> pysam.FastaFile | None:
    """Unpack what htslib has no random access to, checking it, and open that."""
    copy = scratch / "unpacked.fa"
    with told_of(scratch), copy.open("wb") as sink:
        for header, text in _with_names_of_their_own(SequenceLines(path)):
            if header:
                sink.write(b">%b\n" % b" ".join(header))
            sink.write(text)
    return _open(copy, _build_indexes(copy, scratch, is_bgzip=False, shown_as=path))


def _with_names_of_their_own(lines: SequenceLines) -> Iterator[Part]:
    """Yield what `checked` does.

    Raises:
        GenomeError: as there, or two contigs have one name, or a name is too long for an index.
    """
    names: set[bytes] = set()
    for header, text in checked(lines):
        if header:
            name, _ = header
            if name in names or len(name) > _NAME_BYTES:
                raise lines.error(_wrong_name(name))
            names.add(name)
        yield header, text


def _wrong_name(name: bytes) -> str:
    if len(name) > _NAME_BYTES:
        return (
            f"a contig's name of {len(name):,} letters, more than an index can hold; the name ends "
            "at the first space"
        )
    return f"contig '{name.decode('utf-8', errors='replace')}' stands twice; keep one"


def _build_indexes(path: Path, scratch: Path, *, is_bgzip: bool, shown_as: Path) -> Indexes:
    fai, gzi = _indexes_of(scratch / "index", is_bgzip=is_bgzip)
    options = ["--fai-idx", str(fai)] + (["--gzi-idx", str(gzi)] if gzi else [])
    pysam.set_verbosity(0)
    try:
        pysam.faidx(str(path), *options, catch_stdout=False)
    except SamtoolsError:
        _need_room(scratch)
        raise GenomeError(
            f"{shown_as}: cannot be indexed: the lines of a contig must have one length; "
            "rewrite it, for example with `seqtk seq -l 60`"
        ) from None
    return fai, gzi


def _need_room(folder: Path) -> None:
    """Raise OSError if nothing can be written into a folder; samtools does not tell."""
    with told_of(folder), (folder / "room").open("wb") as sink:
        sink.write(bytes(1 << 16))


def _keep(made: Indexes, beside: Indexes) -> None:
    """Put indexes beside their file for the next time, if that is allowed and there is room."""
    with suppress(OSError, UserError):
        for index, kept in zip(made, beside, strict=True):
            if index and kept:
                with atomic_file(kept) as temporary:
                    shutil.copyfile(index, temporary)
