"""How several trainings of one model, far from each other, become one."""

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from carbon.config import OneOf, check, check_choices
from train.choices.codecs import CODEC_CHOICES
from train.choices.guard_policies import GUARD_POLICIES

FEW_MEETINGS = 120
"""Of each weight: below so many the plain mean learned more than momentum (docs/lab-book.md)."""
_MOST = 1_000_000
_BOUNDS: dict[str, tuple[float, float]] = {
    "count": (0, 1024),
    "number": (0, 1023),
    "every_steps": (1, _MOST),
    "learning_rate": (1e-6, 10),
    "momentum": (0, 0.9999),
    "momentum_every": (1, _MOST),
    "momentum_warmup_rounds": (0, _MOST),
    "fragments": (1, _MOST),
    "delay_steps": (0, _MOST),
    "alpha": (0, 0.9999),  # with 1 learners would never meet
    "quorum": (0, 1024),
    "grace_seconds": (0, 30 * 24 * 3600),
    "anchor_every": (1, _MOST),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnersConfig:
    """Learners train apart, and meet now and then (docs/low-communication.md).

    At a meeting the mean change of their weights is the gradient of an outer optimizer, SGD with
    Nesterov's momentum, whose weights, the anchor, are the model (DiLoCo, arXiv 2311.08105).
    """

    count: int = 0
    """Learners that begin together; 0: an ordinary run. Each has a run folder of its own in
    `output`."""
    mailbox: str = ""
    """Folder, or URL that fsspec opens, through which learners of separate launches meet; if empty,
    all learners are processes of one launch."""
    number: int = 0
    """With a mailbox: which learner this launch is, from 0; one that joins later may have any
    number that no other has."""
    every_steps: int = 100
    """Steps of a learner between two meetings over the same weight."""
    learning_rate: float = 0.7
    """Of the outer optimizer: the one to tune; best is about 0.4 for one learner, 0.8 for eight."""
    momentum: float = 0.9
    momentum_every: int = 1
    """Meetings between two changes of the momentum (delayed Nesterov, arXiv 2401.09135), for
    meetings of few learners of many."""
    momentum_warmup_rounds: int = 0
    """First meetings, which change the momentum each time."""
    fragments: int = 1
    """Parts of the weights, each of which has meetings of its own (arXiv 2501.18512)."""
    delay_steps: int = 0
    """Steps that a learner goes on with while its change is on the way."""
    alpha: float = 0.0
    """Share of a learner's own weights in what it goes on with after a meeting; 0: the anchor."""
    codec: Annotated[str, OneOf(CODEC_CHOICES)] = "int8"
    """In which numbers changes are sent."""
    quorum: int = 0
    """Least learners of a meeting; 0: more than half of `count`. With fewer each goes on alone."""
    grace_seconds: float = 60.0
    """How long a learner that is ready waits for others than those of the quorum."""
    by_speed: bool = False
    """Slow learners take fewer steps between meetings, so that all are ready together."""
    anchor_every: int = 10
    """Meetings between two copies of the anchor in the mailbox, with which learners can join;
    changes that are older than the last but one are removed there."""

    def __post_init__(self) -> None:
        check_choices(self)
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            check(least <= value <= most, f"learners.{name} = {value}: give {least} to {most}")
        check(
            self.every_steps % self.fragments == 0,
            f"learners.every_steps = {self.every_steps}: give a multiple of fragments = "
            f"{self.fragments}",
        )
        check(
            self.delay_steps <= self.every_steps,
            f"learners.delay_steps = {self.delay_steps}: give every_steps = {self.every_steps} at "
            "most",
        )
        check(
            self.quorum <= max(self.count, 1),
            f"learners.quorum = {self.quorum}: give count = {self.count} at most, or 0",
        )
        check(
            bool(self.mailbox) or not (self.number or self.by_speed),
            "learners.number and learners.by_speed are for learners with a mailbox; in one launch "
            "all take as many steps",
        )
        check(
            self.count > 0 or not (self.mailbox or self.number),
            "learners.count = 0: say how many learners begin together",
        )

    def check_run(self, guard_policy: str, ends_of_stages: list[str]) -> None:
        """Refuse what one learner would do without the others.

        Raises:
            ConfigError: the guard goes back in time, or a stage ends by what one learner sees.
        """
        goes_back = GUARD_POLICIES[guard_policy].goes_back
        check(
            not (self.count and goes_back),
            f"guard.policy = {guard_policy!r}: a learner cannot go back behind a meeting; give "
            "'skip' or 'stop'",
        )
        check(
            not self.count or set(ends_of_stages) <= {"tokens"},
            "learners: stages end at the same place for all of them: set until = 'tokens'",
        )

    def alike(self) -> "LearnersConfig":
        """Return what all learners of a run must have alike."""
        mailbox = "mailbox" if self.mailbox else ""
        return replace(self, mailbox=mailbox, number=0, grace_seconds=0.0)

    def folder(self, output: str, in_launch: int | None = None) -> str:
        """Return the run folder of a learner, or of the run if there is but one.

        Args:
            output: of the recipe, or of the record of it in a learner's folder.
            in_launch: which learner of this launch; None: the one of the record, else the first.
        """
        if self.count <= 1 and not self.mailbox:
            return output
        recorded = re.fullmatch(r"learner-(\d+)", Path(output).name)
        of_run = Path(output).parent if recorded else Path(output)
        if in_launch is None:
            in_launch = int(recorded[1]) if recorded else 0
        return f"{of_run}/learner-{self.number if self.mailbox else in_launch}"

    def meetings_of(self, num_steps: int) -> int:
        """Return how often each weight meets in a run of so many steps, which learners share."""
        return math.ceil(num_steps / (self.count * self.every_steps))

    def advice(self, num_steps: int) -> str:
        """Return what to change for a run of so many steps, in a line; empty: nothing."""
        meetings = self.meetings_of(num_steps) if self.count else 0
        if not self.momentum or not 0 < meetings < FEW_MEETINGS:
            return ""
        return (
            f"learners: each weight meets {meetings} times, which is few for outer momentum; the "
            "plain mean (momentum = 0, learning_rate = 1) learned more in runs as short"
        )

    @property
    def in_one_launch(self) -> int:
        """Learners of this launch."""
        return 1 if self.mailbox else max(self.count, 1)

    def processes_of_each(self, world_size: int) -> int:
        """Return how many of a launch's processes a learner has.

        Raises:
            ConfigError: they cannot be divided.
        """
        processes, left = divmod(world_size, self.in_one_launch)
        check(
            not left,
            f"learners.count = {self.count}: {world_size} processes are no multiple of it; change "
            "one of them",
        )
        return processes

    @property
    def least(self) -> int:
        """Learners that a meeting takes."""
        return self.quorum or self.count // 2 + 1

    @property
    def period_steps(self) -> int:
        """Steps between two meetings over whatever weight: a round."""
        return self.every_steps // self.fragments

    @property
    def rounds_ahead(self) -> int:
        """Rounds that a learner begins before the meeting at the end of an earlier one is over."""
        return -(-self.delay_steps // self.period_steps)
