"""The second step: which records go because another one stays."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.io.files import atomic_file
from data_pipeline.records import ShardTexts, lengths_of, shard_columns, shard_sources

_REASONS = (
    "",
    "equals_held_out_record",
    "duplicate_sequence",
    "nearly_equals_held_out_record",
    "near_duplicate",
)
_STAYS, _LEAKED, _EQUAL, _NEARLY_LEAKED, _NEARLY_EQUAL = range(len(_REASONS))


class _Column(NamedTuple):
    """The rows of one source in one shard.

    Attributes:
        first: its first row, counted over all columns.
        gone: the index in _REASONS of why a row goes.
        because: the row that it goes because of, counted over all columns; or -1.
    """

    shard: Path
    source: str
    path: Path
    first: int
    digests: NDArray[np.uint64]
    held_out: NDArray[np.bool_]
    lengths_bp: NDArray[np.int32]
    gone: NDArray[np.uint8]
    because: NDArray[np.int64]


def shards_of(work: Path) -> list[Path]:
    """Return the shards that there are, in the order of the recipe."""
    return sorted((work / "shards").glob("[0-9]*"))


def select(work: Path, near_identity: float) -> None:
    """Decide for all shards, and write the rows that go, with the reason, to `selected`.

    Of equal records, and of transcripts that are nearly equal, one stays: a held-out one before one
    to train on, else the longest, else the first in the order of the recipe. Of what is left, no
    record to train on stays that nearly equals a held-out one, of whatever source either is.
    """
    shards = shards_of(work)
    done, told = work / "selected" / "done", " ".join(shard.name for shard in shards)
    if done.exists() and done.read_text(encoding="utf-8") == told:
        return
    for part in (work / "parts").glob("[0-9]*"):  # of another choice of inputs
        shutil.rmtree(part)
    columns = _columns(shards)
    _mark_equal(columns)
    if near_identity < 1:
        for source in _compared_sources(shards):
            mine = [column for column in columns if column.source == source]
            _mark_nearly_equal(mine, near_identity, work / "near")
        sketched = [column for column in columns if _is_sketched(column)]
        _mark_nearly_equal(sketched, near_identity, work / "near", leaks_only=True)
    name_of = ShardTexts([column.path for column in columns], "name")
    for column in columns:
        with (
            atomic_file(_selected(work, column.shard, column.source)) as path,
            path.open("w", encoding="utf-8") as sink,
        ):
            sink.writelines(f"{json.dumps(each)}\n" for each in _told(column, name_of))
    done.write_text(told, encoding="utf-8")


def selected_out(work: Path, shard: Path, source: str) -> Iterator[list[Any]]:
    """Yield the rows of a shard's source that go, as they stand, each with the reason."""
    with _selected(work, shard, source).open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _selected(work: Path, shard: Path, source: str) -> Path:
    return work / "selected" / f"{shard.name}.{source}.jsonl"


def _compared_sources(shards: list[Path]) -> list[str]:
    """Return the sources of whose nearly equal records one stays."""
    summaries = (shard / "summary.json" for shard in shards)
    told = (json.loads(path.read_text(encoding="utf-8")) for path in summaries)
    return list(dict.fromkeys(name for each in told for name in each["near_duplicates"]))


def _is_sketched(column: _Column) -> bool:
    batch = next(shard_columns(column.path, ["sketch"]))
    return bool(batch.column("sketch").null_count == 0)


def _columns(shards: list[Path]) -> list[_Column]:
    columns: list[_Column] = []
    first = 0
    for shard in shards:
        for source, path in shard_sources(shard):
            columns.append(_column(shard, source, path, first))
            first += len(columns[-1].gone)
    return columns


