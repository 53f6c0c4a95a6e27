"""Fit a recipe's tokens into a training time: `python -m train.planning.time_budget`.

A few steps are timed, and every phase keeps its share of the tokens.
"""

import argparse
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from carbon.console import Parser, natural, run_command
from carbon.errors import UserError
from carbon.io.files import atomic_file
from carbon.progress import say
from carbon.run_folder import read_lines
from train.config import TrainConfig

Settings = dict[str, Any]
"""From a key of the configuration, such as `phases.0.tokens`, to its value."""

FEW_TOKENS = 3_000_000
"""On yeast, 1.1 million tokens gave a worse and 5.5 million a better model than order-6 Markov."""
_TIMED_STEPS = 16  # of each phase
_STEPS_TO_WARM_UP = 2


def main(argv: list[str] | None = None) -> int:
    """Write a recipe that trains for a given time; return the exit code."""
    parser = Parser(prog="python -m train.planning.time_budget", description=__doc__)
    parser.add_argument("--config", required=True, help="TOML file of the run")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    parser.add_argument("--minutes", type=float, required=True, help="to train")
    parser.add_argument("--processes", type=natural, default=1, help="that train (default: 1)")
    parser.add_argument("--output", type=Path, required=True, help="TOML file to write")
    return run_command(lambda: _run(parser.parse_args(argv)))


def _run(arguments: argparse.Namespace) -> None:
    minutes = arguments.minutes
    if not 0 < minutes < math.inf:
        raise UserError(f"--minutes {minutes:g}: give more than 0")
    config = TrainConfig.load(arguments.config, arguments.overrides)
    say(f"timing {_TIMED_STEPS * len(config.phases)} steps of training")
    speed = timed_speed(config, arguments.processes)
    tokens = int(speed * minutes * 60)
    say(f"{speed:,.0f} tokens per second: {tokens:,} tokens in {minutes:g} minutes")
    if tokens < FEW_TOKENS:
        say(
            f"warning: with fewer than {FEW_TOKENS:,} tokens the model hardly beats a Markov model "
            "of order 6; train for more minutes"
        )
    settings = [*arguments.overrides, *words_of(shared_out(config, tokens))]
    fitted = TrainConfig.load(arguments.config, settings)
    with atomic_file(arguments.output) as temporary:
        temporary.write_text(fitted.to_toml(), encoding="utf-8")


def timed_speed(config: TrainConfig, processes: int) -> float:
    """Return the median speed of a short run's steps, in tokens per second.

    Raises:
        UserError: the run fails.
    """
    tokens = [_TIMED_STEPS * phase.batch_tokens for phase in config.phases]
    with tempfile.TemporaryDirectory() as folder:
        run, recipe = Path(folder) / "run", Path(folder) / "recipe.toml"
        recipe.write_text(config.to_toml(), encoding="utf-8")
        settings = _settings_of(config, tokens) | {"output": str(run)}
        command = [
            *(sys.executable, "-m", "train.launch", "--standalone"),
            *("--nproc-per-node", str(processes), "-m", "train", "--config", str(recipe)),
            *(word for each in words_of(settings) for word in ("--set", each)),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise UserError(f"timing a few steps failed: {lines[-1].removeprefix('error: ')}")
        steps = read_lines(run).steps[_STEPS_TO_WARM_UP:]
    return float(statistics.median(step["tokens_per_second"] for step in steps))


def shared_out(config: TrainConfig, tokens: int) -> Settings:
    """Return the phases' tokens and warm-up steps for a total number of tokens."""
    total = sum(phase.tokens for phase in config.phases)
    return _settings_of(config, [tokens * phase.tokens // total for phase in config.phases])


def _settings_of(config: TrainConfig, tokens: Sequence[int]) -> Settings:
    """Return settings for phases of these tokens; at most a quarter of a phase is warm-up."""
    settings = {}
    for number, (phase, count) in enumerate(zip(config.phases, tokens, strict=True)):
        steps = -(-count // phase.batch_tokens)
        settings[f"phases.{number}.tokens"] = count
        settings[f"phases.{number}.warmup_steps"] = min(phase.warmup_steps, steps // 4)
    return settings


def words_of(settings: Settings) -> list[str]:
    """Return settings as `key=value`."""
    return [f"{key}={value}" for key, value in settings.items()]


if __name__ == "__main__":
    sys.exit(main())
