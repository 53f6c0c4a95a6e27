"""Rounds: who takes which steps of a run, who took part in a meeting, and what follows from it.

All of it follows from the recipe and the records of meetings, and from no clock.
"""

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Protocol

from torch import Tensor

from train.runs.record import Work

_MISSES_TO_LEAVE = 2


@dataclass(frozen=True)
class Plan:
    """The members of all rounds from one on, until another plan.

    A run has one order of global batches, its steps; a round takes the next of them, in turn by the
    members' budgets. The rows, objective and learning rate of a step follow from its number,
    as in a run without learners.

    Attributes:
        round: the first of them.
        first_step: of the run, in that round.
        budgets: steps of each member, by its number.
    """

    round: int
    first_step: int
    budgets: Mapping[int, int]

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

    def budget(self, learner: int, round_: int, total_steps: int) -> int:
        """Return a member's steps in a round; in the last all have as many, and some are left."""
        if self.is_last(round_, total_steps):
            return max(0, total_steps - self.first_of(round_)) // len(self.budgets)
        return self.budgets[learner]

    def step(self, learner: int, round_: int, taken: int, total_steps: int) -> int:
        """Return the step of the run that a member takes after `taken` steps of a round."""
        first = self.first_of(round_)
        if self.is_last(round_, total_steps):
            return first + taken * len(self.budgets) + sorted(self.budgets).index(learner)
        return first + self._places[learner][taken]

    @cached_property
    def _places(self) -> dict[int, list[int]]:
        turns = sorted(
            (Fraction(i, budget), learner)
            for learner, budget in self.budgets.items()
            for i in range(budget)
        )
        places: dict[int, list[int]] = {learner: [] for learner in self.budgets}
        for place, (_, learner) in enumerate(turns):
            places[learner].append(place)
        return places


