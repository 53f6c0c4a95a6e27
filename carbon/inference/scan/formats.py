"""Write scans as Parquet, TSV or bigWig, chunk by chunk, by the file's suffix."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from carbon.inference.scan.bigwig import open_bigwig
from carbon.inference.scan.score import SCANNED_BASES, ScanChunk
from carbon.io import tables
from carbon.io.tables import Columns

COLUMNS: Columns = {
    "contig": str,
    "position": int,
    "ref": str,
    **dict.fromkeys(SCANNED_BASES, float),
    "entropy_nats": float,
}
TRACKS = ("mean_delta", "worst_delta", "log_p_ref", "entropy_nats")

_PARQUET_ROWS = 131_072

Write = Callable[[ScanChunk], None]
ScanWriter = Callable[[Path, Mapping[str, int], dict[str, Any]], AbstractContextManager[Write]]


def _columns_of(chunk: ScanChunk) -> list[Any]:
    """Return the columns of a chunk's rows, in the order of `COLUMNS`."""
    contig, start, end = chunk.interval.contig, chunk.interval.start, chunk.interval.end
    positions = np.arange(start + 1, end + 1)
    values = chunk.log_probabilities
    return [
        [contig] * len(positions), positions, list(chunk.bases), *values.T, chunk.entropy_nats
    ]  # fmt: skip


def _cells(column: Any) -> list[Any]:
    """Return a column as a list, with None for a missing value."""
    cells = column if isinstance(column, list) else column.tolist()
    return [None if cell != cell else cell for cell in cells]


@contextmanager
def write_tsv(
    path: Path, contig_lengths_bp: Mapping[str, int], settings: dict[str, Any]
) -> Iterator[Write]:
    """Write one row a base."""
    with tables.write_tsv(path, COLUMNS, settings) as write_row:

        def write(chunk: ScanChunk) -> None:
            for row in zip(*map(_cells, _columns_of(chunk)), strict=True):
                write_row(row)

        yield write


@contextmanager
def write_parquet(
    path: Path, contig_lengths_bp: Mapping[str, int], settings: dict[str, Any]
) -> Iterator[Write]:
    """Write one row a base, in row groups."""
    with _row_groups(path, settings, _columns_of, COLUMNS) as write:
        yield write


@contextmanager
def write_dataset(
    path: Path, contig_lengths_bp: Mapping[str, int], settings: dict[str, Any]
) -> Iterator[Write]:
    """Write a Hive-partitioned folder with one file for each contig.

    https://arrow.apache.org/docs/python/dataset.html#reading-partitioned-data.
    """
    columns = {name: kind for name, kind in COLUMNS.items() if name != "contig"}
    with ExitStack() as sink:
        opened: dict[str, Write] = {}

        def write(chunk: ScanChunk) -> None:
            contig = chunk.interval.contig
            if contig not in opened:
                sink.close()
                opened.clear()
                folder = path / f"contig={quote(contig, safe='')}"
                folder.mkdir()
                part = folder / "part-0.parquet"
                opened[contig] = sink.enter_context(
                    _row_groups(part, settings, _columns_without_contig, columns)
                )
            opened[contig](chunk)

        yield write


@contextmanager
def _row_groups(
    path: Path,
    settings: dict[str, Any],
    columns_of: Callable[[ScanChunk], list[Any]],
    columns: Columns,
) -> Iterator[Write]:
    """Write row groups from whole columns: a chromosome has too many rows for single writes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {str: pa.string(), int: pa.int64(), float: pa.float32()}
    schema = pa.schema(
        [(name, kinds[kind]) for name, kind in columns.items()],
        metadata={"carbon": json.dumps(settings)},
    )
    tables: list[Any] = []
    with pq.ParquetWriter(
        path,
        schema,
        use_dictionary=[name for name, kind in columns.items() if kind is str],
        column_encoding={
            name: "DELTA_BINARY_PACKED" for name, kind in columns.items() if kind is int
        },
    ) as sink:

        def flush() -> None:
            sink.write_table(pa.concat_tables([schema.empty_table(), *tables]), _PARQUET_ROWS)
            tables.clear()

        def write(chunk: ScanChunk) -> None:
            # NaN stands for a missing value.
            columns = [pa.array(column, from_pandas=True) for column in columns_of(chunk)]
            tables.append(pa.table(columns, schema=schema))
            if sum(table.num_rows for table in tables) >= _PARQUET_ROWS:
                flush()

        yield write
        flush()


def _columns_without_contig(chunk: ScanChunk) -> list[Any]:
    return _columns_of(chunk)[1:]


@contextmanager
def write_bigwig(
    path: Path, contig_lengths_bp: Mapping[str, int], settings: dict[str, Any]
) -> Iterator[Write]:
    """Write one value a base; bases without a value are omitted, as the format specifies.

    A .bw holds one track, named in the file name: x.entropy_nats.bw; x.bw is the mean delta.
    """
    track = next((name for name in TRACKS if path.name.endswith(f".{name}.bw")), TRACKS[0])
    value_of = attrgetter(track)
    with open_bigwig(path, contig_lengths_bp) as write:
        yield lambda chunk: write(chunk.interval.contig, chunk.interval.start, value_of(chunk))
