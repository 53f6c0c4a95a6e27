"""Stages that fit into a time: a short run of them is timed, and each keeps its share."""

import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from carbon.console import say
from carbon.run_folder import read_lines
from train.config import TrainConfig

Settings = dict[str, Any]
"""From a key of the configuration, such as `stages.0.tokens`, to its value."""

_TIMED_STEPS = 8  # of each stage
_STEPS_TO_WARM_UP = 2


def settings_in_time(
    config: TrainConfig, seconds: float, train: Callable[[Settings], None]
) -> Settings:
    """Return tokens and warm-ups with which all stages together take so long, and say how many.

    Args:
        config: of the run.
        seconds: for all steps.
        train: runs that configuration with such settings; called once, for a few steps.
    """
    speed = _tokens_per_second(config, train)
    total = sum(stage.tokens for stage in config.stages)
    tokens = [int(speed * seconds * stage.tokens / total) for stage in config.stages]
    say(f"{speed:,.0f} tokens a second: {sum(tokens):,} tokens in the time there is")
    return _settings_of(config, tokens)


def _tokens_per_second(config: TrainConfig, train: Callable[[Settings], None]) -> float:
    """Return the median speed of a short run's steps."""
    tokens = [_TIMED_STEPS * stage.batch_tokens for stage in config.stages]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        train(_settings_of(config, tokens) | {"output": str(run)})
        steps = read_lines(run).steps[_STEPS_TO_WARM_UP:]
    return float(statistics.median(step["tokens_per_second"] for step in steps))


def _settings_of(config: TrainConfig, tokens: Sequence[int]) -> Settings:
    """Return settings of stages of so many tokens; a warm-up takes a quarter of one at most."""
    settings = {}
    for number, (stage, count) in enumerate(zip(config.stages, tokens, strict=True)):
        steps = -(-count // stage.batch_tokens)
        settings[f"stages.{number}.tokens"] = count
        settings[f"stages.{number}.warmup_steps"] = min(stage.warmup_steps, steps // 4)
    return settings
