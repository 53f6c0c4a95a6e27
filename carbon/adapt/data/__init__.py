"""Sequences with labels from files of every form: a table of readers."""

from collections.abc import Callable
from pathlib import Path

from carbon.adapt.choices import FORMATS
from carbon.adapt.config import DataConfig
from carbon.adapt.data.bed import read_bed
from carbon.adapt.data.fasta import read_fasta
from carbon.adapt.data.rows import Rows, joined
from carbon.adapt.data.tables import read_csv, read_datasets, read_parquet, read_tsv
from carbon.adapt.data.vcf import read_vcf
from carbon.errors import UserError
from carbon.genome.vcf_lines import holds_variants

__all__ = ["PART_COLUMN", "SOURCES", "Rows", "read_rows"]

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
