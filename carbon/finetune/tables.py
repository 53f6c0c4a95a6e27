"""Read labelled sequences from CSV, TSV, Parquet and `datasets`, with a location for each row."""

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import csv

from carbon.errors import UserError
from carbon.finetune.config import DataConfig
from carbon.io.files import why_no_file


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Examples as a file has them.

    Attributes:
        sequences: in the case of the file.
        labels: by name, one for each example: text, number, list (one value for each base) or None.
        names: None if the file has none.
        columns: further requested columns, as text, by name.
        contigs: contig of each sequence; None if sequences are not cut from a reference.
        where: maps a row, from 0, to its location for messages.
        notes: sentences on skipped records.
    """

    sequences: Sequence[str]
    labels: Mapping[str, Sequence[Any]]
    names: Sequence[str] | None
    columns: Mapping[str, Sequence[str]]
    contigs: Sequence[str] | None
    where: Callable[[int], str]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.sequences)


def find_column(name: str, columns: Collection[str], where: str, key: str) -> str:
    """Return a column's name.

    Raises:
        UserError: the column does not exist; the message has the closest name, or all names.
    """
    if name in columns:
        return name
    near = difflib.get_close_matches(name, columns, n=1)
    shown = f"did you mean '{near[0]}'?" if near else f"it has {', '.join(list(columns)[:12])}"
    raise UserError(f"{where}: has no column '{name}' ({key}); {shown}")


def joined(rows_of_file: Mapping[str, Rows], column: str) -> Rows:
    """Return the rows of several files as one; a column names the file's key."""
    each, first = list(rows_of_file.values()), next(iter(rows_of_file.values()))
    ends = [0]
    for rows in each:
        ends.append(ends[-1] + len(rows))

    def where(row: int) -> str:
        which = next(i for i, end in enumerate(ends[1:]) if row < end)
        return each[which].where(row - ends[which])

    def listed(get: Callable[[Rows], Sequence[Any]]) -> list[Any]:
        return list(chain.from_iterable(get(rows) for rows in each))

    keys = list(chain.from_iterable([key] * len(rows) for key, rows in rows_of_file.items()))
    return replace(
        first,
        sequences=listed(lambda rows: rows.sequences),
        labels={name: listed(lambda rows, n=name: rows.labels[n]) for name in first.labels},  # type: ignore[misc]
        names=listed(lambda rows: rows.names or ()) if first.names is not None else None,
        columns={
            **{name: listed(lambda rows, n=name: rows.columns[n]) for name in first.columns},  # type: ignore[misc]
            column: keys,
        },
        contigs=listed(lambda rows: rows.contigs or ()) if first.contigs is not None else None,
        where=where,
        notes=tuple(chain.from_iterable(rows.notes for rows in each)),
    )


_BLOCK_BYTES = 2**26  # size of a text block, and the maximum length of a row
SPLIT_COLUMN = "split"
"""Column that names the split of a row, for `data.files` and the splits of `datasets`."""


def read_csv(path: str, config: DataConfig) -> Rows:
    """Read a comma-separated table."""
    return _read_text(path, ",", config)


def read_tsv(path: str, config: DataConfig) -> Rows:
    """Read a tab-separated table."""
    return _read_text(path, "\t", config)


def _read_text(path: str, between: str, config: DataConfig) -> Rows:
    first_line = 1 if config.header else 2
    return rows_of(text_table(path, between, config.header), path, config, first_line)


def read_parquet(path: str, config: DataConfig) -> Rows:
    """Read a Parquet file."""
    return rows_of(parquet_table(path), path, config)


def read_datasets(path: str, config: DataConfig) -> Rows:
    """Read a folder saved by `datasets`, or a hub dataset; its splits become a column."""
    return rows_of(_dataset_table(path, config), path, config)


def text_table(path: str, between: str, header: Sequence[str] = ()) -> pa.Table:
    """Read all columns of a CSV or TSV as text, plain or gzip.

    Args:
        path: the file.
        between: separator of cells.
        header: column names if the file has no header.

    Raises:
        UserError: the file is absent or broken, or has no header.
    """
    _check_file(path)
    with open(path, "rb") as start:
        packing = "gzip" if start.read(2) == b"\x1f\x8b" else None
    read = csv.ReadOptions(block_size=_BLOCK_BYTES, column_names=list(header) or None)
    parse = csv.ParseOptions(delimiter=between, quote_char=False if between == "\t" else '"')
    try:
        # The column types need the names in the header, so the file is opened twice.
        with pa.input_stream(path, compression=packing) as source:
            names = csv.open_csv(source, read, parse).schema.names
        with pa.input_stream(path, compression=packing) as source:
            convert = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
            table = csv.read_csv(source, read, parse, convert)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(
            f"{path}: not such a table: {_one_line(error)}; correct or convert it"
        ) from None
    return _checked_names(table, path)


