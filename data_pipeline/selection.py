"""The second step: which records go because another one stays."""

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from carbon.files import atomic_file
from data_pipeline.duplicates import Candidate, near_duplicates
from data_pipeline.records import shard_batches
from data_pipeline.shards import shard_sources

Reasons = dict[str, dict[int, str]]  # of one shard: source, row, why


class _Column(NamedTuple):
    """The rows of one source in one shard."""

    shard: int
    source: str
    batches: list[pa.RecordBatch]
    digests: NDArray[np.uint64]
    held_out: NDArray[np.bool_]


def shards_of(work: Path) -> list[Path]:
    """Return the shards that there are, in the order of the recipe."""
    return sorted((work / "shards").glob("[0-9]*"))


def select(work: Path, near_identity: float) -> None:
    """Decide for all shards, and write the rows that go, with the reason, to `selected`.

    Of equal records, and of transcripts that are nearly equal, one stays: a held-out one before one
    to train on, else the longest, else the first in the order of the recipe.
    """
    shards = shards_of(work)
    done, names = work / "selected" / "done", " ".join(shard.name for shard in shards)
    if done.exists() and done.read_text(encoding="utf-8") == names:
        return
    for part in (work / "parts").glob("[0-9]*"):  # of another choice of inputs
        shutil.rmtree(part)
    columns = [column for i, shard in enumerate(shards) for column in _columns(i, shard)]
    reasons: list[Reasons] = [defaultdict(dict) for _ in shards]
    for column, row, reason in _equal(columns):
        reasons[column.shard][column.source].setdefault(row, reason)
    if near_identity < 1:
        sketched = [column for column in columns if _is_sketched(column)]
        for source in dict.fromkeys(column.source for column in sketched):
            mine = [column for column in sketched if column.source == source]
            for column, row, reason in _nearly_equal(mine, reasons, near_identity):
                reasons[column.shard][source][row] = reason
    for shard, found in zip(shards, reasons, strict=True):
        with atomic_file(work / "selected" / f"{shard.name}.json") as path:
            path.write_text(
                json.dumps({source: dict(rows) for source, rows in found.items()}), encoding="utf-8"
            )
    done.write_text(names, encoding="utf-8")


def selected_out(work: Path, shard: Path) -> Reasons:
    """Return what `select` decided for a shard."""
    table = json.loads((work / "selected" / f"{shard.name}.json").read_text(encoding="utf-8"))
    return {source: {int(row): why for row, why in rows.items()} for source, rows in table.items()}


def _columns(i: int, shard: Path) -> Iterator[_Column]:
    for source, path in shard_sources(shard):
        batches = list(shard_batches(path))
        digests = np.concatenate([batch.column("digest").to_numpy() for batch in batches])
        tests = [pa.compute.equal(batch.column("split"), "test") for batch in batches]
        held_out = [flags.to_numpy(zero_copy_only=False) for flags in tests]
        yield _Column(i, source, batches, digests, np.concatenate(held_out))


def _is_sketched(column: _Column) -> bool:
    """Tell whether near-duplicates are sought in a source: then its records came with sketches."""
    return any(batch.column("sketch").null_count < batch.num_rows for batch in column.batches)


def _equal(columns: list[_Column]) -> Iterator[tuple[_Column, int, str]]:
    """Find records that are equal to a held-out one of any source, or to another of their own."""
    nothing: list[NDArray[np.uint64]] = [np.zeros(0, dtype=np.uint64)]
    tested = np.unique(np.concatenate(nothing + [c.digests[c.held_out] for c in columns]))
    for column in columns:
        leaked = np.isin(column.digests, tested) & ~column.held_out
        for row in np.flatnonzero(leaked).tolist():
            yield column, row, "equals_held_out_record"
    for source in dict.fromkeys(column.source for column in columns):
        mine = [column for column in columns if column.source == source]
        digests = np.concatenate([column.digests for column in mine])
        held_out = np.concatenate([column.held_out for column in mine])
        order = np.lexsort((~held_out, digests))  # stable: else as they stand
        again = np.zeros(len(order), dtype=bool)
        again[order[1:]] = digests[order[1:]] == digests[order[:-1]]
        starts = np.cumsum([0, *(len(column.digests) for column in mine)])
        for column, start in zip(mine, starts, strict=False):
            for row in np.flatnonzero(again[start : start + len(column.digests)]).tolist():
                yield column, row, "duplicate_sequence"


def _nearly_equal(
    columns: list[_Column], reasons: list[Reasons], identity: float
) -> Iterator[tuple[_Column, int, str]]:
    candidates: list[Candidate] = []
    places: list[tuple[_Column, int, str]] = []
    for column in columns:
        gone = reasons[column.shard][column.source]
        row = -1
        for batch in column.batches:
            sequences, names = batch.column("sequence"), batch.column("name")
            lengths_bp = pa.compute.utf8_length(sequences).to_numpy(zero_copy_only=False)
            for i in range(batch.num_rows):
                row += 1
                if row not in gone:
                    sketch = batch.column("sketch")[i].as_py()
                    sequence = sequences[i].as_py
                    held_out = bool(column.held_out[row])
                    candidates.append(Candidate(int(lengths_bp[i]), held_out, sketch, sequence))
                    places.append((column, row, names[i].as_py()))
    for i, j in near_duplicates(candidates, identity):
        leaks = candidates[j].held_out and not candidates[i].held_out
        reason = "nearly_equals_held_out_record" if leaks else "near_duplicate"
        yield *places[i][:2], f"{reason}:{places[j][2]}"
