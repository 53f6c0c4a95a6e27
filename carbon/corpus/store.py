"""A source's records with random access: bases and tags in flat files that are mapped, not read.

A store is made once from the Parquet files of a source and split, a batch at a time, and found
again by what is in them. However many records there are, opening one costs no memory.

    bases.bin     uint8, the letters of all records, one behind the other
    ends.bin      int64, where each record ends in it
    species.bin   int8, its species type as a place in SPECIES_TAG_OF, or -1
    genes.bin     int8, its gene type as a place in GENE_TAG_OF, or -1
    store.json    counts, and the files it was made from
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from filelock import FileLock
from numpy.typing import NDArray

from carbon.console import progress
from carbon.corpus.files import mapped, opened
from carbon.corpus.tags import GENE_TAG_OF, SPECIES_TAG_OF
from carbon.errors import CorpusError
from carbon.files import atomic_folder

_FORMAT = 1
_ROWS_A_BATCH = 1024


@dataclass(frozen=True, slots=True)
class Store:
    """Records of one source; everything is mapped from disk.

    Attributes:
        folder: where it lies.
        key: 16 hexadecimal digits that tell its content.
        bases: (bases,) uint8 letters, in the case of the file.
        ends: (records,) int64.
        species: (records,) int8, a place in SPECIES_TAG_OF or -1.
        genes: (records,) int8, a place in GENE_TAG_OF or -1.
    """

    folder: Path
    key: str
    bases: NDArray[np.uint8]
    ends: NDArray[np.int64]
    species: NDArray[np.int8]
    genes: NDArray[np.int8]

    @property
    def num_records(self) -> int:
        """Number of records."""
        return len(self.ends)

    def lengths_bp(self, first: int, last: int) -> NDArray[np.int64]:
        """Return the bases of records `first` to `last`."""
        before = self.ends[first - 1] if first else 0
        return np.diff(self.ends[first:last], prepend=before)

    def describe(self, record: int) -> dict[str, Any]:
        """Return what the Parquet file says of a record but its bases; slow, for people to read."""
        for path in json.loads((self.folder / "store.json").read_text(encoding="utf-8"))["files"]:
            with opened(path) as source:
                parquet = pq.ParquetFile(source)
                if record >= parquet.metadata.num_rows:
                    record -= parquet.metadata.num_rows
                    continue
                names = set(parquet.schema_arrow.names) - {"sequence", "text", "segments"}
                for group in range(parquet.num_row_groups):
                    size = parquet.metadata.row_group(group).num_rows
                    if record < size:
                        table = parquet.read_row_group(group, columns=sorted(names))
                        return dict(table.slice(record, 1).to_pylist()[0])
                    record -= size
        return {}

    def letters(self, record: int, start: int, end: int) -> NDArray[np.uint8]:
        """Return bases `start` to `end` of a record, fewer where it ends before."""
        first = int(self.ends[record - 1]) if record else 0
        return self.bases[first + start : min(first + end, int(self.ends[record]))]


def open_store(files: Mapping[str, str | None], cache: str | Path, title: str) -> Store:
    """Return the store of some Parquet files, made if the cache does not have it.

    Several processes may ask at once: one makes it, the others wait.

    Args:
        files: paths or URLs that fsspec opens (`https://`, `s3://`, `memory://`), in order, each
            with its sha256 where that is known.
        cache: folder for stores.
        title: of the source, for the name of its folder and for messages.

    Raises:
        CorpusError: a file is missing or torn, is not the one that the sum is of, or has no column
            of sequences.
    """
    key = _key_of(list(files))
    folder = Path(cache) / f"{title}-{key}"
    Path(cache).mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not (folder / "store.json").is_file():
            with atomic_folder(folder) as made:
                _make(files, made, title)
    return mapped_store(folder)


def mapped_store(folder: Path) -> Store:
    """Return the store that lies in a folder.

    Raises:
        CorpusError: a file of it is missing or cut off.
    """
    info = json.loads((folder / "store.json").read_text(encoding="utf-8"))
    records = info["records"]
    return Store(
        folder,
        folder.name.rpartition("-")[2],
        mapped(folder / "bases.bin", np.uint8, info["bases"], scattered=True),
        mapped(folder / "ends.bin", np.int64, records),
        mapped(folder / "species.bin", np.int8, records),
        mapped(folder / "genes.bin", np.int8, records),
    )


def _key_of(files: list[str]) -> str:
    """Hash the footers: of Parquet these hold counts, offsets and statistics of every column."""
    sums = hashlib.sha256(f"carbon store {_FORMAT}".encode())
    for path in files:
        with opened(path) as source:
            size = source.seek(0, os.SEEK_END)
            source.seek(max(0, size - 8))
            tail = source.read(8)
            if tail[4:] != b"PAR1":
                raise CorpusError(f"{path}: is not whole Parquet; build or fetch it again")
            footer = int.from_bytes(tail[:4], "little") + 8
            source.seek(max(0, size - footer))
            sums.update(f"{size} ".encode() + source.read(footer))
    return sums.hexdigest()[:16]


def _make(files: Mapping[str, str | None], folder: Path, title: str) -> None:
    end = records = 0
    names = ("bases", "ends", "species", "genes")
    sinks = {name: (folder / f"{name}.bin").open("wb") for name in names}
    with progress(f"preparing {title}: files", len(files)) as advance:
        for path, expected in files.items():
            _check_sum(path, expected)
            for batch in _batches(path):
                sequences = pc.cast(batch.column(0), pa.large_binary())
                offsets = np.frombuffer(sequences.buffers()[1], dtype=np.int64)
                offsets = offsets[sequences.offset : sequences.offset + len(sequences) + 1]
                letters = np.frombuffer(sequences.buffers()[2] or b"", dtype=np.uint8)
                letters[offsets[0] : offsets[-1]].tofile(sinks["bases"])
                (offsets[1:] - offsets[0] + end).tofile(sinks["ends"])
                _codes(batch, "species_type", SPECIES_TAG_OF).tofile(sinks["species"])
                _codes(batch, "gene_type", GENE_TAG_OF).tofile(sinks["genes"])
                end += int(offsets[-1] - offsets[0])
                records += len(sequences)
            advance(1)
    for sink in sinks.values():
        sink.close()
    info = {"format": _FORMAT, "records": records, "bases": end, "files": list(files)}
    (folder / "store.json").write_text(json.dumps(info, indent=1) + "\n")


def _check_sum(path: str, expected: str | None) -> None:
    if expected is None:
        return
    with opened(path) as source:
        found = hashlib.file_digest(source, "sha256").hexdigest()  # type: ignore[arg-type]
    if found != expected:
        raise CorpusError(
            f"{path}: is not the file that the manifest names (its sha256 is {found[:12]}..., not "
            f"{expected[:12]}...); is it of another build? Build or fetch the corpus again"
        )


def _batches(path: str) -> Iterator[pa.RecordBatch]:
    try:
        with opened(path) as source:
            parquet = pq.ParquetFile(source)
            names = parquet.schema_arrow.names
            sequence = next((name for name in ("sequence", "text") if name in names), None)
            if sequence is None:
                raise CorpusError(f"{path}: has no column 'sequence' or 'text'; is it a corpus?")
            columns = [sequence, *(n for n in ("species_type", "gene_type") if n in names)]
            for batch in parquet.iter_batches(_ROWS_A_BATCH, columns=columns):
                if batch.column(sequence).null_count:
                    raise CorpusError(f"{path}: a record has no sequence; build it again")
                yield batch.select(columns)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise CorpusError(f"{path}: cannot be read ({reason}); build or fetch it again") from None


def _codes(batch: pa.RecordBatch, name: str, tags: dict[str, str]) -> NDArray[np.int8]:
    """Return types as places in a table of tags; the released corpus writes them as `<cds>`."""
    if name not in batch.schema.names:
        return np.full(batch.num_rows, -1, dtype=np.int8)
    bare = pc.utf8_trim(pc.cast(batch.column(name), pa.string()), "<>")
    codes = pc.fill_null(pc.index_in(bare, pa.array(list(tags))), -1)
    found: NDArray[np.int8] = codes.to_numpy(zero_copy_only=False).astype(np.int8)
    return found
