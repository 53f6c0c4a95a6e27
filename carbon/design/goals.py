"""What is wanted of the values of oracles, and which candidates are the best by several."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError

Floats = NDArray[np.floating[Any]]


class Goal(NamedTuple):
    """The most or the least of a value, or a value that is aimed at.

    Attributes:
        sign: 1 for the most, -1 for the least.
        target: a value, or None.
    """

    sign: float
    target: float | None = None

    def gain(self, values: Floats) -> Floats:
        """Return what is the larger the better: of a target, less the distance to it."""
        gained: Floats = self.sign * values
        if self.target is not None:
            gained = -np.abs(values - self.target)
        return gained


def goal_of(text: str | float) -> Goal:
    """Read `most`, `least` or a number.

    Raises:
        UserError: it is none of them.
    """
    named = {"most": Goal(1.0), "least": Goal(-1.0)}
    if text in named:
        return named[str(text)]
    try:
        target = float(text)
    except ValueError:
        target = float("nan")
    if not np.isfinite(target):
        raise UserError(f"goal '{text}': give most, least, or the number to aim at")
    return Goal(1.0, target)


def goals_for(given: Sequence[str | float], num_oracles: int) -> tuple[Goal, ...]:
    """Return a goal for each oracle; the most of all if none is given.

    Raises:
        UserError: there are others than oracles, or one is none.
    """
    texts = given or ["most"] * num_oracles
    if len(texts) != num_oracles:
        raise UserError(f"{num_oracles} oracles and {len(texts)} goals: give one for each")
    return tuple(goal_of(each) for each in texts)


def gains(values: Sequence[Sequence[float]], goals: Sequence[Goal]) -> Floats:
    """Return (candidates, goals): what is the larger the better."""
    array = np.array(values, dtype=np.float64).reshape(-1, len(goals))
    return np.stack([goal.gain(array[:, n]) for n, goal in enumerate(goals)], axis=1)


def fronts(gained: Floats, count: int) -> list[list[int]]:
    """Return the Pareto fronts, the best first, until they hold `count` candidates.

    A front holds those that no other candidate beats: none is as good by all goals and better by
    one. With one goal a front is the candidates of one value. Within a front those with most room
    around them come first (crowding distance, Deb et al. 2002).

    Args:
        gained: (candidates, goals).
        count: of candidates that are wanted.
    """
    left = np.lexsort(-gained.T[::-1])  # the first goal's best come first: none beats one before
    found: list[list[int]] = []
    while len(left) and sum(map(len, found)) < count:
        front: list[int] = []
        for candidate in left.tolist():
            over = gained[front] - gained[candidate]
            if not ((over >= 0).all(axis=1) & (over > 0).any(axis=1)).any():
                front.append(candidate)
            elif gained.shape[1] == 1:
                break  # all that follow are worse
        found.append([front[n] for n in np.argsort(-_room(gained[front]), kind="stable")])
        left = left[~np.isin(left, front)]
    return found


def best(gained: Floats, count: int) -> list[int]:
    """Return so many candidates, front by front."""
    return [candidate for front in fronts(gained, count) for candidate in front][:count]


def _room(gained: Floats) -> Floats:
    """Return of each candidate of a front how far its neighbours by each goal are apart."""
    room = np.zeros(len(gained))
    for column in gained.T:
        order = np.argsort(column, kind="stable")
        span = column[order[-1]] - column[order[0]]
        if span > 0:
            room[order[[0, -1]]] = np.inf
            room[order[1:-1]] += (column[order[2:]] - column[order[:-2]]) / span
    return room
