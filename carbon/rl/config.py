"""What is asked of reward tuning, checked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypedDict

from carbon.design.functions import Function
from carbon.errors import UserError

_MOST = 10**6


class TuneOptions(TypedDict, total=False):
    """The fields of `TuneTask`, as keyword arguments; what is not given has its default."""

    length_bp: int
    prompt: str
    tags: Sequence[str]
    goals: Sequence[str | float]
    steps: int
    group: int
    kl: float
    rate: float
    rank: int
    probe_steps: int
    seed: int
    most_stale: int
    timeout_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneTask:
    """What is asked for.

    Attributes:
        length_bp: of a sample; whole 6-mers.
        prompt: DNA before every sample, which conditions it; whole 6-mers.
        tags: metadata tags to condition on.
        goals: of each oracle `most`, `least` or a number to aim at; the most of all if none.
        steps: of learning; each draws a group.
        group: samples that a step compares with one another.
        kl: weight of the divergence from the start.
        rate: of learning, which falls to 0 in a line.
        rank: of the adapters.
        probe_steps: from one file of samples, and one checkpoint, to the next.
        seed: of samples and adapters.
        most_stale: rounds that the weights may be old that workers draw with.
        timeout_seconds: for a group, and for the start of an oracle's process.

    Raises:
        UserError: a value makes no sense.
    """

    length_bp: int
    prompt: str = ""
    tags: Sequence[str] = ()
    goals: Sequence[str | float] = ()
    steps: int = 200
    group: int = 16
    kl: float = 0.04
    rate: float = 1e-4
    rank: int = 16
    probe_steps: int = 20
    seed: int = 0
    most_stale: int = 2
    timeout_seconds: float = 600.0

    def __post_init__(self) -> None:
        from carbon.tokenizer import K  # and numpy with it, which help does not need

        least = {"length": (self.length_bp, K), "steps": (self.steps, 1), "group": (self.group, 2)}
        more = {"rank": (self.rank, 1), "probe": (self.probe_steps, 1), "seed": (self.seed, 0)}
        more |= {"stale": (self.most_stale, 0)}
        for name, (number, fewest) in (least | more).items():
            if not fewest <= number <= _MOST:
                raise UserError(f"{name} {number}: give {fewest} to {_MOST:,}")
        for name, length_bp in (("length", self.length_bp), ("prompt", len(self.prompt))):
            if length_bp % K:
                raise UserError(f"{name} of {length_bp} bp: give a multiple of {K}, whole {K}-mers")
        if set(self.prompt.upper()) - set("ACGT"):
            raise UserError("the prompt: give bases A, C, G and T alone")
        if not 0 <= self.kl < math.inf:
            raise UserError(f"kl {self.kl}: give 0 or more")
        if not 0 < self.rate < math.inf:
            raise UserError(f"rate {self.rate}: give more than 0")
        if not self.timeout_seconds > 0:
            raise UserError(f"timeout {self.timeout_seconds}: give more than 0 seconds")


class TuneJob(NamedTuple):
    """What to write.

    Attributes:
        model: as it was named.
        oracles: `NAME=KIND:WHAT` or `KIND:WHAT`, or callables.
        task: what is asked for.
        output: folder to write.
        on_cpu: leave a GPU alone.
        resume: go on with what an earlier run left.
        has_workers: whether workers draw, and not the learner itself.
        vllm: address of a vLLM server that draws for the workers; "" if they draw themselves.
    """

    model: str
    oracles: Sequence[str | Function]
    task: TuneTask
    output: Path
    on_cpu: bool = False
    resume: bool = False
    has_workers: bool = False
    vllm: str = ""
