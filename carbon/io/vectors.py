"""Vectors of sequences as Parquet or NumPy, in memory that does not grow with their number."""

import json
import shutil
import zipfile
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from carbon.io.files import errors_naming, scratch_folder

Float32s = NDArray[np.float32]
_ROW_GROUP = 1024  # sequences that are in memory until they are written


def write_parquet(
    path: Path, rows: Iterable[tuple[str, int, "Float32s"]], width: int, settings: dict[str, Any]
) -> int:
    """Write `(name, bases, embedding)` as Parquet, in row groups as they come; return their number.

    The embedding is a list of `width` float32; the settings are in the metadata of the schema,
    under `carbon`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = [
        ("name", pa.string()),
        ("bases", pa.int64()),
        ("embedding", pa.list_(pa.float32(), width)),
    ]
    schema = pa.schema(fields, metadata={"carbon": json.dumps(settings)})
    stream = iter(rows)
    num_rows = 0
    with pq.ParquetWriter(path, schema) as sink:
        while group := list(islice(stream, _ROW_GROUP)):
            names, lengths_bp, vectors = zip(*group, strict=True)
            values = pa.array(np.concatenate(vectors))
            columns = [names, lengths_bp, pa.FixedSizeListArray.from_arrays(values, width)]
            sink.write_table(pa.table(columns, schema=schema))
            num_rows += len(group)
    return num_rows


def write_npz(
    path: Path, rows: Iterable[tuple[str, int, "Float32s"]], width: int, settings: dict[str, Any]
) -> int:
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
        header = {"descr": "<f4", "fortran_order": False, "shape": (len(names), width)}
        with zipfile.ZipFile(path, "w") as archive:
            with _member(archive, "embedding") as target, vectors.open("rb") as source:
                np.lib.format.write_array_header_1_0(target, header)
                shutil.copyfileobj(source, target)
            columns = {"name": np.array(names, dtype=str), "bases": np.array(lengths_bp, dtype=int)}
            for key, values in (columns | {"carbon": np.array(json.dumps(settings))}).items():
                with _member(archive, key) as target:
                    np.lib.format.write_array(target, values, allow_pickle=False)
    return len(names)


def _member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """Open an array of an archive for writing, with a fixed date: equal rows give equal bytes."""
    return archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True)