def parquet_table(path: str) -> pa.Table:
    """Read a Parquet file.

    Raises:
        UserError: the file is absent, or not Parquet.
    """
    _check_file(path)
    try:
        return _checked_names(pq.read_table(path), path)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path}: not a Parquet file: {_one_line(error)}; fetch it again") from None


def _dataset_table(path: str, config: DataConfig) -> pa.Table:
    try:
        import datasets
    except ImportError:
        raise UserError(f"{path}: needs the library datasets; pip install datasets") from None
    try:
        if Path(path).is_dir() and any(Path(path).glob("*.json")):
            data = datasets.load_from_disk(path)
        else:
            options = {"revision": config.revision or None}
            data = datasets.load_dataset(path, config.dataset or None, **options)
    except Exception as error:
        # The library raises dozens of errors for absent or invalid datasets.
        raise UserError(f"{path}: datasets cannot read it: {_one_line(error)}") from None
    if not isinstance(data, dict):
        return data.with_format("arrow")[:]
    tables = []
    for name, each in data.items():
        table = each.with_format("arrow")[:]
        if SPLIT_COLUMN not in table.column_names:
            table = table.append_column(SPLIT_COLUMN, pa.array([name] * len(table), pa.string()))
        tables.append(table)
    return pa.concat_tables(tables, promote_options="permissive")


def rows_of(table: pa.Table, path: str, config: DataConfig, first_line: int = 0) -> Rows:
    """Return the columns of a table that a configuration requests.

    Args:
        table: as read.
        path: for messages.
        config: column names.
        first_line: line of the first row in the file, from 1; 0 if rows have no line.
    """
    place = place_in(path, first_line)
    selected = _selected(table, path, config, place)
    num_others, table = len(table) - len(selected), table.take(selected)
    return Rows(
        sequences=text_column(table, config.sequence, path, "data.sequence"),
        labels={name: label_column(table, name, path) for name in config.labels},
        names=text_column(table, config.name, path, "data.name") if config.name else None,
        columns=split_columns(table, path, config),
        contigs=None,
        where=lambda row: place(int(selected[row])),
        notes=(f"{path}: data.keep and data.below skip {num_others} rows.",) if num_others else (),
    )


def _selected(
    table: pa.Table, path: str, config: DataConfig, place: Callable[[int], str]
) -> NDArray[np.int64]:
    """Return the numbers of the rows that `keep` and `below` select."""
    is_selected = np.ones(len(table), dtype=bool)
    for name, values in config.keep.items():
        texts = text_column(table, name, path, "data.keep")
        is_selected &= np.isin(np.array(texts, dtype=object), values)
    for name, limit in config.below.items():
        texts = text_column(table, name, path, "data.below")
        numbers = [_number(text, config, name, place, row) for row, text in enumerate(texts)]
        is_selected &= np.array(numbers) < limit
    return np.flatnonzero(is_selected)


def _number(
    text: str, config: DataConfig, name: str, place: Callable[[int], str], row: int
) -> float:
    """Return a number; NaN, which is below nothing, for an unknown cell."""
    try:
        return float("nan") if text in config.unknown else float(text)
    except ValueError:
        raise UserError(
            f"{place(row)}: '{text[:40]}' in column '{name}' (data.below) is not a number; "
            "correct it"
        ) from None


def place_in(path: str, first_line: int) -> Callable[[int], str]:
    """Return a function from a row to its location: by line, or by number from 1."""
    if first_line:
        return lambda row: f"{path} line {row + first_line}"
    return lambda row: f"{path} row {row + 1}"


def split_columns(table: pa.Table, path: str, config: DataConfig) -> Mapping[str, Sequence[str]]:
    """Return the column that determines splits, if the rule uses one."""
    name = config.split.column
    return {name: text_column(table, name, path, "data.split.column")} if name else {}


def text_column(table: pa.Table, name: str, path: str, key: str) -> list[str]:
    """Return a column as text; null cells are empty."""
    column = table.column(find_column(name, table.column_names, path, key))
    return ["" if value is None else str(value) for value in column.to_pylist()]


def label_column(table: pa.Table, name: str, path: str) -> list[Any]:
    """Return a column of labels: text, numbers, lists or None."""
    values: list[Any] = table.column(
        find_column(name, table.column_names, path, "data.labels")
    ).to_pylist()
    return values


def _check_file(path: str) -> None:
    if not Path(path).is_file():
        raise UserError(f"{path}: {why_no_file(path)}; give a table")


def _checked_names(table: pa.Table, path: str) -> pa.Table:
    repeated = {name for name in table.column_names if table.column_names.count(name) > 1}
    if repeated:
        raise UserError(
            f"{path}: has {len(repeated)} columns twice, such as '{min(repeated)}'; keep one"
        )
    return table


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