@dataclass(frozen=True, slots=True)
class Turn:
    """The steps of a member from a place in a round on, as if its plan held for ever."""

    plan: Plan
    learner: int
    round: int
    taken: int
    total_steps: int

    def __iter__(self) -> Iterator[int]:
        """Return numbers of steps of the run."""
        round_, taken = self.round, self.taken
        while True:
            for i in range(taken, self.plan.budget(self.learner, round_, self.total_steps)):
                yield self.plan.step(self.learner, round_, i, self.total_steps)
            if self.plan.is_last(round_, self.total_steps):
                return
            round_, taken = round_ + 1, 0


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerReport:
    """A worker's report on a change of its weights.

    With several fragments, the numbers of all that are sent are added up.

    Attributes:
        learner: its number.
        tokens: predicted since the fragments last met: its weight in the mean.
        steps: taken since then.
        seconds: that these took.
        extra: rounds that it went on alone, for want of a quorum.
        base: what anchor the change is from: the digest of all meetings before.
        sha256: of the file of a mailbox.
    """

    learner: int
    tokens: int
    steps: int
    seconds: float
    extra: int = 0
    base: str = ""
    sha256: str = ""

    @property
    def work(self) -> Work:
        """The training that led to the change."""
        return Work(self.tokens, self.steps, self.seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class Meeting:
    """The record of a synchronisation, from which all workers continue alike.

    Attributes:
        round: that it ended.
        fragments: that met.
        members: who took part, in the order of their numbers, in which changes are summed.
        missed: meetings in a row that members of the plan have missed.
        plan: from round + 1 + rounds that workers begin ahead.
        is_last: of the run.
    """

    round: int
    fragments: tuple[int, ...]
    members: tuple[WorkerReport, ...]
    plan: Plan
    missed: Mapping[int, int] = field(default_factory=dict)
    is_last: bool = False

    def has(self, learner: int) -> bool:
        """Return whether a worker took part."""
        return learner in [told.learner for told in self.members]

    def told(self) -> dict[str, Any]:
        """Return its line in `rounds.jsonl`."""
        return {
            "round": self.round,
            "fragments": list(self.fragments),
            "learners": [told.learner for told in self.members],
            "tokens": [told.tokens for told in self.members],
        }

    def to_table(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return asdict(self)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> "Meeting":
        """Return what `to_table` gave."""
        return cls(
            round=table["round"],
            fragments=tuple(table["fragments"]),
            members=tuple(WorkerReport(**told) for told in table["members"]),
            plan=plan_of(table["plan"]),
            missed={int(number): count for number, count in table["missed"].items()},
            is_last=table["is_last"],
        )


def plan_of(table: Mapping[str, Any]) -> Plan:
    """Return a plan from what JSON holds of it."""
    budgets = {int(number): steps for number, steps in table["budgets"].items()}
    return Plan(table["round"], table["first_step"], budgets)


def first_plan(learners: int, period_steps: int) -> Plan:
    """Return the plan with which a run begins."""
    return Plan(0, 0, dict.fromkeys(range(learners), period_steps))


def fragments_of_round(round_: int, count: int, is_last: bool) -> tuple[int, ...]:
    """Return which fragments meet at the end of a round: one in turn, in the end all."""
    return tuple(range(count)) if is_last else (round_ % count,)


def planned(
    before: Plan,
    round_: int,
    members: Sequence[WorkerReport],
    joiners: Sequence[int],
    missed: Mapping[int, int],
    *,
    period_steps: int,
    by_speed: bool,
) -> tuple[Plan, dict[int, int]]:
    """Return the plan from a round on, and who has missed how many meetings in a row.

    Args:
        before: the plan of the round before it.
        round_: the first of the new plan.
        members: who took part in the newest meeting.
        joiners: who asks to take part.
        missed: after the meeting before.
        period_steps: of a round, for the fastest.
        by_speed: whether slower ones take fewer.
    """
    there = {told.learner for told in members}
    absent = {n: missed.get(n, 0) + 1 for n in before.budgets if n not in there}
    stays = {n: count for n, count in absent.items() if count < _MISSES_TO_LEAVE}
    numbers = sorted({*there, *stays, *joiners})
    budgets = dict.fromkeys(numbers, period_steps)
    speeds = {told.learner: told.steps / told.seconds for told in members if told.seconds}
    if by_speed and speeds:
        fastest = max(speeds.values())
        for number in numbers:
            # Of who was not there the last budget is all that is known.
            share = speeds.get(number, fastest) / fastest
            known = number in speeds or number not in before.budgets
            steps = int(share * period_steps) if known else before.budgets[number]
            budgets[number] = max(1, steps)
    extra = max((told.extra for told in members), default=0)
    first = before.first_of(round_) + extra * before.total
    return Plan(round_, first, budgets), stays


@dataclass(slots=True)
class Flight:
    """A change that is on its way to a meeting.

    Attributes:
        round: at whose end it was sent.
        plan: of that round.
        fragments: that meet.
        is_last: whether the run ends with it.
        told: the report that accompanies it.
        left: steps until this worker applies the result.
        age: steps since it was sent.
    """

    round: int
    plan: Plan
    fragments: tuple[int, ...]
    is_last: bool
    told: WorkerReport
    left: int
    age: int = 0

    def to_table(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return asdict(self)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> "Flight":
        """Return what `to_table` gave."""
        parts = {
            "plan": plan_of(table["plan"]),
            "fragments": tuple(table["fragments"]),
            "told": WorkerReport(**table["told"]),
        }
        return cls(**{**table, **parts})


class Wait(enum.Enum):
    """How long a learner waits for a meeting."""

    NOT = 0
    FOR_A_QUORUM = 1
    """While there is one, or may be one within the grace."""
    FOR_EVER = 2


class ChangesGoneError(Exception):
    """What led to a meeting has been removed from the mailbox: the others are far ahead."""


Change = Mapping[str, Tensor]
"""What a learner's weights have lost since the anchor, by names: decoded, fp32."""


class Transport(Protocol):
    """Carries changes; all processes of a learner call it together.

    Attributes:
        sent_bytes: by this process, since it was made.
        received_bytes: likewise.
    """

    sent_bytes: int
    received_bytes: int

    def send(self, flight: Flight, parts: Mapping[str, Tensor] | None) -> None:
        """Begin to send a change, encoded; None: it was sent before this process was started."""

    def meeting(self, flight: Flight, wait: Wait) -> Meeting | None:
        """Return the meeting of a flight; None: it has not taken place, and waiting is over."""

    def changes(self, meeting: Meeting, names: Sequence[str]) -> list[Change]:
        """Return the members' changes of a meeting, in their order."""

    def flush(self) -> None:
        """Wait until sent changes would outlive this process."""

    def close(self) -> None:
        """Remove everything on this machine."""


class Unsent:
    """Work by fragment of the weights, since each was last sent."""

    def __init__(self, num_fragments: int) -> None:
        """Begin with none."""
        self.works = [Work()] * num_fragments

    def add(self, work: Work) -> None:
        """Count a step, which changes all fragments."""
        self.works = [before + work for before in self.works]

    def take(self, fragments: Sequence[int]) -> Work:
        """Return the work of fragments that are sent, added up; from now on it is none."""
        taken = sum((self.works[number] for number in fragments), Work())
        for number in fragments:
            self.works[number] = Work()
        return taken

    def merge(self, meeting: Meeting, told: WorkerReport, alpha: float) -> int:
        """Count a merge, which overwrites the weights except a share of alpha.

        Work that the meeting has not merged counts by this share: steps since the change
        was sent, and the change itself if the meeting took an earlier one or none.

        Args:
            meeting: whose anchor the weights were replaced by.
            told: the report on the change that was sent last.
            alpha: share of the local weights that the worker keeps.

        Returns:
            Local steps that the weights have lost.
        """
        merged = (each.work for each in meeting.members if each.learner == told.learner)
        left_out = (told.work - sum(merged, Work())).times(1 / len(meeting.fragments))
        num_lost = 0
        for number in meeting.fragments:
            unmerged = self.works[number] + left_out
            self.works[number] = unmerged.times(alpha)
            num_lost = max(num_lost, unmerged.steps - self.works[number].steps)
        return num_lost

    def to_table(self) -> list[dict[str, Any]]:
        """Return what JSON can hold."""
        return [asdict(work) for work in self.works]

    def expect(self, table: Sequence[dict[str, Any]]) -> None:
        """Take what `to_table` gave."""
        self.works = [Work(**work) for work in table]
