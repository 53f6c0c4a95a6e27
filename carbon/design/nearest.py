"""The record of a corpus that a design is most like: by shared k-mers, then by edit distance."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from carbon.corpus import read_manifest
from carbon.corpus.files import parquet
from carbon.errors import UserError
from carbon.genome import read_sequences, reverse_complement
from carbon.kmers import canonical_kmers

NEAREST_K = 16
"""Of 100 million bases on both strands one in 20 has a given one by chance: 2e8 / 4^16."""


class Nearest(NamedTuple):
    """The record that shares most 16-mers with a design, of either strand.

    Attributes:
        record: its name.
        shared: which part of the design's 16-mers it has.
        edits: fewest substitutions, insertions and deletions from the design to a stretch of it.
    """

    record: str
    shared: float
    edits: int


def records_of(path: str | Path) -> Iterator[tuple[str, str]]:
    """Yield name and bases of what stands in a FASTA, or of the training records of a corpus.

    Raises:
        CorpusError, GenomeError: it is neither.
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
    """Return the nearest record of each design; None where none shares a 16-mer with it.

    The records are read once, one in memory at a time beside those that are nearest so far.
    """
    kmers = [np.unique(canonical_kmers(bases, NEAREST_K)) for bases in designs]
    sought, place = np.unique(np.concatenate([*kmers, []]).astype(np.uint64), return_inverse=True)
    owner = np.repeat(np.arange(len(designs)), [len(each) for each in kmers])
    most = np.zeros(len(designs))
    found: dict[int, tuple[str, str]] = {}
    for name, bases in records:
        is_there = np.isin(sought, canonical_kmers(bases, NEAREST_K))
        shared = np.bincount(owner, is_there[place], minlength=len(designs))
        for n in np.flatnonzero(shared > most).tolist():
            most[n], found[n] = shared[n], (name, bases)
    return [
        Nearest(found[n][0], most[n] / len(kmers[n]), edits_within(design, found[n][1]))
        if n in found
        else None
        for n, design in enumerate(designs)
    ]


def edits_within(design: str, record: str) -> int:
    """Return the edit distance from a design to the nearest stretch of a record, either strand."""
    return min(
        _distance(strand, record.upper(), "HW") for strand in (design, reverse_complement(design))
    )


def edits_between(one: str, other: str) -> int:
    """Return how many substitutions, insertions and deletions make one sequence the other.

    >>> edits_between("ACGT", "AGGTT")
    2
    """
    return _distance(one, other, "NW")


def check_distances() -> None:
    """Raise UserError unless edit distances can be computed."""
    _distance("A", "A", "NW")


def _distance(query: str, target: str, mode: str) -> int:
    try:
        import edlib
    except ImportError:
        raise UserError("distances need edlib: pip install 'carbon-dna[design]'") from None
    return int(edlib.align(query, target, mode=mode, task="distance")["editDistance"])
