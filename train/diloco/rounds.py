"""Synchronisation rounds: who takes which steps, who took part, and which plan follows.

All of it follows from the recipe and the records of rounds, and from no clock.
"""

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

from pydantic import TypeAdapter
from torch import Tensor

from train.runs.record import Work

_MISSES_TO_LEAVE = 2

PseudoGradient = Mapping[str, Tensor]
"""Outer parameters minus a worker's, by name: decoded, fp32."""


class Tabled:
    """A dataclass that JSON can hold."""

    def to_table(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Self:
        """Return what `to_table` gave.

        Raises:
            ValidationError: the table is of another kind.
        """
        return TypeAdapter(cls).validate_python(table)


@dataclass(frozen=True)
class Plan(Tabled):
    """The members of all rounds from one on, until another plan.

    A run has one order of global batches, its steps; a round takes the next of them, in turn by the
    members' budgets. The rows, objective and learning rate of a step follow from its number,
    as in a run without workers.

    Attributes:
        round: the first of them.
        first_step: of the run, in that round.
        budgets: steps of each member, by its number.
    """

    round: int
    first_step: int
    budgets: Mapping[int, int]

    @classmethod
    def first(cls, workers: int, period_steps: int) -> Self:
        """Return the plan with which a run begins."""
        return cls(0, 0, dict.fromkeys(range(workers), period_steps))

    @cached_property
    def total(self) -> int:
        """Steps of all members in a round."""
        return sum(self.budgets.values())

    def first_of(self, round_: int) -> int:
        """Return the first step of a round."""
        return self.first_step + (round_ - self.round) * self.total

    def is_last(self, round_: int, total_steps: int) -> bool:
        """Return whether fewer steps of a run remain after a round than it has members."""
        return self.first_of(round_) + self.total + len(self.budgets) > total_steps

    def budget(self, worker: int, round_: int, total_steps: int) -> int:
        """Return a member's steps in a round; in the last all have as many, and some are left."""
        if self.is_last(round_, total_steps):
            return max(0, total_steps - self.first_of(round_)) // len(self.budgets)
        return self.budgets[worker]

    def step(self, worker: int, round_: int, taken: int, total_steps: int) -> int:
        """Return the step of the run that a member takes after `taken` steps of a round."""
        first = self.first_of(round_)
        if self.is_last(round_, total_steps):
            return first + taken * len(self.budgets) + sorted(self.budgets).index(worker)
        return first + self._places[worker][taken]

    @cached_property
    def _places(self) -> dict[int, list[int]]:
        turns = sorted(
            (Fraction(i, budget), worker)
            for worker, budget in self.budgets.items()
            for i in range(budget)
        )
        places: dict[int, list[int]] = {worker: [] for worker in self.budgets}
        for place, (_, worker) in enumerate(turns):
            places[worker].append(place)
        return places


@dataclass(frozen=True, slots=True)
class Turn:
    """The steps of a member from a place in a round on, as if its plan held for ever."""

    plan: Plan
    worker: int
    round: int
    taken: int
    total_steps: int

    def __iter__(self) -> Iterator[int]:
        """Return numbers of steps of the run."""
        round_, taken = self.round, self.taken
        while True:
            for i in range(taken, self.plan.budget(self.worker, round_, self.total_steps)):
                yield self.plan.step(self.worker, round_, i, self.total_steps)
            if self.plan.is_last(round_, self.total_steps):
                return
            round_, taken = round_ + 1, 0


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerReport(Tabled):
    """A worker's report on its pseudo-gradient.

    With several fragments, the numbers of all that are sent are added up.

    Attributes:
        worker: its number.
        tokens: predicted since the fragments were last sent: its weight in the mean.
        steps: taken since then.
        seconds: that these took.
        extra: rounds that it went on alone, for want of a quorum.
        base: digest of the outer parameters that the pseudo-gradient starts from.
        sha256: of the file in a shared store.
    """

    worker: int
    tokens: int
    steps: int
    seconds: float
    extra: int = 0
    base: str = ""
    sha256: str = ""

    @property
    def work(self) -> Work:
        """The training that led to the pseudo-gradient."""
        return Work(self.tokens, self.steps, self.seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundRecord(Tabled):
    """The record of a synchronisation round, from which all workers continue alike.

    Attributes:
        round: its number.
        fragments: that are synchronised at its end.
        members: reports of those who took part, in the order of their numbers; pseudo-gradients are
            summed in this order.
        missed: rounds in a row that members of the plan have missed.
        plan: from round + 1 + rounds that workers begin ahead.
        is_last: of the run.
    """

    round: int
    fragments: tuple[int, ...]
    members: tuple[WorkerReport, ...]
    plan: Plan
    missed: Mapping[int, int] = field(default_factory=dict)
    is_last: bool = False

    def has(self, worker: int) -> bool:
        """Return whether a worker took part."""
        return worker in [report.worker for report in self.members]


def plan_after(
    before: Plan,
    round_: int,
    members: Sequence[WorkerReport],
    joiners: Sequence[int] = (),
    missed: Mapping[int, int] | None = None,
    *,
    period_steps: int,
    by_speed: bool = False,
) -> tuple[Plan, dict[int, int]]:
    """Return the plan from a round on, and how many rounds in a row each absent worker has missed.

    Args:
        before: the plan of the round before it.
        round_: the first of the new plan.
        members: reports of those who took part in the newest round.
        joiners: workers that request to take part.
        missed: the second result of the round before.
        period_steps: of a round, for the fastest.
        by_speed: whether slower ones take fewer.
    """
    present, missed = {report.worker for report in members}, missed or {}
    absent = {n: missed.get(n, 0) + 1 for n in before.budgets if n not in present}
    stays = {n: count for n, count in absent.items() if count < _MISSES_TO_LEAVE}
    numbers = sorted({*present, *stays, *joiners})
    budgets = dict.fromkeys(numbers, period_steps)
    speeds = {report.worker: report.steps / report.seconds for report in members if report.seconds}
    if by_speed and speeds:
        fastest = max(speeds.values())
        for number in numbers:
            # Of an absent worker the last budget is all that is known.
            is_known = number in speeds or number not in before.budgets
            steps = int(speeds.get(number, fastest) / fastest * period_steps)
            budgets[number] = max(1, steps) if is_known else before.budgets[number]
    extra = max((report.extra for report in members), default=0)
    return Plan(round_, before.first_of(round_) + extra * before.total, budgets), stays


@dataclass(slots=True)
class Exchange(Tabled):
    """A pseudo-gradient that was sent, and whose round is not applied yet.

    Attributes:
        round: at whose end it was sent.
        plan: of that round.
        fragments: that it is of.
        is_last: whether the run ends with it.
        report: that accompanies it.
        left: steps until this worker applies the result.
        age: steps since it was sent.
    """

    round: int
    plan: Plan
    fragments: tuple[int, ...]
    is_last: bool
    report: WorkerReport
    left: int
    age: int = 0


class Wait(enum.Enum):
    """How long a worker waits for a round."""

    NOT = 0
    FOR_A_QUORUM = 1
    """While there is one, or may be one within the grace."""
    FOR_EVER = 2


class PseudoGradientsGoneError(Exception):
    """Pseudo-gradients of a round were removed from the shared store: the others are far ahead."""
