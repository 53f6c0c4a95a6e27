"""Search strategies: small functions from the scored candidates to the next proposals.

A strategy is stateless: it depends only on the candidates so far, so an interrupted search can
continue from them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from carbon.design.config import DesignConfig
from carbon.design.distances import far_apart
from carbon.design.goals import Floats, Goal, best, gains
from carbon.design.proposals import Proposer
from carbon.design.rules import RuleChecker
from carbon.errors import UserError

Redraw = Callable[[str, int, tuple[int, int], float, float], list[str]]

_LAST_SHARE = 1 / 16  # of the longest window, when all calls are used up


class Proposal(NamedTuple):
    """A sequence to score, and the number of the candidate that it was made from."""

    bases: str
    parent: int | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A scored sequence.

    Attributes:
        number: from 1, in scoring order.
        round: from 0.
        parent: number of the candidate that it was made from; None if drawn whole.
        bases: A, C, G and T.
        values: of every scoring function.
        nats_per_base: mean negative log-likelihood after the prompt.
    """

    number: int
    round: int
    parent: int | None
    bases: str
    values: tuple[float, ...]
    nats_per_base: float

    @property
    def name(self) -> str:
        """Return the name in messages and files."""
        return f"design_{self.number}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """A search with the state that its strategy needs.

    Attributes:
        config: options of the run.
        proposer: draws sequences.
        goals: one for each scoring function.
        checker: of the rules.
        start: a sequence to begin from that satisfies the rules, or None.
    """

    config: DesignConfig
    proposer: Proposer
    goals: tuple[Goal, ...]
    checker: RuleChecker
    start: str | None

    def gains(self, history: Sequence[Candidate]) -> Floats:
        """Return larger-is-better values, (candidates, goals)."""
        return gains([candidate.values for candidate in history], self.goals)


def _draw(search: Search, history: Sequence[Candidate], number: int) -> list[Proposal]:
    first = number * search.config.batch
    samples = range(first, first + search.config.batch)
    return [Proposal(bases) for bases in search.proposer.fresh(samples)]


def _beam(search: Search, history: Sequence[Candidate], number: int) -> list[Proposal]:
    return _redraw_lineages(search, history, number, search.proposer.regrown)


def _infill(search: Search, history: Sequence[Candidate], number: int) -> list[Proposal]:
    return _redraw_lineages(search, history, number, search.proposer.filled)


def _redraw_lineages(
    search: Search, history: Sequence[Candidate], number: int, redraw: Redraw
) -> list[Proposal]:
    """Redraw windows of the best lineages; windows and temperatures shrink as calls are used up."""
    if not history:
        return [Proposal(search.start)] if search.start else _draw(search, history, number)
    done = len(history) / search.config.calls
    initial, final = search.config.initial_temperature, search.config.final_temperature
    temperature = initial + (final - initial) * done
    most_bp = search.proposer.length_bp / 2 * _LAST_SHARE**done
    lineages = best(search.gains(history), search.config.width)
    proposals = []
    for n, lineage in enumerate(lineages):
        parent = history[lineage]
        count = (search.config.batch - n - 1) // len(lineages) + 1
        drawn = redraw(parent.bases, count, (number, n), most_bp, temperature)
        proposals += [Proposal(each, parent.number) for each in drawn]
    return proposals


def _never_done(search: Search, history: Sequence[Candidate]) -> bool:
    return False


def _all(search: Search, history: Sequence[Candidate]) -> list[Candidate]:
    return list(history)


def _accepted(search: Search, history: Sequence[Candidate]) -> list[Candidate]:
    distances = -search.gains(history)
    is_accepted = (distances <= search.config.within).all(axis=1)
    return [history[n] for n in np.flatnonzero(is_accepted).tolist()]


def _has_enough(search: Search, history: Sequence[Candidate]) -> bool:
    if not history:
        return False
    accepted = (candidate.bases for candidate in _accepted(search, history))
    wanted = search.config.num_designs
    return len(far_apart(accepted, search.config.rules.least_edits, wanted)) == wanted


def _no_check(_: object) -> None:
    pass


def _check_targets(goals: Sequence[Goal]) -> None:
    if any(goal.target is None for goal in goals):
        raise UserError(
            "--strategy rejection: give every scoring function a --goal that is a target number"
        )


class Strategy(NamedTuple):
    """A search strategy.

    Attributes:
        propose: from the search, the scored candidates and the round number to proposals; the
            caller drops proposals that are known or break a rule.
        qualified: returns the candidates that count as designs.
        is_done: whether enough candidates qualify before the calls are used up.
        check: raises UserError if the strategy does not support the goals.
        check_proposer: raises UserError if the strategy does not support the model or the length.
    """

    propose: Callable[[Search, Sequence[Candidate], int], list[Proposal]]
    qualified: Callable[[Search, Sequence[Candidate]], list[Candidate]] = _all
    is_done: Callable[[Search, Sequence[Candidate]], bool] = _never_done
    check: Callable[[Sequence[Goal]], None] = _no_check
    check_proposer: Callable[[Proposer], None] = _no_check


STRATEGIES: dict[str, Strategy] = {
    "beam": Strategy(_beam),
    "infill": Strategy(_infill, check_proposer=Proposer.check_both_sides),
    "best_of_n": Strategy(_draw),
    "rejection": Strategy(_draw, _accepted, _has_enough, _check_targets),
}
