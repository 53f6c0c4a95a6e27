"""Places with labels: a BED, and the reference that its sequences are of."""

from pathlib import Path
from typing import Any

from carbon.adapt.config import DataConfig
from carbon.adapt.data.rows import Rows, find_column
from carbon.adapt.data.windows import opened, window_of
from carbon.errors import GenomeError, UserError
from carbon.genome.bed import bed_lines, bed_place
from carbon.genome.streams import open_text
from carbon.io.files import why_no_file

_STRAND_COLUMN = 5


def read_bed(path: str, config: DataConfig) -> Rows:
    """Read the places of a BED, those of the reverse strand as its reverse complement.

    Columns are named by number, from 1, or as the first comment of the file does.

    Raises:
        UserError: a line is no BED, lies outside of the reference, or lacks a column.
    """
    if not Path(path).is_file():
        raise UserError(f"{path}: {why_no_file(path)}; give a BED")
    asked = {
        **dict.fromkeys(config.labels, "data.labels"),
        **({config.name: "data.name"} if config.name else {}),
        **({config.split.column: "data.split.column"} if config.split.column else {}),
    }
    reference, others = opened(path, config.reference, config.contigs)
    number_of: dict[str, int] = {}
    found: dict[str, list[str]] = {name: [] for name in asked}
    sequences, contigs, regions, places = [], [], [], []
    with reference:
        header = _header(path)
        for where, columns in bed_lines(Path(path)):
            contig, start, end = bed_place(columns, where)
            contig = others.get(contig, contig)
            names = header or [str(i) for i in range(1, len(columns) + 1)]
            number_of = number_of or {
                name: names.index(_known(name, names, path, why)) for name, why in asked.items()
            }
            for name, number in number_of.items():
                found[name].append(_cell(columns, number, where))
            strand = "-" if columns[_STRAND_COLUMN : _STRAND_COLUMN + 1] == ["-"] else "+"
            try:
                bases = window_of(reference, contig, start, end, strand, config.window_bp)  # type: ignore[arg-type]
            except GenomeError as error:
                raise GenomeError(f"{where}: {error}") from None
            sequences.append(bases)
            contigs.append(contig)
            regions.append(f"{contig}:{start + 1}-{end}({strand})")
            places.append(where)
    of: dict[str, Any] = dict(found)
    return Rows(
        sequences=sequences,
        labels={name: of[name] for name in config.labels},
        names=of[config.name] if config.name else regions,
        columns={config.split.column: of[config.split.column]} if config.split.column else {},
        contigs=contigs,
        where=lambda row: places[row],
    )


def _header(path: str) -> list[str]:
    """Return the names of the columns that the first line of a BED has, if it is a comment."""
    with open_text(Path(path), errors="replace") as lines:
        first = next(lines, "")
    return first[1:].strip().split("\t" if "\t" in first else None) if first[:1] == "#" else []


def _known(name: str, names: list[str], path: str, asked: str) -> str:
    if name.isdecimal() and name not in names and 0 < int(name) <= len(names):
        return names[int(name) - 1]
    return find_column(name, names, path, asked)


def _cell(columns: list[str], number: int, where: str) -> str:
    if number >= len(columns):
        raise UserError(f"{where}: has {len(columns)} columns, and no column {number + 1}; mend it")
    return columns[number].strip()
