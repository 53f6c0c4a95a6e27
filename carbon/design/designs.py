"""Designs: what `model.design` returns, with all that tells whether an oracle was fooled."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from carbon.design.config import DesignTask, search_of
from carbon.design.functions import Function, started
from carbon.design.goals import fronts
from carbon.design.search import chosen, edits_between, nearest_records, records_of, run_search
from carbon.design.strategies import Candidate, Search
from carbon.errors import UserError
from carbon.inference.runner import ModelRunner


@dataclass(frozen=True, kw_only=True, slots=True)
class Design:
    """A sequence that was measured and chosen.

    Attributes:
        name: `design_` and its number in the order of measuring.
        round: in which it was measured, from 0.
        parent: name of the one that it was made of; None if it was drawn whole.
        front: 1 for those that no other beats by all goals at once, and so on.
        values: of each oracle, by its name.
        nats_per_base: the model's mean surprise; 1.386 is that of a fair four-sided die.
        edits_to_start: edit distance to the start; None without one.
        nearest_record: the record that shares most 16-mers; None where none does.
        nearest_shared: which part of the design's 16-mers it has.
        nearest_edits: edit distance to the nearest stretch of it.
        bases: A, C, G and T.
    """

    name: str
    round: int
    parent: str | None
    front: int
    values: dict[str, float]
    nats_per_base: float
    edits_to_start: int | None
    nearest_record: str | None
    nearest_shared: float | None
    nearest_edits: int | None
    bases: str


def columns_of(oracle_names: Sequence[str]) -> dict[str, Any]:
    """Return the columns of a table of designs, with their types."""
    return {
        "name": str,
        **dict.fromkeys(oracle_names, float),
        "front": int,
        "nats_per_base": float,
        "edits_to_start": int,
        "nearest_record": str,
        "nearest_shared": float,
        "nearest_edits": int,
        "round": int,
        "parent": str,
        "bases": str,
    }


COLUMNS = tuple(columns_of([]))


def row_of(design: Design) -> dict[str, Any]:
    """Return a design as `columns_of` has it."""
    return {
        name: design.values[name] if name in design.values else getattr(design, name)
        for name in columns_of(list(design.values))
    }


def design(
    reader: ModelRunner, oracles: Sequence[str | Function], task: DesignTask
) -> list[Design]:
    """Return the best designs, the best first.

    Raises:
        UserError: something does not fit, an oracle fails, or nothing is found.
    """
    search, judge = search_of(reader, task, len(oracles))
    ready = started(oracles, task.timeout_seconds, COLUMNS)
    try:
        history = run_search(search, judge, ready)
    finally:
        for oracle in ready:
            oracle.close()
    return designs_of(task, search, [oracle.name for oracle in ready], history)


def designs_of(
    task: DesignTask, search: Search, names: Sequence[str], history: Sequence[Candidate]
) -> list[Design]:
    """Return the designs of what was measured, with their distances.

    Raises:
        UserError: nothing was found.
    """
    found = chosen(search, history)
    if not found:
        raise UserError(_why_nothing(search, names, history))
    texts = [candidate.bases for candidate in found]
    nearest = nearest_records(texts, records_of(task.records) if task.records else [])
    front_of = {
        n: number
        for number, front in enumerate(fronts(search.gains(found), len(found)), start=1)
        for n in front
    }
    start = task.start.upper() if task.start else None
    return [
        Design(
            name=candidate.name,
            round=candidate.round,
            parent=f"design_{candidate.parent}" if candidate.parent else None,
            front=front_of[n],
            values=dict(zip(names, candidate.values, strict=True)),
            nats_per_base=candidate.nats_per_base,
            edits_to_start=edits_between(candidate.bases, start) if start else None,
            nearest_record=near.record if near else None,
            nearest_shared=near.shared if near else None,
            nearest_edits=near.edits if near else None,
            bases=candidate.bases,
        )
        for n, (candidate, near) in enumerate(zip(found, nearest, strict=True))
    ]


def _why_nothing(search: Search, names: Sequence[str], history: Sequence[Candidate]) -> str:
    if not history:
        return "nothing was measured: all that was drawn breaks a rule; give rules that leave room"
    missed = -search.gains(history).max(axis=0)
    near = ", ".join(f"{name} {miss:.4g}" for name, miss in zip(names, missed, strict=True))
    return (
        f"none of {len(history)} sequences is near enough; the least distances to the targets "
        f"are: {near}; give a larger --within or more --calls"
    )
