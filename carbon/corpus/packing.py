"""Cut records into segments and pack the segments into rows of a fixed number of tokens."""

import bisect
import json
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeInt
from typing_extensions import TypedDict

from carbon.corpus.schema import REMEDY, mapped
from carbon.corpus.store import RecordStore, made_whole
from carbon.errors import CorpusError
from carbon.io.structured import read_json
from carbon.progress import progress
from carbon.tokenizer import K

Int64s = NDArray[np.int64]

# A segment begins with `<dna>`, and in three of the four forms of a sample with one or two tags.
MAX_PREFIX_TOKENS = 3
FORMAT = 2
_ARRAYS = ("record", "start", "num_kmers", "row_start")
_RECORDS_A_BLOCK = 65_536  # packed together; this many are in memory at once


class Packing(NamedTuple):
    """Segments in the order of their rows.

    Attributes:
        record: (segments,) record from which a segment is cut.
        start: (segments,) first base of a segment in its record.
        num_kmers: (segments,) number of 6-mers for which a segment has room.
        row_start: (rows + 1,) row r holds segments `row_start[r]` to `row_start[r + 1]`.
        num_tokens: number of tokens of all rows without tags: 6-mers, and one `<dna>` per segment.
    """

    record: Int64s
    start: Int64s
    num_kmers: Int64s
    row_start: Int64s
    num_tokens: int

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.row_start) - 1

    def tokens_of_row(self, row: int) -> int:
        """Return the number of tokens for which a row's segments have room; the rest is padding."""
        first, last = self.row_start[row : row + 2].tolist()
        kmers = int(self.num_kmers[first:last].sum())
        return kmers + MAX_PREFIX_TOKENS * int(last - first)


def open_packing(store: RecordStore, row_tokens: int) -> Packing:
    """Return the packing of a store into rows of a length, mapped from disk, and made if missing.

    Records are packed in blocks of 65,536, so memory does not grow with their number. The result
    depends only on the store and the row length. One of another format is made anew.
    """
    folder = store.folder / f"rows-{row_tokens}"
    made_whole(folder, "packing.json", lambda made: _make(store, row_tokens, made), FORMAT)
    info = read_json(folder / "packing.json", _PackingInfo, error=CorpusError, remedy=REMEDY)
    counts = dict.fromkeys(_ARRAYS, info["pieces"]) | {"row_start": info["rows"] + 1}
    arrays = {name: mapped(folder / f"{name}.bin", np.int64, counts[name]) for name in _ARRAYS}
    return Packing(**arrays, num_tokens=info["tokens"])


class _PackingInfo(TypedDict):
    """`packing.json`: how many segments, rows and tokens the arrays hold."""

    pieces: NonNegativeInt
    rows: NonNegativeInt
    tokens: NonNegativeInt


def _make(store: RecordStore, row_tokens: int, folder: Path) -> None:
    sinks = {name: (folder / f"{name}.bin").open("wb") for name in _ARRAYS}
    sinks["row_start"].write(np.zeros(1, dtype=np.int64).data)
    num_segments = num_rows = num_tokens = 0
    title = f"packing {store.folder.name} into {row_tokens}"
    with progress(title, store.num_records) as advance:
        for first in range(0, store.num_records, _RECORDS_A_BLOCK):
            last = min(first + _RECORDS_A_BLOCK, store.num_records)
            block = pack(store.lengths_bp(first, last), row_tokens)
            sinks["record"].write((block.record + first).data)
            sinks["start"].write(block.start.data)
            sinks["num_kmers"].write(block.num_kmers.data)
            sinks["row_start"].write((block.row_start[1:] + num_segments).data)
            num_segments += len(block.record)
            num_rows += block.num_rows
            num_tokens += block.num_tokens
            advance(last - first)
    for sink in sinks.values():
        sink.close()
    info: dict[str, Any] = {"format": FORMAT, "pieces": num_segments, "rows": num_rows}
    info["tokens"] = num_tokens
    (folder / "packing.json").write_text(json.dumps(info, indent=1) + "\n", encoding="utf-8")


def pack(lengths_bp: Int64s, row_tokens: int) -> Packing:
    """Cut records into segments of at most a row and pack them best-fit, longest first.

    The result is deterministic: segments of equal length are placed in the order of their records,
    and a segment goes to the fullest row with room for it; of equals, to the one changed first.

    Args:
        lengths_bp: (records,) number of bases of each record.
        row_tokens: number of tokens of a row.
    """
    record, start, num_kmers = _cut(lengths_bp, row_tokens - MAX_PREFIX_TOKENS)
    rows_with: dict[int, deque[int]] = {}  # rows by the tokens that are free in them
    free_tokens: list[int] = []  # keys of `rows_with`, ascending
    row_of = np.empty(len(record), dtype=np.int64)
    num_rows = 0
    tokens_of = (num_kmers + MAX_PREFIX_TOKENS).tolist()
    for segment in np.argsort(-num_kmers, kind="stable").tolist():
        tokens = tokens_of[segment]
        at = bisect.bisect_left(free_tokens, tokens)
        if at == len(free_tokens):
            row, free, num_rows = num_rows, row_tokens, num_rows + 1
        else:
            free = free_tokens[at]
            row = rows_with[free].popleft()
            if not rows_with[free]:
                del rows_with[free], free_tokens[at]
        row_of[segment] = row
        left = free - tokens
        if left > MAX_PREFIX_TOKENS:  # otherwise no segment fits
            if left not in rows_with:
                rows_with[left] = deque()
                bisect.insort(free_tokens, left)
            rows_with[left].append(row)
    order = np.lexsort((np.arange(len(record)), row_of))
    row_start = np.searchsorted(row_of[order], np.arange(num_rows + 1))
    tokens = int(num_kmers.sum()) + len(record)
    return Packing(
        record[order], start[order], num_kmers[order], row_start.astype(np.int64), tokens
    )


def _cut(lengths_bp: Int64s, segment_kmers: int) -> tuple[Int64s, Int64s, Int64s]:
    """Return record, start and 6-mers of segments; the last segment of a record may be shorter."""
    total_kmers = -(-lengths_bp // K)
    num_segments = -(-total_kmers // segment_kmers)
    record = np.repeat(np.arange(len(lengths_bp)), num_segments)
    first = np.cumsum(num_segments) - num_segments
    number = np.arange(len(record)) - np.repeat(first, num_segments)
    num_kmers = np.minimum(segment_kmers, total_kmers[record] - number * segment_kmers)
    return record, number * segment_kmers * K, num_kmers
