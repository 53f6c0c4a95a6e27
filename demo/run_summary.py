"""A training run as numbers: the values that a page draws during or after training."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from carbon.run_folder import Line, RunLines, Values, column, reduced, stretches

_MOST_EVENTS = 100


def told(
    recipe: Mapping[str, Any],
    lines: RunLines,
    last_steps: int,
    columns: Sequence[str],
    most_points: int,
) -> dict[str, Any]:
    """Return the values that a page draws of a run, as JSON values.

    Args:
        recipe: tables of its `config.toml`.
        lines: the lines that it has written so far.
        last_steps: number of last steps to draw; 0 for all.
        columns: columns of its steps to draw as curves.
        most_points: approximate number of points of a curve; each point is the mean of a group of
            steps.

    Returns:
        `model`, `step`, `tokens` and `planned_tokens`; `stages` of the recipe and `switches`, the
        start of each; `points` by column, with `steps_per_point`; `skipped_steps`, `probes`,
        `rounds` of workers, and the last `events`.
    """
    shown = lines.last(last_steps)
    groups = stretches(len(shown.steps), shown.boundaries, most_points)
    last = lines.steps[-1] if lines.steps else {}
    points = _points(shown, groups, columns)
    return {
        "model": str(recipe.get("model", {}).get("preset", "")),
        "step": last.get("step", 0),
        "tokens": last.get("tokens", 0),
        "planned_tokens": sum(stage.get("tokens", 0) for stage in recipe.get("phases", [])),
        "stages": recipe.get("phases", []),
        "switches": [_switch(shown, place) for place in (0, *shown.boundaries) if shown.steps],
        "steps_per_point": max(map(len, groups), default=1),
        "points": {name: _plain_numbers(values) for name, values in points.items()},
        "skipped_steps": [line["step"] for line in shown.steps if "skipped" in line],
        "probes": shown.probes,
        "rounds": [_round(line, lines.steps) for line in shown.rounds],
        "events": [e for e in lines.events if e.get("event") != "save"][-_MOST_EVENTS:],
    }


def _round(line: Line, steps: Sequence[Line]) -> dict[str, Any]:
    """Return the drawn values of a synchronisation round, with the run's tokens at that time."""
    names = ("step", "round", "workers", "cosine", "wait_seconds")
    reached = [n["tokens"] for n in steps if n["step"] <= line["step"]]
    return {name: line.get(name) for name in names} | {"tokens": reached[-1] if reached else 0}


def _switch(lines: RunLines, place: int) -> dict[str, Any]:
    """Return the step, tokens, name and objective of the start of a training phase."""
    return {key: lines.steps[place].get(key) for key in ("step", "tokens", "stage", "objective")}


def _points(lines: RunLines, groups: Sequence[Any], columns: Sequence[str]) -> dict[str, Values]:
    names = ("step", "tokens", *columns)
    points = {name: reduced(column(lines.steps, name), groups) for name in names}
    if any(len(group) > 1 for group in groups):
        norms = column(lines.steps, "gradient_norm")
        points["gradient_norm_most"] = reduced(norms, groups, np.max)
    return points


def _plain_numbers(values: Values) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]
