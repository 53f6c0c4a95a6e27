"""Sequences in a FASTA, and their labels by name in a table beside it."""

from pathlib import Path

import pyarrow as pa

from carbon.adapt.config import DataConfig
from carbon.adapt.data.rows import Rows
from carbon.adapt.data.tables import (
    asked_columns,
    label_column,
    parquet_table,
    place_in,
    text_column,
    text_table,
)
from carbon.errors import ConfigError, UserError
from carbon.genome import read_sequences


def read_fasta(path: str, config: DataConfig) -> Rows:
    """Read a FASTA and the table of its labels; in the order of the table.

    Raises:
        UserError: there is no table, one of its names has no sequence, or one stands twice.
    """
    if not config.table or not config.name:
        raise ConfigError(f"{path}: a FASTA has no labels; give data.table, and its data.name")
    table, first_line = _table(config.table)
    names = text_column(table, config.name, config.table, "data.name")
    where, wanted = place_in(config.table, first_line), set(names)
    found: dict[str, str] = {}
    num_others = 0
    for name, sequence in read_sequences(path):
        if name in found:
            raise UserError(f"{path}: '{name}' stands twice; keep one")
        if name in wanted:
            found[name] = sequence
        else:
            num_others += 1
    for row, name in enumerate(names):
        if name not in found:
            raise UserError(f"{where(row)}: no sequence '{name}' in {path}; take the row out")
    told = (f"{path}: {num_others} sequences have no row in {config.table}.",) if num_others else ()
    return Rows(
        sequences=[found[name] for name in names],
        labels={name: label_column(table, name, config.table) for name in config.labels},
        names=names,
        columns=asked_columns(table, config.table, config),
        contigs=None,
        where=where,
        told=told,
    )


def _table(path: str) -> tuple[pa.Table, int]:
    """Return a table, by its ending, and the line of its first row."""
    if Path(path).suffix == ".parquet":
        return parquet_table(path), 0
    return text_table(path, "," if ".csv" in Path(path).suffixes else "\t"), 2
