"""Tables of variants as people publish them: TSV, CSV, Parquet, xlsx, with their own headers."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from carbon.errors import UserError
from carbon.genome.sequences import open_text
from carbon.io.structured import open_parquet
from eval.data import readable

Listed = dict[str, Any]
"""A row by the names that the tasks use."""

# Names of columns, in small letters. `position (hg19)` is from Findlay et al. 2018.
_NAMES = {
    "chrom": ("chrom", "chr", "chromosome", "#chrom"),
    "pos": ("pos", "position", "pos_hg19", "position (hg19)"),
    "ref": ("ref", "reference"),
    "alt": ("alt", "alternate"),
    "class": ("class", "func.class", "func_class"),
    "score": ("score", "function.score.mean", "func_score"),
    "label": ("label",),
    "consequence": ("consequence",),
    "subset": ("subset",),
    "match_group": ("match_group",),
    "mavedb_urn": ("mavedb_urn",),
}
# The BRCA2 table of Huang et al. 2025 has its columns in this order, under long headers.
_HUANG_SHEET = "Table S3"
_HUANG_COLUMNS = {1: "chrom", 2: "pos", 7: "ref", 8: "alt", 21: "class"}
_HUANG_SCORES = (16, 17, 18)
_HUANG_HEADER_ROWS = 3


def read_listing(path: Path, needed: Sequence[str]) -> list[Listed]:
    """Read a table of variants, with its columns under the names of the tasks.

    Args:
        path: TSV, CSV (both plain or gzip), Parquet or xlsx.
        needed: columns that must be there; others that are known are kept.

    Raises:
        UserError: the file does not exist, it lacks a column, or a row is broken.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; give a TSV, CSV, Parquet or xlsx of variants")
    with readable(path):
        rows = list(_rows(path))
    if not rows:
        raise UserError(f"{path}: has no row")
    if missing := [name for name in needed if name not in rows[0]]:
        there = ", ".join(map(repr, rows[0]))
        raise UserError(
            f"{path}: has no column {', '.join(map(repr, missing))}; known columns there: {there}"
        )
    for number, row in enumerate(rows, start=1):
        _clean(row, f"{path} row {number}")
    return rows


def _rows(path: Path) -> Iterator[Listed]:
    if path.suffix == ".parquet":
        yield from _named(open_parquet(path, {}).read().to_pylist())
    elif path.suffix == ".xlsx":
        yield from _of_workbook(path)
    else:
        with open_text(path) as lines:
            first = next(lines, "")
            separator = "\t" if "\t" in first else ","
            header = [name.strip() for name in first.rstrip("\r\n").split(separator)]
            yield from _named(csv.DictReader(lines, fieldnames=header, delimiter=separator))


def _of_workbook(path: Path) -> Iterator[Listed]:
    import openpyxl

    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    if _HUANG_SHEET in book.sheetnames:
        rows = book[_HUANG_SHEET].iter_rows(min_row=_HUANG_HEADER_ROWS + 1, values_only=True)
        yield from (_of_huang(row) for row in rows if row[1] is not None)
        return
    rows = book.worksheets[0].iter_rows(values_only=True)
    names = [str(name or "").strip() for name in next(rows, ())]
    yield from _named([dict(zip(names, row, strict=False)) for row in rows])


def _of_huang(row: Sequence[Any]) -> Listed:
    scores = [float(row[place]) for place in _HUANG_SCORES if isinstance(row[place], int | float)]
    score = sum(scores) / len(scores) if scores else None
    return {name: row[place] for place, name in _HUANG_COLUMNS.items()} | {"score": score}


def _named(rows: Iterator[Mapping[str, Any]] | Sequence[Mapping[str, Any]]) -> Iterator[Listed]:
    known = {other: name for name, others in _NAMES.items() for other in others}
    for row in rows:
        yield {
            known[str(column).lower()]: value
            for column, value in row.items()
            if str(column).lower() in known
        }


def _clean(row: Listed, where: str) -> None:
    """Bring the place and the alleles of a row to one form."""
    try:
        row["pos"] = int(row["pos"])
    except (TypeError, ValueError):
        raise UserError(f"{where}: position {row['pos']!r} is not a number") from None
    if row["pos"] < 1:
        raise UserError(f"{where}: position {row['pos']}; places are counted from 1")
    row["chrom"] = str(row["chrom"]).strip()
    for allele in ("ref", "alt"):
        if not isinstance(row[allele], str) or not row[allele].strip():
            raise UserError(f"{where}: has no {allele}")
        row[allele] = row[allele].strip().upper()
