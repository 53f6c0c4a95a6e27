"""Cutting records into pieces and packing pieces into rows of one fixed token length."""

import bisect
import json
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.corpus.schema import mapped
from carbon.corpus.store import Store, made_whole
from carbon.progress import progress
from carbon.tokenizer import K

Int64s = NDArray[np.int64]

# A piece opens with `<dna>` and, in three of the four forms of a sample, one or two tags.
MAX_PREFIX_TOKENS = 3
_FORMAT = 2
_ARRAYS = ("record", "start", "num_kmers", "row_start")
_RECORDS_A_BLOCK = 65_536  # packed together; what is in memory at once


class Packing(NamedTuple):
    """Pieces in the order of their rows.

    Attributes:
        record: (pieces,) the record that a piece is cut from.
        start: (pieces,) its first base in that record.
        num_kmers: (pieces,) the 6-mers it has room for.
        row_start: (rows + 1,) row r holds pieces `row_start[r]` to `row_start[r + 1]`.
        num_tokens: of all rows, if no piece has a tag: 6-mers and a `<dna>` a piece.
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
        """Return the tokens that a row's pieces have room for; the rest is padding."""
        first, last = self.row_start[row : row + 2].tolist()
        kmers = int(self.num_kmers[first:last].sum())
        return kmers + MAX_PREFIX_TOKENS * int(last - first)


def open_packing(store: Store, row_tokens: int) -> Packing:
    """Return the packing of a store into rows of a length, mapped from disk, made if not there.

    Records are packed by blocks of 65,536, so that memory does not grow with their number; which
    rows there are depends on the store and the length alone.
    """
    folder = store.folder / f"rows-{row_tokens}"
    made_whole(folder, "packing.json", lambda made: _make(store, row_tokens, made))
    info = json.loads((folder / "packing.json").read_text(encoding="utf-8"))
    counts = dict.fromkeys(_ARRAYS, info["pieces"]) | {"row_start": info["rows"] + 1}
    arrays = {name: mapped(folder / f"{name}.bin", np.int64, counts[name]) for name in _ARRAYS}
    return Packing(**arrays, num_tokens=info["tokens"])


def _make(store: Store, row_tokens: int, folder: Path) -> None:
    sinks = {name: (folder / f"{name}.bin").open("wb") for name in _ARRAYS}
    sinks["row_start"].write(np.zeros(1, dtype=np.int64).data)
    num_pieces = num_rows = num_tokens = 0
    title = f"packing {store.folder.name} into {row_tokens}"
    with progress(title, store.num_records) as advance:
        for first in range(0, store.num_records, _RECORDS_A_BLOCK):
            last = min(first + _RECORDS_A_BLOCK, store.num_records)
            block = pack(store.lengths_bp(first, last), row_tokens)
            sinks["record"].write((block.record + first).data)
            sinks["start"].write(block.start.data)
            sinks["num_kmers"].write(block.num_kmers.data)
            sinks["row_start"].write((block.row_start[1:] + num_pieces).data)
            num_pieces += len(block.record)
            num_rows += block.num_rows
            num_tokens += block.num_tokens
            advance(last - first)
    for sink in sinks.values():
        sink.close()
    info: dict[str, Any] = {"format": _FORMAT, "pieces": num_pieces, "rows": num_rows}
    info["tokens"] = num_tokens
    (folder / "packing.json").write_text(json.dumps(info, indent=1) + "\n", encoding="utf-8")


def pack(lengths_bp: Int64s, row_tokens: int) -> Packing:
    """Cut records into pieces of at most a row and pack them best-fit, longest first.

    Deterministic: pieces of one length are placed in the order of their records, and a piece goes
    to the fullest row that has room, the oldest of these.

    Args:
        lengths_bp: (records,) bases of each record.
        row_tokens: tokens of a row.
    """
    record, start, num_kmers = _cut(lengths_bp, row_tokens - MAX_PREFIX_TOKENS)
    rows_with: dict[int, deque[int]] = {}  # rows by the tokens that are free in them
    free_tokens: list[int] = []  # the keys of it, ascending
    row_of = np.empty(len(record), dtype=np.int64)
    num_rows = 0
    tokens_of = (num_kmers + MAX_PREFIX_TOKENS).tolist()
    for piece in np.argsort(-num_kmers, kind="stable").tolist():
        tokens = tokens_of[piece]
        at = bisect.bisect_left(free_tokens, tokens)
        if at == len(free_tokens):
            row, free, num_rows = num_rows, row_tokens, num_rows + 1
        else:
            free = free_tokens[at]
            row = rows_with[free].popleft()
            if not rows_with[free]:
                del rows_with[free], free_tokens[at]
        row_of[piece] = row
        left = free - tokens
        if left > MAX_PREFIX_TOKENS:  # else nothing fits there any more
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


def _cut(lengths_bp: Int64s, piece_kmers: int) -> tuple[Int64s, Int64s, Int64s]:
    """Return record, start and 6-mers of the pieces; the last piece of a record may be shorter."""
    total_kmers = -(-lengths_bp // K)
    num_pieces = -(-total_kmers // piece_kmers)
    record = np.repeat(np.arange(len(lengths_bp)), num_pieces)
    first = np.cumsum(num_pieces) - num_pieces
    number = np.arange(len(record)) - np.repeat(first, num_pieces)
    num_kmers = np.minimum(piece_kmers, total_kmers[record] - number * piece_kmers)
    return record, number * piece_kmers * K, num_kmers
