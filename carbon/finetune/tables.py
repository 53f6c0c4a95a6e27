"""What a reader returns: sequences and labels as they stand in a file, and where each stands."""

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
        labels: by name, of each example, as text, a number, a list (of every base) or None.
        names: None where the file has none.
        columns: others that were asked for, as text, by name.
        contigs: of the reference; None where sequences are not of one.
        where: from a row, counted from 0, to what messages call it.
        told: what was passed over, in whole sentences.
    """

    sequences: Sequence[str]
    labels: Mapping[str, Sequence[Any]]
    names: Sequence[str] | None
    columns: Mapping[str, Sequence[str]]
    contigs: Sequence[str] | None
    where: Callable[[int], str]
    told: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.sequences)


def find_column(name: str, columns: Collection[str], where: str, asked: str) -> str:
    """Return a column's name.

    Raises:
        UserError: there is none of that name; the message has the near ones, or all.
    """
    if name in columns:
        return name
    near = difflib.get_close_matches(name, columns, n=1)
    shown = f"did you mean '{near[0]}'?" if near else f"it has {', '.join(list(columns)[:12])}"
    raise UserError(f"{where}: has no column '{name}' ({asked}); {shown}")


def joined(parts: Mapping[str, Rows], column: str) -> Rows:
    """Return the rows of several files as one; a column says of which each is."""
    each, first = list(parts.values()), next(iter(parts.values()))
    ends = [0]
    for rows in each:
        ends.append(ends[-1] + len(rows))

    def where(row: int) -> str:
        which = next(i for i, end in enumerate(ends[1:]) if row < end)
        return each[which].where(row - ends[which])

    def listed(get: Callable[[Rows], Sequence[Any]]) -> list[Any]:
        return list(chain.from_iterable(get(rows) for rows in each))

    of_parts = list(chain.from_iterable([name] * len(rows) for name, rows in parts.items()))
    return replace(
        first,
        sequences=listed(lambda rows: rows.sequences),
        labels={name: listed(lambda rows, n=name: rows.labels[n]) for name in first.labels},  # type: ignore[misc]
        names=listed(lambda rows: rows.names or ()) if first.names is not None else None,
        columns={
            **{name: listed(lambda rows, n=name: rows.columns[n]) for name in first.columns},  # type: ignore[misc]
            column: of_parts,
        },
        contigs=listed(lambda rows: rows.contigs or ()) if first.contigs is not None else None,
        where=where,
        told=tuple(chain.from_iterable(rows.told for rows in each)),
    )


_BLOCK_BYTES = 2**26  # of text that is read at once: no row may be longer
SPLIT_COLUMN = "split"
"""What says of a row of `datasets` which of its splits it is of."""


def read_csv(path: str, config: DataConfig) -> Rows:
    """Read a table with commas."""
    return _read_text(path, ",", config)


def read_tsv(path: str, config: DataConfig) -> Rows:
    """Read a table with tabs."""
    return _read_text(path, "\t", config)


def _read_text(path: str, between: str, config: DataConfig) -> Rows:
    first_line = 1 if config.header else 2
    return rows_of(text_table(path, between, config.header), path, config, first_line)


def read_parquet(path: str, config: DataConfig) -> Rows:
    """Read a Parquet file."""
    return rows_of(parquet_table(path), path, config)


def read_datasets(path: str, config: DataConfig) -> Rows:
    """Read a folder that `datasets` has saved, or a set of the hub; splits become a column."""
    return rows_of(_dataset_table(path, config), path, config)


def text_table(path: str, between: str, header: Sequence[str] = ()) -> pa.Table:
    """Read all columns of a CSV or TSV as text, plain or gzip.

    Args:
        path: of the file.
        between: what stands between two cells.
        header: names of the columns, where the file has none.

    Raises:
        UserError: there is no such file, it is broken, or has no header.
    """
    _check_file(path)
    with open(path, "rb") as start:
        packing = "gzip" if start.read(2) == b"\x1f\x8b" else None
    read = csv.ReadOptions(block_size=_BLOCK_BYTES, column_names=list(header) or None)
    parse = csv.ParseOptions(delimiter=between, quote_char=False if between == "\t" else '"')
    try:
        # What columns there are is known once the header is read, so the file is opened twice.
        with pa.input_stream(path, compression=packing) as source:
            names = csv.open_csv(source, read, parse).schema.names
        with pa.input_stream(path, compression=packing) as source:
            convert = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
            found = csv.read_csv(source, read, parse, convert)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(
            f"{path}: is no such table: {_one_line(error)}; mend or convert it"
        ) from None
    return _checked_names(found, path)


def parquet_table(path: str) -> pa.Table:
    """Read a Parquet file.

    Raises:
        UserError: there is no such file, or it is none.
    """
    _check_file(path)
    try:
        return _checked_names(pq.read_table(path), path)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path}: is no Parquet file: {_one_line(error)}; fetch it again") from None


def _dataset_table(path: str, config: DataConfig) -> pa.Table:
    try:
        import datasets
    except ImportError:
        raise UserError(f"{path}: needs the library datasets; pip install datasets") from None
    try:
        if Path(path).is_dir() and any(Path(path).glob("*.json")):
            found = datasets.load_from_disk(path)
        else:
            options = {"revision": config.revision or None}
            found = datasets.load_dataset(path, config.dataset or None, **options)
    except Exception as error:
        # The library has dozens of errors for what is not there or is no set.
        raise UserError(f"{path}: datasets cannot read it: {_one_line(error)}") from None
    if not isinstance(found, dict):
        return found.with_format("arrow")[:]
    tables = []
    for name, each in found.items():
        table = each.with_format("arrow")[:]
        if SPLIT_COLUMN not in table.column_names:
            table = table.append_column(SPLIT_COLUMN, pa.array([name] * len(table), pa.string()))
        tables.append(table)
    return pa.concat_tables(tables, promote_options="permissive")


def rows_of(table: pa.Table, path: str, config: DataConfig, first_line: int = 0) -> Rows:
    """Return the columns of a table that a configuration asks for.

    Args:
        table: as read.
        path: for messages.
        config: names of columns.
        first_line: of the first row in the file, from 1; 0 where rows have no line.
    """
    place = place_in(path, first_line)
    kept = _kept(table, path, config, place)
    num_others, table = len(table) - len(kept), table.take(kept)
    others = "data.keep and data.below pass them over"
    return Rows(
        sequences=text_column(table, config.sequence, path, "data.sequence"),
        labels={name: label_column(table, name, path) for name in config.labels},
        names=text_column(table, config.name, path, "data.name") if config.name else None,
        columns=asked_columns(table, path, config),
        contigs=None,
        where=lambda row: place(int(kept[row])),
        told=(f"{path}: {num_others} rows are not read: {others}.",) if num_others else (),
    )


def _kept(
    table: pa.Table, path: str, config: DataConfig, place: Callable[[int], str]
) -> NDArray[np.int64]:
    """Return the numbers of the rows that `keep` and `below` leave."""
    is_kept = np.ones(len(table), dtype=bool)
    for name, values in config.keep.items():
        found = text_column(table, name, path, "data.keep")
        is_kept &= np.isin(np.array(found, dtype=object), values)
    for name, limit in config.below.items():
        found = text_column(table, name, path, "data.below")
        numbers = [_number(text, config, name, place, row) for row, text in enumerate(found)]
        is_kept &= np.array(numbers) < limit
    return np.flatnonzero(is_kept)


def _number(
    text: str, config: DataConfig, name: str, place: Callable[[int], str], row: int
) -> float:
    """Return a number, NaN of what is unknown: it is below nothing."""
    try:
        return float("nan") if text in config.unknown else float(text)
    except ValueError:
        raise UserError(
            f"{place(row)}: '{text[:40]}' in column '{name}' (data.below) is not a number; mend it"
        ) from None


def place_in(path: str, first_line: int) -> Callable[[int], str]:
    """Return what messages call the rows of a file: by line, or by number from 1."""
    if first_line:
        return lambda row: f"{path} line {row + first_line}"
    return lambda row: f"{path} row {row + 1}"


def asked_columns(table: pa.Table, path: str, config: DataConfig) -> Mapping[str, Sequence[str]]:
    """Return the column that parts are made by, if there is to be one."""
    name = config.split.column
    return {name: text_column(table, name, path, "data.split.column")} if name else {}


def text_column(table: pa.Table, name: str, path: str, asked: str) -> list[str]:
    """Return a column as text; what is null is an empty text."""
    found = table.column(find_column(name, table.column_names, path, asked))
    return ["" if value is None else str(value) for value in found.to_pylist()]


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
    twice = {name for name in table.column_names if table.column_names.count(name) > 1}
    if twice:
        raise UserError(f"{path}: has {len(twice)} columns twice, such as '{min(twice)}'; keep one")
    return table


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
