"""Random access to the records of a source: bases and tags in memory-mapped flat files.

A store is made once from the Parquet files of a source and split, batch by batch, and found again
by a hash of their content. Opening it takes no memory, whatever the number of records.

    bases.bin     uint8, letters of all records, concatenated
    ends.bin      int64, end of each record in bases.bin
    species.bin   int8, id of the species tag minus 4, the id of the first one; or -1
    genes.bin     int8, id of the gene tag minus 11, the id of the first one; or -1
    store.json    counts, and the files from which the store was made
"""

import glob
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import NonNegativeInt
from typing_extensions import TypedDict

from carbon.corpus.schema import REBUILD, REMEDY, compare_sums, mapped, opened, parquet
from carbon.errors import CorpusError, UserError
from carbon.io.files import atomic_folder, remembered_sha256
from carbon.io.locks import locked_output
from carbon.io.structured import JSON_OBJECT, read_json
from carbon.progress import progress
from carbon.tokenizer import TAGS, Tag, tags_of

FORMAT = 1
_PARQUET = b"PAR1"  # first and last bytes of a file
_ROWS_A_BATCH = 1024
_VALUES_A_BLOCK = 1 << 22
# A store keeps the native id of a tag minus this number, so the first tag of each kind is 0.
FIRST_ID = {"species": 4, "gene": 11}


def stored(tag: Tag) -> int:
    """Return the number of a tag in a store."""
    return tag.native_id - FIRST_ID[tag.kind]


@dataclass(frozen=True, slots=True)
class RecordStore:
    """Records of one source, memory-mapped from disk.

    Attributes:
        folder: folder of the store.
        files: Parquet files of the source, where they are now; empty in a worker process.
        key: hash of the content, 16 hexadecimal digits.
        bases: (bases,) uint8 letters, in the case of the file.
        ends: (records,) int64, end of each record in `bases`.
        species: (records,) int8, `stored` of the species tag, or -1.
        genes: (records,) int8, `stored` of the gene tag, or -1.
    """

    folder: Path
    files: tuple[str, ...]
    key: str
    bases: NDArray[np.uint8]
    ends: NDArray[np.int64]
    species: NDArray[np.int8]
    genes: NDArray[np.int8]

    @property
    def num_records(self) -> int:
        """Number of records."""
        return len(self.ends)

    @property
    def tags(self) -> tuple[Tag, ...]:
        """Tags of at least one record."""
        used = {"species": _values_in(self.species), "gene": _values_in(self.genes)}
        return tuple(tag for tag in TAGS if stored(tag) in used[tag.kind])

    def lengths_bp(self, first: int, last: int) -> NDArray[np.int64]:
        """Return the lengths of records `first` to `last`."""
        before = self.ends[first - 1] if first else 0
        return np.diff(self.ends[first:last], prepend=before)

    def describe(self, record: int) -> dict[str, Any]:
        """Return the columns of a record in its Parquet file, without its bases; slow."""
        for path in self.files:
            with parquet(path) as source:
                if record >= source.metadata.num_rows:
                    record -= source.metadata.num_rows
                    continue
                names = set(source.schema_arrow.names) - {"sequence", "text", "segments"}
                for group in range(source.num_row_groups):
                    size = source.metadata.row_group(group).num_rows
                    if record < size:
                        table = source.read_row_group(group, columns=sorted(names))
                        return dict(table.slice(record, 1).to_pylist()[0])
                    record -= size
        return {}

    def letters(self, record: int, start: int, end: int) -> NDArray[np.uint8]:
        """Return bases `start` to `end` of a record, fewer if the record ends before `end`."""
        first = int(self.ends[record - 1]) if record else 0
        return self.bases[first + start : min(first + end, int(self.ends[record]))]


