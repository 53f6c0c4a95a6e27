"""Idle time of pipelines; used by `bench/run.py train` and tests.

A recorded step is replayed with the mean time of each action and stage. The replay shows what
uneven stages cost.
"""

import itertools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch.distributed.pipelining import PipelineStage

from tests.helpers.ranks import run_ranks
from train.config import ParallelConfig, TrainConfig
from train.planning.pipeline import stages_per_rank


class Action(NamedTuple):
    """One computation of a schedule.

    Attributes:
        kind: `F` forward, `B` backward, or its two parts: `I` for inputs, `W` for weights.
        stage: pipeline stage.
        microbatch: its number.
    """

    kind: str
    stage: int
    microbatch: int

    @property
    def result(self) -> "Action":
        """Key under which other actions find what this one computes: `B` includes `I`."""
        return self._replace(kind="I") if self.kind == "B" else self

    def needs(self, num_stages: int) -> "Action | None":
        """Return the action that must precede this one; None for the forward pass of stage 0."""
        if self.kind == "F":
            return self._replace(stage=self.stage - 1) if self.stage else None
        if self.kind == "W":
            return self._replace(kind="I")
        if self.stage + 1 < num_stages:
            return Action("I", self.stage + 1, self.microbatch)
        return self._replace(kind="F")


Timed = tuple[Action, float, float]
"""An action with its start and end, in seconds."""

Step = list[list[Timed]]
"""The actions of a step, a list a rank, in order of time."""


def replayed(
    table: Sequence[Sequence[Action]], num_stages: int, seconds: Callable[[Action], float]
) -> Step:
    """Return a step of a schedule in which each rank starts an action as early as it can.

    Args:
        table: actions of each rank, in their order.
        num_stages: pipeline stages of all ranks.
        seconds: the time that an action takes.

    Raises:
        ValueError: the schedule waits for itself.
    """
    ends: dict[Action, float] = {}
    step: Step = [[] for _ in table]
    while any(len(taken) < len(actions) for taken, actions in zip(step, table, strict=True)):
        before = len(ends)
        for taken, actions in zip(step, table, strict=True):
            for action in actions[len(taken) :]:
                needed = action.needs(num_stages)
                if needed and needed not in ends:
                    break
                start = max(taken[-1][2] if taken else 0.0, ends[needed] if needed else 0.0)
                taken.append((action, start, start + seconds(action)))
                ends[action.result] = taken[-1][2]
        if len(ends) == before:
            raise ValueError("the schedule waits for itself")
    return step


def idle_share(step: Step) -> float:
    """Return the share of a step, over all ranks, in which a rank computes nothing."""
    first = min(start for of_rank in step for _, start, _ in of_rank)
    last = max(end for of_rank in step for _, _, end in of_rank)
    busy = sum(end - start for of_rank in step for _, start, end in of_rank)
    return 1 - busy / (len(step) * (last - first))


class Idle(NamedTuple):
    """Idle shares of one schedule.

    Attributes:
        measured: median over steps.
        uneven: of a replay with the mean time of each kind of action and stage.
        stage_seconds: mean seconds of a microbatch in each stage, forward and backward.
    """

    measured: float
    uneven: float
    stage_seconds: list[float]


def idle_of(steps: Sequence[Step], num_stages: int) -> Idle:
    """Return the idle shares of recorded steps of one schedule."""
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    for action, start, end in itertools.chain.from_iterable(itertools.chain.from_iterable(steps)):
        times[action.kind, action.stage].append(end - start)
    mean = {of: statistics.fmean(taken) for of, taken in times.items()}
    table = [[action for action, _, _ in of_rank] for of_rank in steps[0]]
    return Idle(
        measured=statistics.median(map(idle_share, steps)),
        uneven=idle_share(replayed(table, num_stages, lambda action: mean[action[:2]])),
        stage_seconds=[
            sum(seconds for (_, of), seconds in mean.items() if of == stage)
            for stage in range(num_stages)
        ],
    )


def measured_idle(config: TrainConfig, schedules: list[ParallelConfig], num: int) -> list[Idle]:
    """Train a few steps of each schedule on two processes, and return its idle shares."""
    of_ranks = run_ranks(2, _recorded, config, schedules, num, limit_seconds=1200)
    return [
        idle_of(
            [list(step) for step in zip(*of_schedule, strict=True)],
            parallel.pipeline * stages_per_rank(parallel),
        )
        for parallel, *of_schedule in zip(schedules, *of_ranks, strict=True)
    ]


def _recorded(
    ranks: Any, config: TrainConfig, schedules: list[ParallelConfig], num: int
) -> list[list[list[Timed]]]:
    """Return the actions of this rank in each step of each schedule, after one to warm up."""
    import torch.distributed as dist

    from train.distributed.mesh import ranks_of_group
    from train.trainer import Trainer

    actions: list[Timed] = []

    def record(method: str, kind_of: Callable[..., str]) -> None:
        work = getattr(PipelineStage, method)

        def timed(stage: PipelineStage, microbatch: int, *arguments: Any, **more: Any) -> Any:
            start = time.time()
            result = work(stage, microbatch, *arguments, **more)
            action = Action(kind_of(**more), stage.stage_index, microbatch)
            actions.append((action, start, time.time()))
            return result

        setattr(PipelineStage, method, timed)

    record("forward_one_chunk", lambda **_: "F")
    record("backward_one_chunk", lambda full_backward=True, **_: "B" if full_backward else "I")
    record("backward_weight_one_chunk", lambda **_: "W")
    results = []
    for parallel in schedules:
        one = config.replace(parallel=parallel)
        steps = Trainer(one, ranks_of_group(ranks.device, parallel)).steps()
        of_steps = []
        for _ in range(num + 1):
            actions.clear()
            dist.barrier()
            next(steps)
            of_steps.append(list(actions))
        results.append(of_steps[1:])
    return results
