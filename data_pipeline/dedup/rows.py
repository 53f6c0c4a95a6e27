"""The records of all shards as numbered rows, with what deduplication reads and writes of them.

A row is a record's place in the order of the recipe: shard by shard, source by source. Results lie
in a folder that is named after the shards, so a build with other shards never reads them.
"""

import hashlib
import json
import mmap
from collections.abc import Iterator
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeInt
from typing_extensions import TypedDict

from carbon.io.files import atomic_file
from carbon.io.structured import JSON_OBJECT, read_json
from data_pipeline.dedup.sketch import NUM_HASHES, UInt32s
from data_pipeline.records import FACTS, ShardTexts, bands_of, shard_sources
from data_pipeline.sources import set_alike

Ids = NDArray[np.int64]
GONE = np.dtype([("row", "<i8"), ("because", "<i8"), ("reason", "u1")])
"""A row that goes, and the row that stays instead (-1 for equal records)."""
REASONS = (
    "equals_held_out_record", "duplicate_sequence", "nearly_equals_held_out_record",
    "near_duplicate",
)  # fmt: skip
LEAK, DUPLICATE, NEAR_LEAK, NEAR_DUPLICATE = range(len(REASONS))
_COLUMNS_OPEN = 64
_ROWS_A_TASK = 1 << 13
EQUAL, NEAR = "equal", "near"  # folders of results
_INDEX = "rows.json"


class Column(NamedTuple):
    """The records of one source in one shard: rows `first` to `first + size`."""

    shard: Path
    source: str
    first: int
    size: int
    is_sketched: bool

    def file(self, ending: str) -> Path:
        """Return the path of one of the column's files."""
        return self.shard / f"{self.source}.{ending}"

    def facts(self) -> NDArray[np.void]:
        """Return digest, length and split of the column's records: (size,) of FACTS."""
        return np.fromfile(self.file("facts"), dtype=FACTS)

    def band(self, number: int) -> NDArray[np.uint64]:
        """Return a band of the column's sketches: (size,)."""
        return bands_of(self.file("bands"), number)


def shards_of(work: Path) -> list[Path]:
    """Return the shards that exist, in the order of the recipe."""
    return sorted((work / "shards").glob("[0-9]*"))


def _folder(shards: list[Path], work: Path) -> Path:
    names = " ".join(shard.name for shard in shards)
    return work / "dedup" / hashlib.sha256(names.encode()).hexdigest()[:16]


def index_rows(work: Path) -> None:
    """Write which rows there are, so that later tasks do not look at every shard.

    Raises:
        UserError: near-duplicates of a source are removed for some inputs only.
    """
    shards = shards_of(work)
    columns = []
    is_near: dict[str, bool] = {}
    for shard in shards:
        near_sources = read_json(shard / "summary.json", JSON_OBJECT)["near_duplicates"]
        for source in shard_sources(shard):
            columns.append(_column(shard, source))
            set_alike(is_near, "near_duplicates", source, source in near_sources)
    path = _folder(shards, work) / _INDEX
    path.parent.mkdir(parents=True, exist_ok=True)
    index = {"near": sorted(name for name, near in is_near.items() if near), "columns": columns}
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(index), encoding="utf-8")


def _column(shard: Path, source: str) -> tuple[str, str, int, bool]:
    size = (shard / f"{source}.facts").stat().st_size // FACTS.itemsize
    return shard.name, source, size, (shard / f"{source}.sketches").exists()


class _Index(TypedDict):
    """Sources whose near-duplicates are removed; shard, source, size, sketches of a column."""

    near: list[str]
    columns: list[tuple[str, str, NonNegativeInt, bool]]


