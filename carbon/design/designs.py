"""Designs as rows of a table, and the nearest record of each."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np

from carbon.corpus import read_manifest
from carbon.corpus.schema import parquet
from carbon.design.distances import edits_within
from carbon.design.measures import EDITS_TO_OTHERS, MEASURES, columns_for
from carbon.design.rules import Rules
from carbon.genome import read_sequences
from carbon.genome.kmers import canonical_kmers

NEAREST_K = 16
"""In 100 million bases, both strands, a given 16-mer occurs by chance with p = 1/20: 2e8 / 4^16."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Design:
    """A candidate that was scored and selected.

    Attributes:
        name: `design_` and its number in scoring order.
        values: scores by the name of the scoring function.
        front: number of its Pareto front; 1 is the best.
        nats_per_base: mean negative log-likelihood; random bases have 1.386.
        constraints: the columns of `carbon.design.measures`, measured on the bases.
        edits_to_start: edit distance to the start; None without a start.
        nearest_record: the record that shares most 16-mers; None if no record shares any.
        nearest_shared: share of the design's 16-mers that the nearest record has.
        nearest_edits: edit distance to the most similar stretch of the nearest record.
        round: in which it was scored, from 0.
        parent: name of the design that it was made from; None if drawn whole.
        bases: A, C, G and T.
    """

    name: str
    values: dict[str, float]
    front: int
    nats_per_base: float
    constraints: dict[str, Any]
    edits_to_start: int | None
    nearest_record: str | None
    nearest_shared: float | None
    nearest_edits: int | None
    round: int
    parent: str | None
    bases: str


def columns_of(function_names: Sequence[str], rules: Rules) -> dict[str, Any]:
    """Return the columns of a table of designs, with their types."""
    columns: dict[str, Any] = {}
    for field, hint in get_type_hints(Design).items():
        if field == "values":
            columns |= dict.fromkeys(function_names, float)
        elif field == "constraints":
            columns |= columns_for(rules)
        else:
            columns[field] = next(iter(get_args(hint)), hint)  # the type without None
    return columns


RESERVED = (*columns_of([], Rules()), *MEASURES, EDITS_TO_OTHERS)
"""Names of columns that no scoring function may have."""


def row_of(design: Design) -> dict[str, Any]:
    """Return the values of a design by the columns of `columns_of`."""
    row: dict[str, Any] = {}
    for each in fields(Design):
        value = getattr(design, each.name)
        row |= value if isinstance(value, dict) else {each.name: value}
    return row


class Nearest(NamedTuple):
    """The record that shares most 16-mers with a design, on either strand.

    Attributes:
        record: its name.
        shared: share of the design's 16-mers that the record has.
        edits: edit distance from the design to the most similar stretch of the record.
    """

    record: str
    shared: float
    edits: int


def records_of(path: str | Path) -> Iterator[tuple[str, str]]:
    """Yield name and bases of the records of a FASTA, or of the training records of a corpus.

    Raises:
        CorpusError, GenomeError: the path is neither.
    """
    if not Path(path).is_dir():
        yield from read_sequences(path)
        return
    for name in sorted(read_manifest(path)["outputs"]):
        if "/train-" in name:
            with parquet(f"{path}/{name}") as source:
                for rows in source.iter_batches(256, columns=["record_id", "sequence"]):
                    columns = (column.to_pylist() for column in rows.columns)
                    yield from zip(*columns, strict=True)


def nearest_records(
    designs: Sequence[str], records: Iterable[tuple[str, str]]
) -> list[Nearest | None]:
    """Return the nearest record of each design; None if no record shares a 16-mer with it.

    Reads the records once. Keeps one in memory, and the nearest record of each design.
    """
    kmers = [np.unique(canonical_kmers(bases, NEAREST_K)) for bases in designs]
    sought, place = np.unique(np.concatenate([*kmers, []]).astype(np.uint64), return_inverse=True)
    owner = np.repeat(np.arange(len(designs)), [len(each) for each in kmers])
    most = np.zeros(len(designs))
    nearest: dict[int, tuple[str, str]] = {}
    for name, bases in records:
        is_shared = np.isin(sought, canonical_kmers(bases, NEAREST_K))
        shared = np.bincount(owner, is_shared[place], minlength=len(designs))
        for n in np.flatnonzero(shared > most).tolist():
            most[n], nearest[n] = shared[n], (name, bases)
    return [
        Nearest(nearest[n][0], most[n] / len(kmers[n]), edits_within(design, nearest[n][1]))
        if n in nearest
        else None
        for n, design in enumerate(designs)
    ]