def _column(shard: Path, source: str, path: Path, first: int) -> _Column:
    digests, splits, lengths_bp = [], [], []
    for batch in shard_columns(path, ("sequence", "split", "digest")):
        digests.append(batch.column("digest").to_numpy().copy())  # a view would hold all letters
        splits.append(batch.column("split").to_numpy(zero_copy_only=False) == "test")
        lengths_bp.append(lengths_of(batch.column("sequence")).astype(np.int32))
    rows = sum(map(len, digests))
    return _Column(
        shard,
        source,
        path,
        first,
        np.concatenate(digests),
        np.concatenate(splits),
        np.concatenate(lengths_bp),
        gone=np.zeros(rows, dtype=np.uint8),
        because=np.full(rows, -1, dtype=np.int64),
    )


def _mark_equal(columns: list[_Column]) -> None:
    """Mark records that are equal to a held-out one of any source, or to another of their own."""
    nothing: list[NDArray[np.uint64]] = [np.zeros(0, dtype=np.uint64)]
    tested = np.unique(np.concatenate(nothing + [c.digests[c.held_out] for c in columns]))
    for source in dict.fromkeys(column.source for column in columns):
        mine = [column for column in columns if column.source == source]
        digests = np.concatenate([column.digests for column in mine])
        held_out = np.concatenate([column.held_out for column in mine])
        order = np.lexsort((~held_out, digests))  # stable: else as they stand
        again = np.zeros(len(order), dtype=bool)
        again[order[1:]] = digests[order[1:]] == digests[order[:-1]]
        for column, repeats in zip(mine, _parts(mine, again), strict=True):
            column.gone[repeats] = _EQUAL
            column.gone[_among(column.digests, tested) & ~column.held_out] = _LEAKED


def _among(values: NDArray[np.uint64], known: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return which values are among those known, which are sorted: numpy's isin sorts each time."""
    places = np.searchsorted(known, values)
    found = places < len(known)
    found[found] = known[places[found]] == values[found]
    return found


def _mark_nearly_equal(
    columns: list[_Column], identity: float, scratch: Path, *, leaks_only: bool = False
) -> None:
    """Mark records that are nearly equal to another one that stays, of any of the columns."""
    held_out = np.concatenate([np.zeros(0, dtype=bool), *(c.held_out for c in columns)])
    if not columns or (leaks_only and not held_out.any()):
        return
    from data_pipeline.dedup.near import Candidates, near_duplicates

    candidates = Candidates(
        np.concatenate([column.lengths_bp for column in columns]).astype(np.int64),
        held_out,
        np.concatenate([column.gone for column in columns]) == _STAYS,
        _sketches(columns),
        ShardTexts([column.path for column in columns], "sequence"),
    )
    because = near_duplicates(candidates, identity, scratch, leaks_only=leaks_only)
    rows = np.concatenate([np.arange(len(column.gone)) + column.first for column in columns])
    leaks = held_out[because] & ~held_out
    for column, others, leaked in zip(
        columns, _parts(columns, because), _parts(columns, leaks), strict=True
    ):
        near = others >= 0
        column.because[near] = rows[others[near]]
        column.gone[near] = np.where(leaked[near], _NEARLY_LEAKED, _NEARLY_EQUAL)


def _sketches(columns: list[_Column]) -> Iterator[NDArray[np.uint32]]:
    for column in columns:
        for batch in shard_columns(column.path, ["sketch"]):
            sketches = b"".join(batch.column("sketch").to_pylist())
            yield np.frombuffer(sketches, dtype="<u4").reshape(batch.num_rows, -1)


def _parts(columns: list[_Column], values: NDArray[Any]) -> list[NDArray[Any]]:
    """Cut an array over all rows of some columns into one for each."""
    return np.split(values, np.cumsum([len(column.gone) for column in columns])[:-1])


def _told(column: _Column, name_of: ShardTexts) -> Iterator[tuple[int, str]]:
    """Yield the rows of a column that go, with the reason."""
    for row in map(int, np.flatnonzero(column.gone)):
        because = int(column.because[row])
        name = f":{name_of(because)}" if because >= 0 else ""
        yield row, f"{_REASONS[column.gone[row]]}{name}"
