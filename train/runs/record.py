"""A run read from its folder: the recipe, and a line for each step, evaluation and event."""

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from carbon.losses.objectives import objective_named
from carbon.run_folder import RECIPE, RunLines, column, read_lines
from train.config import PhaseConfig, TrainConfig
from train.schedule import RATE_SCHEDULES
from train.watch import PHASE_ENDS

HELDOUT_OF = "heldout_nats_per_base_of_"
"""What opens the names of the probe's measures of `probe.also`."""


@dataclass(frozen=True, slots=True)
class RunRecord(RunLines):
    """The lines of a run folder, with its recipe."""

    config: TrainConfig


def read_run(run: Path) -> RunRecord:
    """Read a run folder; it may be of a run that is still going.

    Raises:
        ConfigError: config.toml is missing, or a file is malformed.
    """
    config = TrainConfig.load(run / RECIPE)
    lines = read_lines(run)
    given = {field.name: getattr(lines, field.name) for field in fields(lines)}
    return RunRecord(**given, config=config)


def results_of(record: RunRecord) -> list[tuple[str, int, float]]:
    """Return the last finite value of each measure, with its name and its step."""
    found = []
    for label, lines, name in (
        ("nats per base of training rows, chain", record.steps, "nats_per_base"),
        ("nats per base of training rows, marginals", record.steps, "marginal_nats_per_base"),
        ("held-out nats per base, chain", record.probes, "heldout_nats_per_base"),
        ("held-out nats per base, marginals", record.probes, "heldout_marginal_nats_per_base"),
        *(
            (f"held-out nats per base of {name}", record.probes, f"{HELDOUT_OF}{name}")
            for name in record.config.probe.also
        ),
        ("sequence recovery in fp32", record.probes, "recovery"),
        ("sequence recovery in bf16", record.probes, "recovery_bf16"),
    ):
        values = column(lines, name)
        if len(known := np.flatnonzero(np.isfinite(values))):
            found.append((label, int(lines[known[-1]]["step"]), float(values[known[-1]])))
    return found


def objective_changes(record: RunRecord) -> list[str]:
    """Return a sentence for each change of the objective, in the order of steps."""
    pairs = itertools.pairwise(record.steps)
    return [
        f"At step {after['step']:,} the objective changes from {_label(before)} to {_label(after)}."
        for before, after in pairs
        if before["objective"] != after["objective"]
    ]


def _label(line: Mapping[str, Any]) -> str:
    return objective_named(line["objective"]).label


def beginning(config: TrainConfig) -> str:
    """Describe the initial network, and which part of it is trained."""
    model = config.model
    if not model.start:
        return f"Preset {model.preset}"
    trained = {
        "whole": "all of it trained",
        "lora": f"adapters of rank {model.lora_rank} trained, on {', '.join(model.lora_targets)}",
        "last": f"its last {model.last_layers} layers trained",
    }
    return f"Begun as {Path(model.start).name}, {trained[model.tune]}"


def recipe_rows(record: RunRecord) -> list[tuple[str, ...]]:
    """Return the recipe as a table: settings down, phases across, their names first."""
    phases = record.config.phases
    taken = Counter(line["phase"] for line in record.steps)
    if len({phase.name for phase in phases}) < len(phases):
        taken.clear()  # lines of phases of one name cannot be distinguished
    columns = [_settings(phase, taken) for phase in phases]
    return [
        (setting, *(cells[setting] for cells in columns))
        for setting in columns[0]
        if any(cells[setting] for cells in columns)
    ]


def _settings(phase: PhaseConfig, taken: Counter[str]) -> dict[str, str]:
    rate = f"{phase.learning_rate:g}"
    schedule: str = phase.schedule
    falling = RATE_SCHEDULES[phase.schedule]
    if falling.falls and (phase.decay_steps or not falling.has_decay_steps):
        rate += f" to {phase.final_learning_rate:g}"
    if phase.warmup_steps:
        schedule += f", {phase.warmup_steps:,} steps of warm-up"
    if phase.decay_steps:
        schedule += f", {phase.decay_steps:,} of decay"
    weights = " to ".join(f"{weight:g}" for weight in phase.fns_weight)
    parts = (f"{part.steps:,} steps of {part.context_tokens:,}" for part in phase.length_warmup)
    return {
        "phase": phase.name,
        "objective": phase.objective,
        "weight of FNS": weights,
        "tokens": f"{phase.tokens:,}",
        "steps": f"{phase.num_steps:,}",
        "steps taken": f"{taken[phase.name]:,}" if taken else "",
        "mixture": ", ".join(f"{source} {share:g}" for source, share in phase.mixture.items()),
        "tokens a row": f"{phase.context_tokens:,}",
        "shorter rows first": ", ".join(parts),
        "rows a batch": f"{phase.batch_rows:,}",
        "learning rate": rate,
        "schedule": schedule,
        "RoPE theta": f"{phase.rope_theta:,.0f}",
        "ends early by": PHASE_ENDS[phase.until].label,
    }


@dataclass(frozen=True, slots=True)
class Work:
    """The training that led to a change of the weights, or to a model.

    Attributes:
        tokens: predicted.
        steps: taken.
        seconds: that these took.
    """

    tokens: int = 0
    steps: int = 0
    seconds: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        """Return both together."""
        return Work(
            self.tokens + other.tokens, self.steps + other.steps, self.seconds + other.seconds
        )

    def __sub__(self, other: "Work") -> "Work":
        """Return the difference to another."""
        return self + Work(-other.tokens, -other.steps, -other.seconds)

    def times(self, share: float) -> "Work":
        """Return a share of it, tokens and steps rounded."""
        return Work(round(self.tokens * share), round(self.steps * share), self.seconds * share)