def open_store(files: Mapping[str, str | None], cache: str | Path, title: str) -> RecordStore:
    """Return the store of Parquet files, and make it if the cache lacks it.

    If several processes call at once, one makes the store and the others wait.

    Args:
        files: paths or fsspec URLs (`https://`, `s3://`, `memory://`), in order, each with its
            SHA-256 if that is known.
        cache: folder for stores.
        title: name of the source, for the name of its folder and for messages.

    Raises:
        CorpusError: a file is missing or damaged, differs from its checksum, or has no column of
            sequences.
    """
    Path(cache).mkdir(parents=True, exist_ok=True)
    folder = Path(cache) / f"{title}-{_key_of(files, Path(cache))}"
    made_whole(folder, "store.json", lambda made: _make(files, made, title), FORMAT)
    return mapped_store(folder, tuple(files))


def made_whole(folder: Path, marker: str, make: Callable[[Path], None], number: int) -> None:
    """Make a folder with a JSON marker file, which is written last, unless it is complete.

    It is complete if the marker is there and has this number as its `format`.

    If several processes call at once, one makes the folder and the others wait. Leftovers of killed
    processes are removed.
    """
    if _is_whole(folder / marker, number):
        return
    with locked_output(folder, wait=True):
        if _is_whole(folder / marker, number):
            return
        shutil.rmtree(folder, ignore_errors=True)
        for left in folder.parent.glob(f".*.{glob.escape(folder.name)}"):
            shutil.rmtree(left)
        with atomic_folder(folder) as made:
            try:
                make(made)
            except OSError as error:
                raise OSError(error.errno, error.strerror or str(error), str(folder)) from None


def _is_whole(marker: Path, number: int) -> bool:
    try:
        return bool(read_json(marker, JSON_OBJECT).get("format") == number)
    except (OSError, UserError):
        return False


class _StoreInfo(TypedDict):
    """`store.json`: how many records and bases the arrays hold."""

    records: NonNegativeInt
    bases: NonNegativeInt


def mapped_store(folder: Path, files: tuple[str, ...] = ()) -> RecordStore:
    """Return the store in a folder.

    Raises:
        CorpusError: a file of the store is missing or truncated.
    """
    info = read_json(folder / "store.json", _StoreInfo, error=CorpusError, remedy=REMEDY)
    records = info["records"]
    return RecordStore(
        folder,
        files,
        folder.name.rpartition("-")[2],
        mapped(folder / "bases.bin", np.uint8, info["bases"], scattered=True),
        mapped(folder / "ends.bin", np.int64, records),
        mapped(folder / "species.bin", np.int8, records),
        mapped(folder / "genes.bin", np.int8, records),
    )


def _key_of(files: Mapping[str, str | None], cache: Path) -> str:
    """Hash the content of files: checksums of local files, else checksums of the manifest.

    For remote files without a checksum only the footer is hashed, which in Parquet holds counts,
    offsets, and the minimum and maximum of every column.
    """
    sums = hashlib.sha256(f"carbon store {FORMAT}".encode())
    for path, known in files.items():
        local = Path(path.removeprefix("file://"))
        if local.is_file():
            sha256 = _sum_of(local, cache)
            compare_sums(path, sha256, known)
            sums.update(sha256.encode())
        else:
            sums.update(known.encode() if known else _footer(path))
    return sums.hexdigest()[:16]


def _sum_of(path: Path, cache: Path) -> str:
    """Return the SHA-256 of a Parquet file; other files are refused before they are read."""
    with path.open("rb") as source:
        source.seek(-min(4, path.stat().st_size), os.SEEK_END)
        if source.read() != _PARQUET:
            raise _not_parquet(path)
    return remembered_sha256(path, cache)


def _not_parquet(path: str | Path) -> CorpusError:
    return CorpusError(f"{path}: is not whole Parquet; build or fetch it again")


def _footer(path: str) -> bytes:
    with opened(path) as source:
        size = source.seek(0, os.SEEK_END)
        source.seek(max(0, size - 8))
        tail = source.read(8)
        if tail[4:] != _PARQUET:
            raise _not_parquet(path)
        length = int.from_bytes(tail[:4], "little") + 8
        source.seek(max(0, size - length))
        return f"{size} ".encode() + source.read(length)


