"""A run as its folder tells it: the recipe, and one line a step, a probe, an event."""

import itertools
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carbon.config import load_config
from carbon.errors import ConfigError
from train.config import StageConfig, TrainConfig

Line = dict[str, Any]
Values = NDArray[np.float64]

_LOSSES = ("loss", "nats_per_base", "marginal_nats_per_base")


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a run folder says of its run; each list is in the order of steps."""

    name: str
    config: TrainConfig
    steps: list[Line]
    probes: list[Line]
    events: list[Line]

    @property
    def boundaries(self) -> list[int]:
        """Places in `steps` where another stage begins."""
        pairs = itertools.pairwise((line["stage"], line["objective"]) for line in self.steps)
        return [i for i, (before, after) in enumerate(pairs, start=1) if before != after]


def read_run(run: Path) -> RunRecord:
    """Read a run folder; it may be of a run that is still going.

    Raises:
        ConfigError: there is no config.toml, or a file of it is malformed.
    """
    return RunRecord(
        name=run.resolve().name,
        config=load_config(TrainConfig, run / "config.toml"),
        steps=[_usable(line) for line in _without_retaken(_read_lines(run / "metrics.jsonl"))],
        probes=_without_retaken(_read_lines(run / "probes.jsonl")),
        events=_read_lines(run / "events.jsonl"),
    )


def _read_lines(path: Path) -> list[Line]:
    """Read a file of JSON objects; a last line that is cut off is still being written."""
    if not path.is_file():
        return []
    texts = path.read_text(encoding="utf-8").splitlines()
    lines = []
    for number, text in enumerate(texts, start=1):
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError as error:
            if number < len(texts):
                raise ConfigError(f"{path} line {number}: is not valid JSON ({error})") from None
    return lines


def _without_retaken(lines: list[Line]) -> list[Line]:
    """Leave out what a later line takes back by returning to its step or one before it."""
    kept: list[Line] = []
    for line in lines:
        while kept and kept[-1]["step"] >= line["step"]:
            kept.pop()
        kept.append(line)
    return kept


def _usable(line: Line) -> Line:
    """Take the losses out of a step that was skipped: a spike would hide all others."""
    return line | dict.fromkeys(_LOSSES) if "skipped" in line else line


def column(lines: Sequence[Line], name: str) -> Values:
    """Return one value a line; NaN where there is none, or none that is finite."""
    values = [line.get(name) for line in lines]
    return np.array([math.nan if v is None or not math.isfinite(v) else v for v in values])


def results_of(record: RunRecord) -> list[tuple[str, int, float]]:
    """Return the last finite value of each measure, with its name and its step."""
    found = []
    for label, lines, name in (
        ("nats per base of training rows, chain", record.steps, "nats_per_base"),
        ("nats per base of training rows, marginals", record.steps, "marginal_nats_per_base"),
        ("held-out nats per base, chain", record.probes, "heldout_nats_per_base"),
        ("held-out nats per base, marginals", record.probes, "heldout_marginal_nats_per_base"),
        ("sequence recovery in fp32", record.probes, "recovery"),
        ("sequence recovery in bf16", record.probes, "recovery_bf16"),
    ):
        values = column(lines, name)
        if len(known := np.flatnonzero(np.isfinite(values))):
            found.append((label, int(lines[known[-1]]["step"]), float(values[known[-1]])))
    return found


def recipe_rows(record: RunRecord) -> list[tuple[str, ...]]:
    """Return the recipe as a table: settings down, stages across, their names first."""
    stages = record.config.stages
    taken = Counter(line["stage"] for line in record.steps)
    if len({stage.name for stage in stages}) < len(stages):
        taken.clear()  # lines of stages of one name cannot be told apart
    columns = [_settings(stage, taken) for stage in stages]
    return [
        (setting, *(cells[setting] for cells in columns))
        for setting in columns[0]
        if any(cells[setting] for cells in columns)
    ]


def _settings(stage: StageConfig, taken: Counter[str]) -> dict[str, str]:
    rate, schedule = f"{stage.learning_rate:g}", str(stage.schedule)
    if stage.schedule in ("linear", "cosine") or stage.decay_steps:
        rate += f" to {stage.final_learning_rate:g}"
    if stage.warmup_steps:
        schedule += f", {stage.warmup_steps:,} steps of warm-up"
    if stage.decay_steps:
        schedule += f", {stage.decay_steps:,} of decay"
    weights = " to ".join(f"{weight:g}" for weight in stage.fns_weight)
    parts = (f"{part.steps:,} steps of {part.context_tokens:,}" for part in stage.length_warmup)
    return {
        "stage": stage.name,
        "objective": stage.objective,
        "weight of FNS": weights,
        "tokens": f"{stage.tokens:,}",
        "steps": f"{stage.num_steps:,}",
        "steps taken": f"{taken[stage.name]:,}" if taken else "",
        "mixture": ", ".join(f"{source} {share:g}" for source, share in stage.mixture.items()),
        "tokens a row": f"{stage.context_tokens:,}",
        "shorter rows first": ", ".join(parts),
        "rows a batch": f"{stage.batch_rows:,}",
        "learning rate": rate,
        "schedule": schedule,
        "RoPE theta": f"{stage.rope_theta:,.0f}",
        "ends early by": "" if stage.until == "tokens" else stage.until.replace("_", " "),
    }
