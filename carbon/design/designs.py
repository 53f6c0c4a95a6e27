"""Designs: the best candidates of a search, with the likelihoods and distances to assess them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from carbon.design.config import DesignConfig
from carbon.design.functions import Function, running_functions
from carbon.design.goals import fronts
from carbon.design.search import (
    best_designs,
    edits_between,
    nearest_records,
    records_of,
    run_search,
    search_of,
)
from carbon.design.strategies import Candidate, Search
from carbon.errors import UserError
from carbon.inference.runner import ModelRunner


@dataclass(frozen=True, kw_only=True, slots=True)
class Design:
    """A candidate that was scored and selected.

    Attributes:
        name: `design_` and its number in scoring order.
        round: in which it was scored, from 0.
        parent: name of the design that it was made from; None if drawn whole.
        front: number of its Pareto front; 1 is the best.
        values: scores by the name of the scoring function.
        nats_per_base: mean negative log-likelihood; random bases have 1.386.
        edits_to_start: edit distance to the start; None without a start.
        nearest_record: the record that shares most 16-mers; None if no record shares any.
        nearest_shared: share of the design's 16-mers that the nearest record has.
        nearest_edits: edit distance to the most similar stretch of the nearest record.
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


def columns_of(function_names: Sequence[str]) -> dict[str, Any]:
    """Return the columns of a table of designs, with their types."""
    return {
        "name": str,
        **dict.fromkeys(function_names, float),
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
    """Return a design as a row with the columns of `columns_of`."""
    return {
        name: design.values[name] if name in design.values else getattr(design, name)
        for name in columns_of(list(design.values))
    }


def design(
    reader: ModelRunner, functions: Sequence[str | Function], config: DesignConfig
) -> list[Design]:
    """Run a search and return the best designs, best first.

    Raises:
        UserError: options contradict one another, a scoring function fails, or no candidate
            qualifies.
    """
    search, checker = search_of(reader, config, len(functions))
    with running_functions(functions, config.timeout_seconds, COLUMNS) as running:
        history = run_search(search, checker, running)
    return designs_of(config, search, [function.name for function in running], history)


def designs_of(
    config: DesignConfig, search: Search, names: Sequence[str], history: Sequence[Candidate]
) -> list[Design]:
    """Return the designs of a finished search, with their edit distances.

    Raises:
        UserError: no candidate qualifies.
    """
    best = best_designs(search, history)
    if not best:
        raise UserError(_why_none(search, names, history))
    sequences = [candidate.bases for candidate in best]
    nearest = nearest_records(sequences, records_of(config.records) if config.records else [])
    front_of = {
        n: number
        for number, front in enumerate(fronts(search.gains(best), len(best)), start=1)
        for n in front
    }
    start = config.start.upper() if config.start else None
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
        for n, (candidate, near) in enumerate(zip(best, nearest, strict=True))
    ]


def _why_none(search: Search, names: Sequence[str], history: Sequence[Candidate]) -> str:
    if not history:
        return "nothing was scored: all drawn sequences break a rule; give less strict rules"
    missed = -search.gains(history).max(axis=0)
    near = ", ".join(f"{name} {miss:.4g}" for name, miss in zip(names, missed, strict=True))
    return (
        f"none of {len(history)} sequences is near enough; the least distances to the targets "
        f"are: {near}; give a larger --within or more --calls"
    )
