"""Scored sequences as rows of a table: one a sequence, or one a base; and as JSON holds them."""

import base64
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from carbon.inference.scoring.sequences import SequenceScore
from carbon.io.tables import Columns

Row = tuple[Any, ...]


class ScoreTable(NamedTuple):
    """A table of scores.

    Attributes:
        columns: name and type of each.
        rows: from a sequence's name, its bases and its score to its rows.
    """

    columns: Columns
    rows: Callable[[str, str, SequenceScore], Iterator[Row]]


def _sequence_row(name: str, sequence: str, score: SequenceScore) -> Iterator[Row]:
    numbers: Row = (None, None)
    if score.num_known_bases:
        numbers = (score.log_likelihood, score.nats_per_base)
    yield (name, score.length_bp, score.num_known_bases, *numbers)


def _base_rows(name: str, sequence: str, score: SequenceScore) -> Iterator[Row]:
    """Yield a row a base, with its position from 1."""
    for position, (base, value) in enumerate(zip(sequence, score.bases, strict=True), start=1):
        yield name, position, base, float(value) if base in "ACGTacgt" else None


PER_SEQUENCE = ScoreTable(
    {
        "name": str,
        "bases": int,
        "known_bases": int,
        "log_likelihood": float,
        "nats_per_base": float,
    },
    _sequence_row,
)
PER_BASE = ScoreTable(
    {"name": str, "position": int, "base": str, "log_likelihood": float}, _base_rows
)


def packing_of(
    *, per_base: bool
) -> tuple[Callable[[SequenceScore], Any], Callable[[str, Any], SequenceScore]]:
    """Return what makes JSON of a score, and a score of bases and JSON, with all its digits.

    Args:
        per_base: keep what every base has; without, a score has none of that behind its packing.
    """

    def packed(score: SequenceScore) -> list[Any]:
        values = score.bases.tobytes() if per_base else b""
        return [score.num_known_bases, score.log_likelihood, base64.b64encode(values).decode()]

    def unpacked(bases: str, kept: list[Any]) -> SequenceScore:
        num_known_bases, log_likelihood, text = kept
        values = np.frombuffer(base64.b64decode(text), dtype=np.float32)
        return SequenceScore(len(bases), num_known_bases, log_likelihood, values)

    return packed, unpacked
