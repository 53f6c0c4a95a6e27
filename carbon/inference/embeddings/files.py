"""Vectors of sequences as Parquet."""

import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from carbon.inference.embeddings.vectors import Float32s

_ROW_GROUP = 1024  # sequences that are in memory until they are written


def write_embeddings(
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
