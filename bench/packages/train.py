"""A step beside `transformers.Trainer`, a save, and the idle share of every schedule."""

import tempfile
from pathlib import Path
from typing import get_args

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
        shares = trials.idle_shares(mini, schedules, 3 if quick else 8)
    found = [
        Measure("tokens_per_second", ours, "tok/s"),
        Measure("transformers_trainer", usual, "tok/s"),
        Measure("against_transformers_trainer", ours / usual, "times", 1.5, ours >= 1.5 * usual),
        Measure("save:visible", 1000 * visible, "ms"),
        Measure("save:whole", 1000 * whole, "ms"),
    ]
    count = trials.BATCH_ROWS // trials.MICROBATCH_ROWS
    for schedule, share in zip(schedules, shares, strict=True):
        expected = idle_share(schedule, count)
        holds = abs(share - expected) <= 0.1 * expected
        found.append(Measure(f"idle:{schedule.schedule}", 100 * share, "%", 100 * expected, holds))
    return found
