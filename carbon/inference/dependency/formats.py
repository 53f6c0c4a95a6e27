"""Write a dependency map as Parquet or NumPy, and the influence of its bases as bigWig."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from carbon.inference.dependency.maps import DependencyMap
from carbon.inference.scan.bigwig import open_bigwig

_PARQUET_ROWS = 131_072


def write_parquet(
    path: Path, found: DependencyMap, contig_lengths_bp: Mapping[str, int], settings: dict[str, Any]
) -> None:
    """Write one row for each ordered pair of different bases; missing values are null."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"string": pa.string(), "int": pa.int64(), "float": pa.float32()}
    columns = {
        "contig": "string", "position": "int", "ref": "string",
        "affected_position": "int", "affected_ref": "string",
        "dependency": "float", "directed": "float",
    }  # fmt: skip
    schema = pa.schema(
        [(name, kinds[kind]) for name, kind in columns.items()],
        metadata={"carbon": json.dumps(settings)},
    )
    positions, refs = _positions(found), np.array(list(found.bases))
    length_bp = len(positions)
    step = max(1, _PARQUET_ROWS // length_bp)
    with pq.ParquetWriter(path, schema, use_dictionary=["contig", "ref", "affected_ref"]) as sink:
        for first in range(0, length_bp, step):
            rows = np.arange(first, min(first + step, length_bp))
            i, j = (grid.ravel() for grid in np.meshgrid(rows, np.arange(length_bp), indexing="ij"))
            i, j = i[i != j], j[i != j]
            values = [found.dependency[i, j], found.directed[i, j]]
            cells = [
                [found.interval.contig] * len(i), positions[i], refs[i], positions[j], refs[j],
                *(pa.array(value, from_pandas=True) for value in values),
            ]  # fmt: skip
            sink.write_table(pa.table(cells, schema=schema))


def write_npz(
    path: Path, found: DependencyMap, contig_lengths_bp: Mapping[str, int], settings: dict[str, Any]
) -> None:
    """Write the arrays for `numpy.load`, with the settings as JSON in `carbon`."""
    np.savez(
        path,
        dependency=found.dependency,
        directed=found.directed,
        influence=found.influence,
        position=_positions(found),
        ref=np.array(list(found.bases)),
        contig=np.array(found.interval.contig),
        carbon=np.array(json.dumps(settings)),
    )


def write_bigwig(
    path: Path, found: DependencyMap, contig_lengths_bp: Mapping[str, int], settings: dict[str, Any]
) -> None:
    """Write the influence of each base; bases without a value are omitted."""
    contig = found.interval.contig
    with open_bigwig(path, {contig: contig_lengths_bp[contig]}) as write:
        write(contig, found.interval.start, found.influence)


def _positions(found: DependencyMap) -> Any:
    """Return the 1-based positions of the region."""
    return np.arange(found.interval.start + 1, found.interval.end + 1)