class Rows:
    """All records of a build.

    Attributes:
        folder: of the results of deduplication.
        columns: of all shards, in the order of rows.
        size: number of rows.
        sources: names of the sources; arrays have their indices.
        near_sources: whether near-duplicates are removed, of each source: (sources,).
    """

    def __init__(self, work: Path) -> None:
        shards = shards_of(work)
        self.folder = _folder(shards, work)
        index = read_json(self.folder / _INDEX, _Index)
        sizes = [size for _, _, size, _ in index["columns"]]
        self.columns = [
            Column(work / "shards" / shard, source, first, size, is_sketched)
            for (shard, source, size, is_sketched), first in zip(
                index["columns"], accumulate(sizes, initial=0), strict=False
            )
        ]
        self.size = sum(sizes)
        self.sources = sorted({column.source for column in self.columns})
        self.near_sources = np.isin(self.sources, index["near"])
        self._firsts = np.array([column.first for column in self.columns], dtype=np.int64)
        self._texts = lru_cache(_COLUMNS_OPEN)(self._open_texts)
        self._maps = lru_cache(_COLUMNS_OPEN)(self._open_map)

    def num_tasks(self, most: int) -> int:
        """Return how many tasks share the work of a step; tasks beyond have nothing to do.

        Steps are submitted with `most` tasks before anyone knows how many records there are.
        """
        return int(min(most, 1 + self.size // _ROWS_A_TASK))

    def facts(self, rows: Ids) -> tuple[NDArray[np.void], NDArray[np.int64]]:
        """Return FACTS and index of the source of some rows: (n,) each."""
        facts, sources = np.empty(len(rows), dtype=FACTS), np.empty(len(rows), dtype=np.int64)
        for i, where, inside in self._by_column(rows):
            facts[where] = self._read(i, "facts", inside)
            sources[where] = self.sources.index(self.columns[i].source)
        return facts, sources

    def sketches(self, rows: Ids) -> UInt32s:
        """Return the sketches of some rows: (n, 256)."""
        result = np.empty((len(rows), NUM_HASHES), dtype=np.uint32)
        for i, where, inside in self._by_column(rows):
            result[where] = self._read(i, "sketches", inside)
        return result

    def text(self, row: int, name: str) -> str:
        """Return a text column of one row, such as its `sequence` or `name`."""
        i = int(np.searchsorted(self._firsts, row, side="right")) - 1
        return str(self._texts(i, name)(row - self.columns[i].first))

    def _open_texts(self, i: int, name: str) -> ShardTexts:
        return ShardTexts(self.columns[i].file("arrow"), name)

    def _read(self, i: int, ending: str, inside: Ids) -> NDArray[Any]:
        """Return some rows of a mapped file, whose pages then no longer count as memory."""
        pages, values = self._maps(i, ending)
        result: NDArray[Any] = values[inside]
        pages.madvise(mmap.MADV_DONTNEED)
        return result

    def _open_map(self, i: int, ending: str) -> tuple[mmap.mmap, NDArray[Any]]:
        with self.columns[i].file(ending).open("rb") as file:
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if ending == "facts":
            return pages, np.frombuffer(pages, dtype=FACTS)
        return pages, np.frombuffer(pages, dtype="<u4").reshape(-1, NUM_HASHES)

    def _by_column(self, rows: Ids) -> Iterator[tuple[int, Ids, Ids]]:
        """Yield the columns of some rows: index, places in `rows`, and rows inside the column."""
        numbers = np.searchsorted(self._firsts, rows, side="right") - 1
        order = np.argsort(numbers, kind="stable")
        starts = np.flatnonzero(np.diff(numbers[order], prepend=-1)).tolist()
        for start, end in pairwise([*starts, len(order)]):
            where = order[start:end]
            i = int(numbers[where[0]])
            yield i, where, rows[where] - self.columns[i].first

    def stays(self) -> NDArray[np.bool_]:
        """Return which rows have a sketch and are not removed as equal: (size,)."""
        result = np.zeros(self.size, dtype=bool)
        for column in self.columns:
            result[column.first : column.first + column.size] = column.is_sketched
        for path in sorted((self.folder / EQUAL).glob("*.npy")):
            result[np.load(path)["row"]] = False
        return result

    @cached_property
    def _results(self) -> list[Any]:
        paths = (path for kind in (EQUAL, NEAR) for path in (self.folder / kind).glob("*.npy"))
        return [np.load(path, mmap_mode="r") for path in paths]

    def gone(self, column: Column) -> Iterator[tuple[int, str]]:
        """Yield the rows of a column that go, counted inside it, each with its reason."""
        bounds = (column.first, column.first + column.size)
        found = [np.zeros(0, dtype=GONE)]
        for each in self._results:
            first, last = np.searchsorted(each["row"], bounds)
            found.append(np.array(each[first:last]))
        for row, because, reason in np.sort(np.concatenate(found), order="row").tolist():
            name = f":{self.text(because, 'name')}" if because >= 0 else ""
            yield row - column.first, f"{REASONS[reason]}{name}"


def save(path: Path, values: NDArray[Any]) -> None:
    """Write an array to a file that appears when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as temporary, temporary.open("wb") as sink:
        np.save(sink, values)


def save_gone(path: Path, rows: Ids, because: Ids, reasons: NDArray[np.uint8]) -> None:
    """Write rows that go, in the order of rows."""
    values = np.empty(len(rows), dtype=GONE)
    values["row"], values["because"], values["reason"] = rows, because, reasons
    save(path, np.sort(values, order="row"))
