"""Ways to look: from what has been measured to what is to be measured next, a small function each.

A way keeps nothing: all that it knows are the candidates so far, so that a search that was stopped
goes on from them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from carbon.design.goals import Floats, Goal, best, gains
from carbon.design.proposals import Proposer
from carbon.errors import UserError

Redraw = Callable[[str, int, tuple[int, int], float, float], list[str]]

_LAST_SHARE = 1 / 16  # of the longest window, when all calls are spent


class Proposal(NamedTuple):
    """A sequence to measure, and the number of the candidate that it was made of."""

    bases: str
    parent: int | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sequence that was measured.

    Attributes:
        number: from 1, in the order of measuring.
        round: from 0.
        parent: number of the candidate that it was made of; None if it was drawn whole.
        bases: A, C, G and T.
        values: of every oracle.
        nats_per_base: the model's mean surprise, behind the prompt.
    """

    number: int
    round: int
    parent: int | None
    bases: str
    values: tuple[float, ...]
    nats_per_base: float

    @property
    def name(self) -> str:
        """Return what it is called in messages and files."""
        return f"design_{self.number}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """What a way goes by.

    Attributes:
        way: its name.
        proposer: draws.
        goals: one for each oracle.
        calls: most sequences to measure; one call is one sequence, whatever the number of oracles.
        batch: most sequences of a round.
        start: to begin from, if there is one that keeps to the rules.
        width: lineages of a beam, or of `infill`.
        hot: temperature of their first round.
        cold: temperature when its calls are spent.
        within: how far from its target a value may be that is not rejected.
        wanted: how many designs are wanted.
    """

    way: str
    proposer: Proposer
    goals: tuple[Goal, ...]
    calls: int
    batch: int
    start: str | None
    width: int
    hot: float
    cold: float
    within: float
    wanted: int

    def gains(self, history: Sequence[Candidate]) -> Floats:
        """Return (candidates, goals): what is the larger the better."""
        return gains([candidate.values for candidate in history], self.goals)


def _fresh(search: Search, round_number: int) -> list[Proposal]:
    first = round_number * search.batch
    return [Proposal(each) for each in search.proposer.fresh(range(first, first + search.batch))]


def _best_of_n(search: Search, history: Sequence[Candidate], number: int) -> list[Proposal]:
    return _fresh(search, number)


def _beam(search: Search, history: Sequence[Candidate], number: int) -> list[Proposal]:
    return _next_of_lineages(search, history, number, search.proposer.regrown)


def _infill(search: Search, history: Sequence[Candidate], number: int) -> list[Proposal]:
    return _next_of_lineages(search, history, number, search.proposer.filled)


def _next_of_lineages(
    search: Search, history: Sequence[Candidate], number: int, redraw: Redraw
) -> list[Proposal]:
    """Return windows of the best lineages drawn anew, shorter and cooler with every round."""
    if not history:
        if search.start is None:
            return _fresh(search, number)
        return [Proposal(search.start)]
    done = len(history) / search.calls
    temperature = search.hot + (search.cold - search.hot) * done
    most_bp = search.proposer.length_bp / 2 * _LAST_SHARE**done
    lineages = best(search.gains(history), search.width)
    proposals = []
    for n, lineage in enumerate(lineages):
        parent = history[lineage]
        count = (search.batch - n - 1) // len(lineages) + 1
        drawn = redraw(parent.bases, count, (number, n), most_bp, temperature)
        proposals += [Proposal(each, parent.number) for each in drawn]
    return proposals


def _is_never(search: Search, history: Sequence[Candidate]) -> bool:
    return False


def _all(search: Search, history: Sequence[Candidate]) -> list[Candidate]:
    return list(history)


def _accepted(search: Search, history: Sequence[Candidate]) -> list[Candidate]:
    missed = -search.gains(history)
    return [history[n] for n in np.flatnonzero((missed <= search.within).all(axis=1)).tolist()]


def _check_nothing(_: object) -> None:
    pass


def _check_targets(goals: Sequence[Goal]) -> None:
    if any(goal.target is None for goal in goals):
        raise UserError("--way rejection: give every oracle a --goal that is a number to aim at")


class Way(NamedTuple):
    """A way to look.

    Attributes:
        propose: from the search, what was measured, and the number of the round, to what to
            measure; what was measured before or breaks a rule is left out by the caller.
        counted: which of what was measured count as designs.
        is_done: whether enough is found before the calls are spent.
        check: raises UserError if the goals are not for it.
        check_proposer: raises UserError if the model or the length is not.
    """

    propose: Callable[[Search, Sequence[Candidate], int], list[Proposal]]
    counted: Callable[[Search, Sequence[Candidate]], list[Candidate]] = _all
    is_done: Callable[[Search, Sequence[Candidate]], bool] = _is_never
    check: Callable[[Sequence[Goal]], None] = _check_nothing
    check_proposer: Callable[[Proposer], None] = _check_nothing


def _has_enough(search: Search, history: Sequence[Candidate]) -> bool:
    return bool(history) and len(_accepted(search, history)) >= search.wanted


WAYS: dict[str, Way] = {
    "beam": Way(_beam),
    "infill": Way(_infill, check_proposer=Proposer.check_both_sides),
    "best_of_n": Way(_best_of_n),
    "rejection": Way(_best_of_n, _accepted, _has_enough, _check_targets),
}
