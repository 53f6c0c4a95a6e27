"""Cutting records into pieces and packing pieces into rows of one fixed token length."""

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.tokenizer import K

Int64s = NDArray[np.int64]

# A piece opens with `<dna>` and, in three of the four forms of a sample, one or two tags.
MAX_PREFIX_TOKENS = 3


class Packing(NamedTuple):
    """Pieces in the order of their rows.

    Attributes:
        record: (pieces,) the record that a piece is cut from.
        start: (pieces,) its first base in that record.
        num_kmers: (pieces,) the 6-mers it has room for.
        row_start: (rows + 1,) row r holds pieces `row_start[r]` to `row_start[r + 1]`.
    """

    record: Int64s
    start: Int64s
    num_kmers: Int64s
    row_start: Int64s

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.row_start) - 1


def pack(lengths_bp: Int64s, row_tokens: int) -> Packing:
    """Cut records into pieces of at most a row and pack them best-fit, longest first.

    Deterministic: pieces of one length are placed in the order of their records, and a piece goes
    to the fullest row that has room, the oldest of these.

    Args:
        lengths_bp: (records,) bases of each record.
        row_tokens: tokens of a row.
    """
    record, start, num_kmers = _cut(lengths_bp, row_tokens - MAX_PREFIX_TOKENS)
    room: list[deque[int]] = [deque() for _ in range(row_tokens + 1)]  # rows by their free tokens
    row_of = np.empty(len(record), dtype=np.int64)
    num_rows = 0
    for piece in np.argsort(-num_kmers, kind="stable"):
        tokens = int(num_kmers[piece]) + MAX_PREFIX_TOKENS
        free = next((f for f in range(tokens, row_tokens + 1) if room[f]), None)
        if free is None:
            row, free, num_rows = num_rows, row_tokens, num_rows + 1
        else:
            row = room[free].popleft()
        row_of[piece] = row
        room[free - tokens].append(row)
    order = np.lexsort((np.arange(len(record)), row_of))
    row_start = np.searchsorted(row_of[order], np.arange(num_rows + 1))
    return Packing(record[order], start[order], num_kmers[order], row_start.astype(np.int64))


def _cut(lengths_bp: Int64s, piece_kmers: int) -> tuple[Int64s, Int64s, Int64s]:
    """Return record, start and 6-mers of the pieces; the last piece of a record may be shorter."""
    total_kmers = -(-lengths_bp // K)
    num_pieces = -(-total_kmers // piece_kmers)
    record = np.repeat(np.arange(len(lengths_bp)), num_pieces)
    first = np.cumsum(num_pieces) - num_pieces
    number = np.arange(len(record)) - np.repeat(first, num_pieces)
    num_kmers = np.minimum(piece_kmers, total_kmers[record] - number * piece_kmers)
    return record, number * piece_kmers * K, num_kmers
