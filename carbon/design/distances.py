"""Edit distances between sequences, by edlib."""

from collections.abc import Iterable
from typing import Any

from carbon.errors import UserError
from carbon.genome import reverse_complement


def edits_within(design: str, record: str) -> int:
    """Return the edit distance to the most similar stretch of a record, on either strand."""
    return min(
        _distance(strand, record.upper(), "HW") for strand in (design, reverse_complement(design))
    )


def edits_between(first: str, second: str) -> int:
    """Return the edit distance: substitutions, insertions and deletions.

    >>> edits_between("ACGT", "AGGTT")
    2
    """
    return _distance(first, second, "NW")


def far_apart(sequences: Iterable[str], least_edits: int, most: int) -> list[int]:
    """Return the indices of the first sequences that are far enough from one another.

    Each sequence is taken if it has the distance to all that were taken before it.

    >>> far_apart(["AAAA", "AAAC", "CCCC"], 2, 9)
    [0, 2]

    Args:
        sequences: in the order of preference.
        least_edits: minimum edit distance; 0 or 1 takes all that differ.
        most: maximum number of indices.
    """
    taken: dict[int, str] = {}
    for number, bases in enumerate(sequences):
        if len(taken) == most:
            break
        if least_edits < 2 or all(_differ(bases, each, least_edits) for each in taken.values()):
            taken[number] = bases
    return list(taken)


def _differ(first: str, second: str, least_edits: int) -> bool:
    # Beyond `k` edits edlib stops, and answers -1.
    return _distance(first, second, "NW", k=least_edits - 1) < 0


def check_distances() -> None:
    """Raise UserError unless edit distances can be computed."""
    _distance("A", "A", "NW")


def _distance(query: str, target: str, mode: str, **options: Any) -> int:
    try:
        import edlib
    except ImportError:
        raise UserError("distances need edlib: pip install 'carbon-dna[design]'") from None
    return int(edlib.align(query, target, mode=mode, task="distance", **options)["editDistance"])
