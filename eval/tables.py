"""Datasets as tables: from the Hub or a local Parquet file, through `datasets`, and checked."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from glob import escape, glob
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as types

from carbon.errors import UserError
from carbon.genome import IUPAC_DNA
from carbon.io.structured import open_regular
from carbon.model.folder import why_unreachable

_LOCAL = "parquet"  # the loader of `datasets` for files of this machine
_IS_OF_TYPE: dict[type, Callable[[pa.DataType], bool]] = {
    str: lambda t: types.is_string(t) or types.is_large_string(t),
    int: lambda t: types.is_integer(t) or types.is_boolean(t),
    float: types.is_floating,
    object: lambda t: types.is_string(t) or types.is_large_string(t) or types.is_integer(t),
}
"""`object` is for names of chromosomes, which some tables write as numbers."""
_NO_DNA = dict.fromkeys(map(ord, IUPAC_DNA))


class Row(Mapping[str, Any]):
    """A row of a table, whose values are fetched when they are asked for."""

    def __init__(self, table: pa.Table, number: int) -> None:
        """Point at a row of a table, counted from 0."""
        self._table, self.number = table, number

    def __getitem__(self, column: str) -> Any:
        if column not in self._table.column_names:
            raise KeyError(column)
        return self._table[column][self.number].as_py()

    def __iter__(self) -> Iterator[str]:
        return iter(self._table.column_names)

    def __len__(self) -> int:
        return int(self._table.num_columns)

    @property
    def where(self) -> str:
        """Name the row in a message, from 1."""
        return f"row {self.number + 1}"

    def length_bp(self, column: str) -> int:
        """Return the length of a sequence, which is not fetched for it."""
        return int(pc.utf8_length(self._table[column][self.number]).as_py())

    def dna(self, column: str, part: slice = slice(None)) -> str:
        """Return a sequence, or a part of it, in capitals.

        Raises:
            UserError: it is empty, or something in it is not a letter of DNA.
        """
        letters: str = self[column][part].upper()
        if not letters or (wrong := letters.translate(_NO_DNA)):
            what = f"{wrong[0]!r} is not a DNA letter" if letters else "is empty"
            raise UserError(f"{self.where} {column}: {what}; is the row broken?")
        return letters


def files_of(source: str) -> list[Path]:
    """Return the files that a path or a pattern names; of a folder the Parquet files in it."""
    paths = [Path(source)] if Path(source).exists() else [Path(found) for found in glob(source)]
    return sorted(
        file for path in paths for file in (path.rglob("*.parquet") if path.is_dir() else [path])
    )


def is_on_hub(source: str) -> bool:
    """Return whether a source is `owner/name` on the Hub: no file or folder has this name."""
    path = Path(source)
    return not path.is_dir() and not files_of(source) and source.count("/") == 1 and not path.suffix


@contextmanager
def offline() -> Iterator[None]:
    """Let `datasets` read its cache alone: it fails at once and does not retry for a minute."""
    from datasets import config
    from huggingface_hub import constants

    before = config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
    config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = before


def read_table(
    source: Path | str, columns: Mapping[str, type], hub_file: str | None = None
) -> pa.Table:
    """Read a Parquet file, a folder of them, or a dataset of the Hub.

    The table is mapped from the cache of `datasets` (`HF_HOME`) and not held in memory.

    Args:
        source: a path, which may be a pattern with `*`; or `owner/name` on the Hub where nothing
            of that name is there.
        columns: required columns, by the type of a value; more are allowed.
        hub_file: the file to take from a dataset of the Hub.

    Raises:
        UserError: the dataset does not exist or is a pipe, it lacks a column, a column is of
            another type, or a value is missing.
    """
    path, files = Path(source), files_of(str(source))
    if path.is_dir() and not files:
        raise UserError(f"{path}: has no Parquet file; give one, or build the dataset")
    if files:
        for file in files:
            open_regular(file).close()
        if not any(map(_may_have_rows, files)):
            raise UserError(f"{path}: has no row")
        table = load(_LOCAL, str(source), data_files=[escape(str(file)) for file in files])
    elif is_on_hub(str(source)):
        table = load(str(source), str(source), data_files=hub_file)
    else:
        raise UserError(f"{source}: no such file; give a Parquet file or a dataset of the Hub")
    check_columns(table, columns, str(source))
    return table


def _may_have_rows(file: Path) -> bool:
    """Return whether a file has rows; `datasets` reports other errors."""
    try:
        return bool(pq.read_metadata(file).num_rows)
    except (pa.ArrowException, OSError):
        return True


def load(path: str, shown_as: str, **which: Any) -> pa.Table:
    """Load with `datasets` and return its Arrow table; of the cache, if the Hub is out of reach.

    Raises:
        UserError: it cannot be loaded; the message has what `datasets` says.
    """
    import datasets

    datasets.disable_progress_bars()  # the commands have their own
    without_hub = path != _LOCAL and why_unreachable()
    try:
        with offline() if without_hub else nullcontext():
            loaded = datasets.load_dataset(path, **which)
    except Exception as error:
        # It raises what its many parts raise, from the network down to Arrow.
        reason = f"{error.__cause__ or error}".splitlines()[0]
        raise UserError(
            f"{shown_as}: cannot be read as a dataset ({reason}); is it Parquet, or a dataset of "
            "the Hub, and is there a network?"
        ) from None
    parts = [loaded[split] for split in sorted(loaded)] if isinstance(loaded, dict) else [loaded]
    return pa.concat_tables([part.with_format("arrow")[:] for part in parts])


def check_columns(table: pa.Table, columns: Mapping[str, type], where: str) -> None:
    """Raise UserError unless a table has these columns, of these types, without gaps."""
    there = table.column_names
    if missing := [name for name in columns if name not in there]:
        raise UserError(
            f"{where}: has no column {', '.join(map(repr, missing))}; it has "
            f"{', '.join(map(repr, there))}; is it the dataset of this task?"
        )
    for name, kind in columns.items():
        column = table[name]
        if not _IS_OF_TYPE[kind](column.type):
            wanted = "str or int" if kind is object else kind.__name__
            raise UserError(f"{where}: column '{name}' is {column.type}; it must be {wanted}")
        if column.null_count:
            number = pc.index(column.is_null(), True).as_py() + 1
            raise UserError(f"{where} row {number}: has no '{name}'; fill it in or drop the row")


def drawn(num_rows: int, most: int | None, seed: int) -> list[int]:
    """Return which rows a seed chooses, ascending; all of them where none is too many."""
    if most is None or most >= num_rows:
        return list(range(num_rows))
    order = np.random.default_rng(seed).permutation(num_rows)
    return sorted(order[:most].tolist())