def _make(files: Mapping[str, str | None], folder: Path, title: str) -> None:
    end = records = 0
    names = ("bases", "ends", "species", "genes")
    sinks = {name: (folder / f"{name}.bin").open("wb") for name in names}
    with progress(f"preparing {title}: files", len(files)) as advance:
        for path, known in files.items():
            _check_remote_sum(path, known)
            for columns in _batches(path):
                offsets = np.frombuffer(columns.letters.buffers()[1], dtype=np.int64)
                offsets = offsets[columns.letters.offset :][: len(columns.letters) + 1]
                letters = np.frombuffer(columns.letters.buffers()[2] or b"", dtype=np.uint8)
                sinks["bases"].write(letters[offsets[0] : offsets[-1]].data)
                sinks["ends"].write((offsets[1:] - offsets[0] + end).data)
                sinks["species"].write(columns.species.data)
                sinks["genes"].write(columns.genes.data)
                end += int(offsets[-1] - offsets[0])
                records += len(columns.letters)
            advance(1)
    for sink in sinks.values():
        sink.close()
    info = {"format": FORMAT, "records": records, "bases": end, "files": list(files)}
    (folder / "store.json").write_text(json.dumps(info, indent=1) + "\n", encoding="utf-8")


def _check_remote_sum(path: str, known: str | None) -> None:
    if known is not None and not Path(path.removeprefix("file://")).is_file():
        with opened(path) as source:
            sha256 = hashlib.file_digest(source, "sha256").hexdigest()  # type: ignore[arg-type]
        compare_sums(path, sha256, known)


class _Columns(NamedTuple):
    letters: pa.LargeBinaryArray
    species: NDArray[np.int8]
    genes: NDArray[np.int8]


def _batches(path: str) -> Iterator[_Columns]:
    try:
        with parquet(path) as source:
            names = source.schema_arrow.names
            sequence = next((name for name in ("sequence", "text") if name in names), None)
            if sequence is None:
                raise CorpusError(f"{path}: has no column 'sequence' or 'text'; is it a corpus?")
            columns = [sequence, *(n for n in ("species_type", "gene_type") if n in names)]
            for batch in source.iter_batches(_ROWS_A_BATCH, columns=columns):
                if batch.column(sequence).null_count:
                    raise CorpusError(f"{path}: a record has no sequence; {REBUILD}")
                letters = _as_text(batch.column(sequence)).cast(pa.large_binary())
                species = _codes(batch, "species_type", tags_of("species"))
                yield _Columns(letters, species, _codes(batch, "gene_type", tags_of("gene")))
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise CorpusError(f"{path}: cannot be read ({reason}); {REBUILD}") from None


def _values_in(column: NDArray[np.int8]) -> set[int]:
    """Return the distinct values of a mapped column, read once in blocks."""
    blocks = range(0, len(column), _VALUES_A_BLOCK)
    return {int(v) for at in blocks for v in np.unique(column[at : at + _VALUES_A_BLOCK])}


def _as_text(column: pa.Array) -> pa.Array:
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
        column = column.cast(pa.large_binary())  # binary and views; of numbers it is an error
    return column.cast(pa.large_string())


def _codes(batch: pa.RecordBatch, name: str, tags: tuple[Tag, ...]) -> NDArray[np.int8]:
    """Return the stored numbers of a column of codes, which may be written as `<cds>`."""
    if name not in batch.schema.names:
        return np.full(batch.num_rows, -1, dtype=np.int8)
    import pyarrow.compute as pc  # takes 60 ms, so only when a store is made

    bare = pc.utf8_trim(_as_text(batch.column(name)), "<>")
    codes = pa.array([tag.code for tag in tags], pa.large_string())
    places = pc.fill_null(pc.index_in(bare, codes), len(tags)).to_numpy(zero_copy_only=False)
    numbers: NDArray[np.int8] = np.array([*map(stored, tags), -1], dtype=np.int8)[places]
    return numbers
