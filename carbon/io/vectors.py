"""Vectors of sequences, or of both alleles of variants, as Parquet or NumPy.

Vectors are on disk until they are written, so memory grows with names and alleles alone.
"""

import json
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.batching import in_blocks
from carbon.io.files import errors_naming, scratch_folder

Float32s = NDArray[np.float32]
Row = tuple[str, int, Float32s]
"""Name, number of bases and vector."""
_ROW_GROUP = 1024  # sequences that are in memory until they are written


def write_parquet(path: Path, rows: Iterable[Row], width: int, settings: dict[str, Any]) -> int:
    """Write `(name, bases, embedding)` as Parquet, in row groups as they come; return their number.

    The embedding is a list of `width` float32; the settings are in the metadata of the schema,
    under `carbon`.
    """
    import pyarrow as pa

    vectors = pa.list_(pa.float32(), width)
    kinds = {"name": pa.string(), "bases": pa.int64(), "embedding": vectors}
    return _write_groups(path, rows, kinds, settings)


def _write_groups(
    path: Path, rows: Iterable[Sequence[Any]], kinds: Mapping[str, Any], settings: Mapping[str, Any]
) -> int:
    """Write rows as Parquet, with columns of some names and Arrow types; return their number."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(kinds.items(), metadata={"carbon": json.dumps(settings)})
    stream, num_rows = iter(rows), 0
    with pq.ParquetWriter(path, schema) as sink:
        while group := list(islice(stream, _ROW_GROUP)):
            columns = [
                pa.array(column, type=kind)
                for column, kind in zip(zip(*group, strict=True), kinds.values(), strict=True)
            ]
            sink.write_table(pa.table(columns, schema=schema))
            num_rows += len(group)
    return num_rows


def read_parquet(path: Path) -> Iterator[Row]:
    """Yield the rows that `write_parquet` wrote, with one row group in memory."""
    import pyarrow.parquet as pq

    for batch in pq.ParquetFile(path).iter_batches(_ROW_GROUP):
        names, lengths_bp, vectors = batch.columns
        values = vectors.flatten().to_numpy().reshape(-1, vectors.type.list_size)
        yield from zip(names.to_pylist(), lengths_bp.to_pylist(), values, strict=True)


def write_npz(path: Path, rows: Iterable[Row], width: int, settings: dict[str, Any]) -> int:
    """Write arrays `name`, `bases` and `embedding` for `numpy.load`; return the number of rows.

    `embedding` is (rows, width) float32; `carbon` holds the settings as JSON. The vectors go
    through a scratch file, since an array names its number of rows before its values.
    """
    names: list[str] = []
    lengths_bp: list[int] = []
    with scratch_folder("embed") as folder:
        vectors = folder / "vectors"
        with errors_naming(vectors), vectors.open("wb") as sink:
            for name, num_bases, vector in rows:
                names.append(name)
                lengths_bp.append(num_bases)
                sink.write(vector.astype("<f4").tobytes())
        with zipfile.ZipFile(path, "w") as archive:
            _add_vectors(archive, "embedding", vectors, (len(names), width))
            _add_texts(archive, "name", names)
            _add_array(archive, "bases", np.array(lengths_bp, dtype=int))
            _add_array(archive, "carbon", np.array(json.dumps(settings)))
    return len(names)


class AlleleRow(NamedTuple):
    """A row of the output; `position` is 1-based, and a vector is None if there is a reason."""

    contig: str
    position: int
    id: str
    ref: str
    alt: str
    reason: str | None
    ref_embedding: Float32s | None
    alt_embedding: Float32s | None


_TEXTS = ("contig", "id", "ref", "alt", "reason")
_OF_ALLELES = ("ref_embedding", "alt_embedding")


def write_alleles_parquet(
    path: Path, rows: Iterable[AlleleRow], width: int, settings: Mapping[str, Any]
) -> int:
    """Write `AlleleRow`s as Parquet, in row groups as they come; return their number.

    The vectors are lists of `width` float32, null with a reason; the settings are in the metadata
    of the schema, under `carbon`.
    """
    import pyarrow as pa

    kinds = {**dict.fromkeys(_TEXTS, pa.string()), "position": pa.int64()}
    vectors = pa.list_(pa.float32(), width)
    of_fields = {name: kinds.get(name, vectors) for name in AlleleRow._fields}
    return _write_groups(path, rows, of_fields, settings)


def write_alleles_npz(
    path: Path, rows: Iterable[AlleleRow], width: int, settings: Mapping[str, Any]
) -> int:
    """Write an array for each field of `AlleleRow`, for `numpy.load`; return the number of rows.

    The vectors are (rows, width) float32, NaN with a reason; `carbon` holds the settings as JSON.
    Texts take the width of the longest one.
    """
    places: list[AlleleRow] = []
    missing = np.full(width, np.nan, dtype="<f4")
    with scratch_folder("embed") as folder:
        files = [folder / name for name in _OF_ALLELES]
        with errors_naming(files[0]), files[0].open("wb") as refs, files[1].open("wb") as alts:
            for row in rows:
                places.append(row._replace(ref_embedding=None, alt_embedding=None))
                for sink, vector in ((refs, row.ref_embedding), (alts, row.alt_embedding)):
                    sink.write((missing if vector is None else vector.astype("<f4")).tobytes())
        with zipfile.ZipFile(path, "w") as archive:
            for name, file in zip(_OF_ALLELES, files, strict=True):
                _add_vectors(archive, name, file, (len(places), width))
            for name in _TEXTS:
                _add_texts(archive, name, [getattr(row, name) or "" for row in places])
            _add_array(archive, "position", np.array([row.position for row in places], dtype=int))
            _add_array(archive, "carbon", np.array(json.dumps(settings)))
    return len(places)


def _add_vectors(
    archive: zipfile.ZipFile, name: str, vectors: Path, shape: tuple[int, int]
) -> None:
    """Add an array from a file of its values, whose number is known only now."""
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    with _member(archive, name) as target, vectors.open("rb") as source:
        np.lib.format.write_array_header_1_0(target, header)
        shutil.copyfileobj(source, target)


def _add_texts(archive: zipfile.ZipFile, name: str, texts: Sequence[str]) -> None:
    """Add an array of texts in parts, since each takes as much memory as the longest."""
    dtype = np.dtype(f"<U{max(1, max(map(len, texts), default=1))}")
    header = {"descr": dtype.str, "fortran_order": False, "shape": (len(texts),)}
    with _member(archive, name) as target:
        np.lib.format.write_array_header_1_0(target, header)
        for part in in_blocks(texts, _ROW_GROUP):
            target.write(np.array(part, dtype=dtype).tobytes())


def _add_array(archive: zipfile.ZipFile, name: str, values: NDArray[Any]) -> None:
    with _member(archive, name) as target:
        np.lib.format.write_array(target, values, allow_pickle=False)


def _member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """Open an array of an archive for writing, with a fixed date: equal rows give equal bytes."""
    return archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True)
