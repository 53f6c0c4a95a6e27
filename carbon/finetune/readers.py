"""Sequences in a FASTA, and their labels: in a table beside it, or behind their names."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from carbon.errors import ConfigError, UserError
from carbon.finetune.config import FORMATS, DataConfig
from carbon.finetune.places import read_bed, read_vcf
from carbon.finetune.tables import (
    Rows,
    asked_columns,
    joined,
    label_column,
    parquet_table,
    place_in,
    read_csv,
    read_datasets,
    read_parquet,
    read_tsv,
    text_column,
    text_table,
)
from carbon.genome import read_sequences
from carbon.genome.vcf import holds_variants


def read_fasta(path: str, config: DataConfig) -> Rows:
    """Read a FASTA and its labels, which are in a table beside it or behind its names.

    Raises:
        UserError: there are no labels, one is missing, or a name stands twice in a join by name.
    """
    if config.label_after:
        return _with_labels(path, config)
    if not config.table:
        raise ConfigError(
            f"{path}: a FASTA has no labels; give data.table and its data.name, or data.label_after"
        )
    return (_by_name if config.name else _in_order)(path, config)


def _with_labels(path: str, config: DataConfig) -> Rows:
    """Take the label of each sequence from behind its name."""
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
    """Take the labels of the sequences from the rows of a table, in the same order."""
    of = config.at(config.table)
    table, first_line = _table(of)
    sequences = [sequence for _, sequence in read_sequences(path)]
    if len(sequences) != len(table):
        raise UserError(
            f"{path}: has {len(sequences)} sequences, and {of} {len(table)} rows; give the table "
            "that is in its order, or join by data.name"
        )
    return Rows(
        sequences=sequences,
        labels={name: label_column(table, name, of) for name in config.labels},
        names=None,
        columns=asked_columns(table, of, config),
        contigs=None,
        where=place_in(of, first_line),
    )


def _by_name(path: str, config: DataConfig) -> Rows:
    """Join a FASTA and a table by name; in the order of the table."""
    of = config.at(config.table)
    table, first_line = _table(of)
    names = text_column(table, config.name, of, "data.name")
    where, wanted = place_in(of, first_line), set(names)
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
    told = (f"{path}: {num_others} sequences have no row in {of}.",) if num_others else ()
    return Rows(
        sequences=[found[name] for name in names],
        labels={name: label_column(table, name, of) for name in config.labels},
        names=names,
        columns=asked_columns(table, of, config),
        contigs=None,
        where=where,
        told=told,
    )


def _table(path: str) -> tuple[pa.Table, int]:
    """Return a table, by its ending, and the line of its first row."""
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
"""Of each of `FORMATS`, what reads a path of it."""

TABLES = ("csv", "tsv", "parquet", "datasets")
"""Those whose rows may be chosen by their columns."""

PART_COLUMN = "part"
"""Of `data.files`, what says for which part a row is."""


def read_rows(config: DataConfig) -> Rows:
    """Read all that a configuration names.

    Raises:
        UserError: a file is absent, of another form, or lacks a column.
    """
    if config.path:
        return _read(config)
    return joined({part: _read(config.of_part(part)) for part in config.files}, PART_COLUMN)


def _read(config: DataConfig) -> Rows:
    path = config.at(config.path)
    form = config.format or _format_of(path)
    if (config.keep or config.below) and form not in TABLES:
        raise UserError(f"{path}: data.keep and data.below are of {', '.join(TABLES)}; take it out")
    rows = SOURCES[form](path, config)
    if not len(rows):
        raise UserError(f"{path}: has no example; give a file with some")
    return rows


def _format_of(path: str) -> str:
    if holds_variants(Path(path)):
        return "vcf"
    for name, form in FORMATS.items():
        if path.lower().endswith(form.endings or ("/",)):
            return name
    if Path(path).is_file():
        raise UserError(f"{path}: which form is it? give data.format, one of {', '.join(FORMATS)}")
    return "datasets"
