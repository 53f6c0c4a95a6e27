"""Read training data of any format, among them FASTA with labels in a table or in its names."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from carbon.errors import ConfigError, UserError
from carbon.finetune.config import FORMATS, DataConfig
from carbon.finetune.places import read_bed, read_vcf
from carbon.finetune.tables import (
    SPLIT_COLUMN,
    Rows,
    joined,
    label_column,
    parquet_table,
    place_in,
    read_csv,
    read_datasets,
    read_parquet,
    read_tsv,
    split_columns,
    text_column,
    text_table,
)
from carbon.genome import read_sequences
from carbon.genome.vcf import holds_variants


def read_fasta(path: str, config: DataConfig) -> Rows:
    """Read a FASTA and its labels, from a table or from the record names.

    Raises:
        UserError: there are no labels, one is missing, or a name occurs twice in a join by name.
    """
    if config.label_after:
        return _with_labels(path, config)
    if not config.table:
        raise ConfigError(
            f"{path}: a FASTA has no labels; give data.table and its data.name, or data.label_after"
        )
    return (_by_name if config.name else _in_order)(path, config)


def _with_labels(path: str, config: DataConfig) -> Rows:
    """Read the label of each sequence from the end of its name."""
    if len(config.labels) != 1:
        raise ConfigError(f"{path}: data.label_after gives one label; name one in data.labels")
    records = list(read_sequences(path))
    for name, _ in records:
        if config.label_after not in name:
            raise UserError(f"{path}: '{name}' has no '{config.label_after}' (data.label_after)")
    return Rows(
        sequences=[sequence for _, sequence in records],
        labels={config.labels[0]: [n.rpartition(config.label_after)[2] for n, _ in records]},
        names=None,
        columns={},
        contigs=None,
        where=lambda row: f"{path} sequence '{records[row][0]}'",
    )


def _in_order(path: str, config: DataConfig) -> Rows:
    """Read labels from a table whose rows have the order of the sequences."""
    table_path = config.at(config.table)
    table, first_line = _table(table_path)
    sequences = [sequence for _, sequence in read_sequences(path)]
    if len(sequences) != len(table):
        raise UserError(
            f"{path}: has {len(sequences)} sequences, and {table_path} {len(table)} rows; give a "
            "table in the same order, or join by data.name"
        )
    return Rows(
        sequences=sequences,
        labels={name: label_column(table, name, table_path) for name in config.labels},
        names=None,
        columns=split_columns(table, table_path, config),
        contigs=None,
        where=place_in(table_path, first_line),
    )


def _by_name(path: str, config: DataConfig) -> Rows:
    """Join a FASTA and a table by name, in the order of the table."""
    table_path = config.at(config.table)
    table, first_line = _table(table_path)
    names = text_column(table, config.name, table_path, "data.name")
    where, wanted = place_in(table_path, first_line), set(names)
    sequence_of: dict[str, str] = {}
    num_others = 0
    for name, sequence in read_sequences(path):
        if name in sequence_of:
            raise UserError(f"{path}: '{name}' occurs twice; keep one")
        if name in wanted:
            sequence_of[name] = sequence
        else:
            num_others += 1
    for row, name in enumerate(names):
        if name not in sequence_of:
            raise UserError(f"{where(row)}: no sequence '{name}' in {path}; take the row out")
    notes = (f"{path}: {num_others} sequences have no row in {table_path}.",) if num_others else ()
    return Rows(
        sequences=[sequence_of[name] for name in names],
        labels={name: label_column(table, name, table_path) for name in config.labels},
        names=names,
        columns=split_columns(table, table_path, config),
        contigs=None,
        where=where,
        notes=notes,
    )


def _table(path: str) -> tuple[pa.Table, int]:
    """Return a table, read by its ending, and the line number of its first row."""
    if Path(path).suffix == ".parquet":
        return parquet_table(path), 0
    return text_table(path, "," if ".csv" in Path(path).suffixes else "\t"), 2


SOURCES: dict[str, Callable[[str, DataConfig], Rows]] = {
    "csv": read_csv,
    "tsv": read_tsv,
    "parquet": read_parquet,
    "datasets": read_datasets,
    "fasta": read_fasta,
    "bed": read_bed,
    "vcf": read_vcf,
}
"""The reader of each of `FORMATS`."""

TABLES = ("csv", "tsv", "parquet", "datasets")
"""Formats whose rows can be selected by their columns."""


def read_rows(config: DataConfig) -> Rows:
    """Read all files that a configuration names.

    Raises:
        UserError: a file is absent, has another format, or lacks a column.
    """
    if config.path:
        return _read(config)
    return joined({split: _read(config.for_split(split)) for split in config.files}, SPLIT_COLUMN)


def _read(config: DataConfig) -> Rows:
    path = config.at(config.path)
    file_format = config.format or _format_of(path)
    if (config.keep or config.below) and file_format not in TABLES:
        raise UserError(
            f"{path}: data.keep and data.below are for {', '.join(TABLES)}; take them out"
        )
    rows = SOURCES[file_format](path, config)
    if not len(rows):
        raise UserError(f"{path}: has no examples; give a file with examples")
    return rows


def _format_of(path: str) -> str:
    if holds_variants(Path(path)):
        return "vcf"
    for name, file_format in FORMATS.items():
        if path.lower().endswith(file_format.endings or ("/",)):
            return name
    if Path(path).is_file():
        raise UserError(f"{path}: unknown format; give data.format, one of {', '.join(FORMATS)}")
    return "datasets"
