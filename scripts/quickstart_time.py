"""How long a quickstart takes: what is planned, and when it will be done.

A machine's speed is that of the training, in tokens a second. What the other steps do is counted in
tokens that could be trained instead, so that they take longer where training does.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carbon.run_folder import RECIPE, read_lines
from train.config import TrainConfig
from train.schedule import Schedule

if TYPE_CHECKING:
    from quickstart_steps import Step

OWN_GENOME_MINUTES = 20.0
FEW_TOKENS = 3_000_000
"""On yeast 1.1 million tokens were behind an order-6 Markov model, and 5.5 million before it."""
TIMED_STEPS = 20
_STEPS_TO_WARM_UP = 2
# A step of the quickstart loads its libraries: 4 s at 10,000 tokens a second. To read a token is a
# third of training it, and takes up to half of the time: one process shares its work less well.
_START_TOKENS = 40_000
_READ_TOKEN = 0.5
# Of the time asked for: what is kept as slack, and what training gets at least.
_SLACK = 0.05
_LEAST_TRAINING_SHARE = 0.4


def planned(minutes: float | None, tokens_are_set: bool) -> str:
    """Say before anything runs how long it will take."""
    if minutes is not None:
        return f"about {minutes:g} minutes; --minutes changes that"
    if tokens_are_set:
        return "--set says how many tokens are trained; after the first steps you are told how long"
    return "about seven minutes on two cores that do nothing else; --minutes changes that"


def tokens_in_time(speed: float, minutes: float, seconds_so_far: float, rest_tokens: float) -> int:
    """Return how many tokens can be trained so that everything takes so many minutes.

    Args:
        speed: tokens a second.
        minutes: for everything.
        seconds_so_far: that are gone.
        rest_tokens: what comes after the training, counted in tokens.
    """
    left = speed * (minutes * 60 - seconds_so_far) * (1 - _SLACK) - rest_tokens
    return int(max(left, speed * minutes * 60 * _LEAST_TRAINING_SHARE))


def warning(tokens: int, minutes: float) -> str:
    """Say what to expect of a model of so few tokens; nothing where they are enough."""
    if tokens >= FEW_TOKENS:
        return ""
    is_default = minutes < OWN_GENOME_MINUTES
    remedy = f"--minutes {OWN_GENOME_MINUTES:g} is the default" if is_default else "more --minutes"
    return (
        f"fewer than {FEW_TOKENS:,} tokens: the model will hardly beat counting (a Markov model of "
        f"order 6); {remedy}" + ("" if is_default else " make a better one")
    )


def rest_tokens(steps: Sequence["Step"], counts: Mapping[str, Any], context_tokens: int) -> float:
    """Return what steps take, counted in tokens that could be trained instead."""
    read: int = sum(counts[step.counts] * step.windows for step in steps if step.counts)
    return len(steps) * _START_TOKENS + read * context_tokens * _READ_TOKEN


def speed_of(run: Path, steps_before: int = 0) -> float | None:
    """Return tokens a second of a run's newest steps, None while too few are timed.

    Args:
        run: its folder.
        steps_before: that were taken before this start.
    """
    if not (run / RECIPE).exists():
        return None
    steps = read_lines(run).steps[steps_before + _STEPS_TO_WARM_UP :]
    if len(steps) < TIMED_STEPS:
        return None
    return float(statistics.median(s["tokens_per_second"] for s in steps[-TIMED_STEPS:]))


def tokens_left(run: Path) -> int:
    """Return how many tokens a run has still to read."""
    tokens = Schedule(TrainConfig.load(run / RECIPE)).total_tokens
    return tokens - int(read_lines(run).steps[-1]["tokens"])


def done_at(seconds: float, minutes_so_far: float, now: float | None = None) -> str:
    """Say when all will be done."""
    minutes = minutes_so_far + seconds / 60
    clock = time.strftime("%H:%M", time.localtime((now or time.time()) + seconds))
    return f"done at about {clock} ({minutes:.0f} minutes in all)"


def offer(minutes: float) -> str:
    """Say how to have it in less than so many minutes, nothing where they are few."""
    half = max(2, round(minutes / 2))
    if minutes < 4:
        return ""
    return f"; for less: Ctrl-C, then the same with --minutes {half} (the training begins anew)"
