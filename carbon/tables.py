"""Rows of results as files of several formats, written as they come."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from carbon.errors import UserError

Write = Callable[[Sequence[Any]], None]
Columns = Mapping[str, type[str] | type[int] | type[float] | type[bool]]
TableWriter = Callable[[Path, Columns, dict[str, Any]], AbstractContextManager[Write]]

PARQUET_ROWS = 65_536
"""Of a row group."""


# A cell holds no tab and no line end; a name that has one has it percent-encoded.
_ENCODED = {ord(character): f"%{ord(character):02X}" for character in "\t\n\r"}


def text_of(value: str | float | None) -> str:
    """Write a cell: `.` for None, as many digits of a float as a float32 holds, true and false."""
    if value is None:
        return "."
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.9g}" if isinstance(value, float) else str(value).translate(_ENCODED)


def words_of(facts: Mapping[str, Any]) -> str:
    """Write `name=value`, blanks in a value as %20; what was not asked for is left out.

    >>> words_of({"seed": 1, "tags": "", "command": "a b"})
    'seed=1 command=a%20b'
    """
    shown = {key: str(value) for key, value in facts.items() if value not in (None, "")}
    return " ".join(f"{key}={'%20'.join(value.split())}" for key, value in shown.items())


@contextmanager
def _tsv(path: Path, columns: Columns, settings: dict[str, Any]) -> Iterator[Write]:
    """Write settings as a comment line, names, and a line a row; `-` is standard output."""
    opened = nullcontext(sys.stdout) if str(path) == "-" else path.open("w", encoding="utf-8")
    with opened as sink:
        sink.write(f"# {json.dumps(settings)}\n" + "\t".join(columns) + "\n")

        def write(row: Sequence[Any]) -> None:
            sink.write("\t".join(map(text_of, row)) + "\n")

        yield write


@contextmanager
def _json(path: Path, columns: Columns, settings: dict[str, Any]) -> Iterator[Write]:
    """Write one object: the settings, and the rows as a list of objects, one a line."""
    with path.open("w", encoding="utf-8") as sink:
        sink.write(f'{{"settings": {json.dumps(settings)}, "rows": [')
        between = "\n"

        def write(row: Sequence[Any]) -> None:
            nonlocal between
            sink.write(between + json.dumps(dict(zip(columns, row, strict=True)), allow_nan=False))
            between = ",\n"

        yield write
        sink.write("\n]}\n")


@contextmanager
def _parquet(path: Path, columns: Columns, settings: dict[str, Any]) -> Iterator[Write]:
    """Write row groups; the settings are in the metadata of the schema, under `carbon`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    schema = pa.schema(
        [(name, kinds[kind]) for name, kind in columns.items()],
        metadata={"carbon": json.dumps(settings)},
    )
    rows: list[Sequence[Any]] = []
    with pq.ParquetWriter(path, schema) as sink:

        def flush() -> None:
            values = zip(*rows, strict=True) if rows else [[]] * len(schema)
            sink.write_table(pa.table(list(map(list, values)), schema=schema))
            rows.clear()

        def write(row: Sequence[Any]) -> None:
            rows.append(row)
            if len(rows) >= PARQUET_ROWS:
                flush()

        yield write
        flush()


TABLE_WRITERS: dict[str, TableWriter] = {".tsv": _tsv, ".json": _json, ".parquet": _parquet}


def any_of(endings: Iterable[str]) -> str:
    """Write choices as help does: `.tsv, .json or .parquet`."""
    *first, last = endings
    return f"{', '.join(first)} or {last}"


def chosen_by_ending(output: str | Path, writers: Mapping[str, Any]) -> Any:
    """Return the writer that an output's ending asks for.

    Raises:
        UserError: there is none for it.
    """
    for ending, writer in writers.items():
        if str(output).endswith(ending):
            return writer
    raise UserError(f"{output}: end the output with one of {', '.join(writers)}")
