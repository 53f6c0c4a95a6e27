"""Goals for the values of scoring functions, and Pareto fronts over several goals."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError

Floats = NDArray[np.floating[Any]]
MAXIMIZE, MINIMIZE = "maximize", "minimize"


class Goal(NamedTuple):
    """Maximise or minimise a value, or approach a target.

    Attributes:
        sign: 1 to maximise, -1 to minimise.
        target: a value to approach, or None.
    """

    sign: float
    target: float | None = None

    def gain(self, values: Floats) -> Floats:
        """Return larger-is-better values; for a target, the negative distance to it."""
        gained: Floats = self.sign * values
        if self.target is not None:
            gained = -np.abs(values - self.target)
        return gained


def parse_goal(text: str | float) -> Goal:
    """Read `maximize`, `minimize` or a number.

    Raises:
        UserError: the text is anything else.
    """
    named = {MAXIMIZE: Goal(1.0), MINIMIZE: Goal(-1.0)}
    if text in named:
        return named[str(text)]
    try:
        target = float(text)
    except ValueError:
        target = float("nan")
    if not np.isfinite(target):
        raise UserError(f"goal '{text}': give {MAXIMIZE}, {MINIMIZE}, or the number to aim at")
    return Goal(1.0, target)


def goal_texts(goals: Sequence[str | float], num_functions: int) -> list[str]:
    """Return a goal for each scoring function as text; `maximize` for all if none is given."""
    return list(map(str, goals or [MAXIMIZE] * num_functions))


def goals_for(goals: Sequence[str | float], num_functions: int) -> tuple[Goal, ...]:
    """Parse a goal for each scoring function; maximise all if none is given.

    Raises:
        UserError: the numbers of goals and functions differ, or a goal is invalid.
    """
    texts = goal_texts(goals, num_functions)
    if len(texts) != num_functions:
        raise UserError(
            f"{num_functions} scoring functions and {len(texts)} goals: give one for each"
        )
    return tuple(map(parse_goal, texts))


def gains(values: Sequence[Sequence[float]], goals: Sequence[Goal]) -> Floats:
    """Return larger-is-better values, (candidates, goals)."""
    array = np.array(values, dtype=np.float64).reshape(-1, len(goals))
    return np.stack([goal.gain(array[:, n]) for n, goal in enumerate(goals)], axis=1)


def fronts(gained: Floats, count: int) -> list[list[int]]:
    """Return Pareto fronts, best first, until they contain `count` candidates.

    No candidate dominates another one of the same front: none is at least as good in every goal and
    better in one. With a single goal, a front contains the candidates with the same value. Within
    a front, candidates are sorted by falling crowding distance (Deb et al. 2002).

    Args:
        gained: larger-is-better values, (candidates, goals).
        count: number of candidates needed.
    """
    remaining = np.lexsort(-gained.T[::-1])  # by the first goal: none dominates an earlier one
    result: list[list[int]] = []
    while len(remaining) and sum(map(len, result)) < count:
        front: list[int] = []
        for candidate in remaining.tolist():
            lead = gained[front] - gained[candidate]
            if not ((lead >= 0).all(axis=1) & (lead > 0).any(axis=1)).any():
                front.append(candidate)
            elif gained.shape[1] == 1:
                break  # all remaining candidates are worse
        by_distance = np.argsort(-_crowding_distances(gained[front]), kind="stable")
        result.append([front[n] for n in by_distance])
        remaining = remaining[~np.isin(remaining, front)]
    return result


def best(gained: Floats, count: int) -> list[int]:
    """Return the best `count` candidates, front by front."""
    return [candidate for front in fronts(gained, count) for candidate in front][:count]


def _crowding_distances(gained: Floats) -> Floats:
    """Return the distance between the neighbours of each candidate, summed over the goals."""
    distances = np.zeros(len(gained))
    for column in gained.T:
        order = np.argsort(column, kind="stable")
        span = column[order[-1]] - column[order[0]]
        if span > 0:
            distances[order[[0, -1]]] = np.inf
            distances[order[1:-1]] += (column[order[2:]] - column[order[:-2]]) / span
    return distances
