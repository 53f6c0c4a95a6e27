"""Stages that fit into a time: a short run of them is timed, and each keeps its share."""

import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from carbon.run_folder import read_lines
from train.config import TrainConfig

Settings = dict[str, Any]
"""From a key of the configuration, such as `stages.0.tokens`, to its value."""

_TIMED_STEPS = 16  # of each stage
_STEPS_TO_WARM_UP = 2


def timed_speed(config: TrainConfig, train: Callable[[Settings], None]) -> float:
    """Return the median speed of a short run's steps, in tokens a second.

    Args:
        config: of the run.
        train: runs that configuration with such settings; called once, for a few steps.
    """
    tokens = [_TIMED_STEPS * stage.batch_tokens for stage in config.stages]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        train(_settings_of(config, tokens) | {"output": str(run)})
        steps = read_lines(run).steps[_STEPS_TO_WARM_UP:]
    return float(statistics.median(step["tokens_per_second"] for step in steps))


def shared_out(config: TrainConfig, tokens: int) -> Settings:
    """Return tokens and warm-ups of the stages, which together have so many tokens."""
    total = sum(stage.tokens for stage in config.stages)
    return _settings_of(config, [tokens * stage.tokens // total for stage in config.stages])


def _settings_of(config: TrainConfig, tokens: Sequence[int]) -> Settings:
    """Return settings of stages of so many tokens; a warm-up takes a quarter of one at most."""
    settings = {}
    for number, (stage, count) in enumerate(zip(config.stages, tokens, strict=True)):
        steps = -(-count // stage.batch_tokens)
        settings[f"stages.{number}.tokens"] = count
        settings[f"stages.{number}.warmup_steps"] = min(stage.warmup_steps, steps // 4)
    return settings
