"""Designs as FASTA, whose headers tell where they come from, or as a table."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from carbon.io.tables import Columns, Write, text_of, words_of

_LINE_BP = 60


@contextmanager
def write_fasta(path: Path, columns: Columns, settings: dict[str, Any]) -> Iterator[Write]:
    """Write a record a design: its values, then where it comes from, in the header."""
    with path.open("w", encoding="utf-8") as sink:
        provenance = words_of(settings)

        def write(row: Sequence[Any]) -> None:
            cells = dict(zip(columns, row, strict=True))
            name, bases = cells.pop("name"), cells.pop("bases")
            told = {key: text_of(cell) for key, cell in cells.items() if cell is not None}
            sink.write(f">{name} {words_of(told)} {provenance}\n")
            sink.writelines(
                f"{bases[at : at + _LINE_BP]}\n" for at in range(0, len(bases), _LINE_BP)
            )

        yield write
