"""A step next to `transformers.Trainer`, a save, and the idle share of every schedule."""

import tempfile
from pathlib import Path
from typing import get_args

import bubbles
import training as trials
from measure import Measure

from train.config import ParallelConfig, PipelineScheduleName
from train.planning.plan import idle_share


def measures(quick: bool) -> list[Measure]:
    steps = 5 if quick else 20
    schedules = [
        ParallelConfig(pipeline=2, schedule=name) for name in get_args(PipelineScheduleName)
    ]
    with tempfile.TemporaryDirectory() as folder:
        config = trials.config_of(Path(folder))
        ours, usual = trials.our_speed(config, steps), trials.usual_speed(config, steps)
        visible, whole = trials.save_seconds(config)
        mini = trials.config_of(Path(folder) / "mini", "model.preset=mini")
        shares = bubbles.measured_idle(mini, schedules, 3 if quick else 8)
    found = [
        Measure("tokens_per_second", ours, "tok/s"),
        Measure("transformers_trainer", usual, "tok/s"),
        Measure("against_transformers_trainer", ours / usual, "times", 1.5, ours >= 1.5 * usual),
        Measure("save:visible", 1000 * visible, "ms"),
        Measure("save:whole", 1000 * whole, "ms"),
    ]
    count = trials.BATCH_ROWS // trials.MICROBATCH_ROWS
    for schedule, idle in zip(schedules, shares, strict=True):
        found += _of_schedule(schedule, idle, idle_share(schedule, count))
    return found


def _of_schedule(schedule: ParallelConfig, idle: bubbles.Idle, formula: float) -> list[Measure]:
    """Return the idle share next to the formula, and next to what stages and handovers explain."""
    name, fastest = f"idle:{schedule.schedule}", min(idle.stage_seconds)
    target = 100 * idle.unhidden
    return [
        Measure(name, 100 * idle.measured, "%", target, 100 * idle.measured <= target + 2),
        Measure(f"{name}:formula", 100 * formula, "%"),
        Measure(f"{name}:with_stage_seconds", 100 * idle.uneven, "%"),
        Measure(f"{name}:cut_by_time", 100 * idle.cut_by_time, "%"),
        Measure(f"{name}:slowest_stage", max(idle.stage_seconds) / fastest, "times"),
    ]
