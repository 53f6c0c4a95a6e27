"""Read the folder of a training run, during training or afterwards.

The folder holds `config.toml` (the recipe) and files of JSON lines: steps in `metrics.jsonl`,
periodic evaluations in `probes.jsonl`, events in `events.jsonl`, and synchronisation rounds of
DiLoCo workers in `rounds.jsonl`. docs/training.md and docs/low-communication.md describe them.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NotRequired

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, NonNegativeInt
from typing_extensions import TypedDict

from carbon.errors import ConfigError
from carbon.io.structured import parse_json, read_bytes, read_toml

Line = dict[str, Any]
Values = NDArray[np.float64]

RECIPE = "config.toml"
METRICS, PROBES, EVENTS = "metrics.jsonl", "probes.jsonl", "events.jsonl"
ROUNDS = "rounds.jsonl"
_LOSSES = ("loss", "nats_per_base", "marginal_nats_per_base")


@dataclass(frozen=True, slots=True)
class RunLines:
    """Records of a run, each list in the order of steps.

    Attributes:
        name: name of the folder.
        steps: lines of `metrics.jsonl`; a skipped step has no losses.
        probes: lines of `probes.jsonl`.
        events: lines of `events.jsonl`.
        rounds: lines of `rounds.jsonl`, only for a DiLoCo worker, with `cosine`, the mean over all
            workers, and `sent` and `received`, bytes of this worker since the previous round.
    """

    name: str
    steps: list[Line]
    probes: list[Line]
    events: list[Line]
    rounds: list[Line]

    @property
    def boundaries(self) -> list[int]:
        """Indices in `steps` at which another phase begins."""
        pairs = itertools.pairwise((line["phase"], line["objective"]) for line in self.steps)
        return [i for i, (before, after) in enumerate(pairs, start=1) if before != after]

    def last(self, num_steps: int) -> "RunLines":
        """Return the lines of the last steps; all lines for 0."""
        if not num_steps or not self.steps:
            return self
        first = self.steps[-1]["step"] - num_steps
        steps, probes, rounds = (
            [line for line in lines if line["step"] > first]
            for lines in (self.steps, self.probes, self.rounds)
        )
        return replace(self, steps=steps, probes=probes, rounds=rounds)


def read_lines(run: str | Path, most_lines: int | None = None) -> RunLines:
    """Read the records of a run, which may still be writing.

    An incomplete last line is ignored. If the run was resumed from an earlier checkpoint, lines
    that later lines repeat are ignored, too.

    Args:
        run: folder of the run.
        most_lines: maximum number of lines of each file: of a longer file, every n-th line and the
            last are read.

    Raises:
        ConfigError: a file is malformed.
    """
    run = Path(run)
    steps, probes, events, rounds = (
        _read_file(run / name, most_lines) for name in (METRICS, PROBES, EVENTS, ROUNDS)
    )
    return RunLines(
        name=run.resolve().name,
        steps=[_usable(line) for line in _without_retaken(steps)],
        probes=_without_retaken(probes),
        events=events,
        rounds=_with_sums(rounds),
    )


_MOST_BYTES = 2**32  # ten million lines of metrics
_Number = float | None


class _AnyLine(TypedDict):
    """A line of any file; columns that are not listed pass unchecked."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    step: NonNegativeInt


class _Step(_AnyLine):
    tokens: NonNegativeInt
    phase: str
    objective: str
    loss: NotRequired[_Number]
    nats_per_base: NotRequired[_Number]
    marginal_nats_per_base: NotRequired[_Number]
    gradient_norm: NotRequired[_Number]
    learning_rate: NotRequired[_Number]
    tokens_per_second: NotRequired[_Number]
    mfu: NotRequired[_Number]


class _RewardStep(_AnyLine):
    """A step of RL fine-tuning, which has no phases."""

    reward: _Number


class _Probe(_AnyLine):
    heldout_nats_per_base: NotRequired[_Number]
    heldout_marginal_nats_per_base: NotRequired[_Number]
    recovery: NotRequired[_Number]
    recovery_bf16: NotRequired[_Number]


class _Event(_AnyLine):
    event: str
    message: str


class _Round(_AnyLine):
    cosines: NotRequired[list[float]]
    sent_bytes: NotRequired[NonNegativeInt]
    received_bytes: NotRequired[NonNegativeInt]
    wait_seconds: NotRequired[_Number]
    mean_norm: NotRequired[_Number]


_SCHEMAS: dict[str, Any] = {
    METRICS: _Step | _RewardStep, PROBES: _Probe, EVENTS: _Event, ROUNDS: _Round
}  # fmt: skip


def read_recipe(run: str | Path) -> dict[str, Any]:
    """Return the tables of a run's `config.toml`.

    Raises:
        ConfigError: the file is missing or not TOML.
    """
    path = Path(run) / RECIPE
    try:
        return read_toml(path, ConfigError)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; give the folder of a training run") from None


def column(lines: Sequence[Line], name: str) -> Values:
    """Return one value per line; NaN for missing values and values that are not finite."""
    values = [line.get(name) for line in lines]
    return np.array([math.nan if v is None or not math.isfinite(v) else v for v in values])


def stretches(length: int, boundaries: Sequence[int], most: int) -> list[NDArray[np.int64]]:
    """Divide indices into about `most` equal ranges that do not cross a boundary."""
    width = max(1, -(-length // most))
    parts = np.split(np.arange(length), boundaries)
    return [
        chunk
        for part in parts
        if len(part)
        for chunk in np.array_split(part, -(-len(part) // width))
    ]


def reduced(
    values: Values, groups: Sequence[NDArray[np.int64]], how: Callable[[Values], Any] = np.mean
) -> Values:
    """Return one value per group, from its finite values; NaN without finite values."""
    known = (values[group][np.isfinite(values[group])] for group in groups)
    return np.array([how(part) if len(part) else math.nan for part in known])


def _read_file(path: Path, most_lines: int | None) -> list[Line]:
    """Read a file of JSON objects, without an incomplete last line, which is being written."""
    if not path.exists():
        return []
    content = read_bytes(path, _MOST_BYTES, ConfigError)
    texts = content.splitlines()
    num_whole = len(texts) - (not content.endswith(b"\n"))
    every = -(-len(texts) // most_lines) if most_lines and texts else 1
    lines = []
    for number in range((len(texts) - 1) % every + 1, len(texts) + 1, every):
        try:
            line = parse_json(
                texts[number - 1], f"{path} line {number}", _SCHEMAS[path.name],
                error=ConfigError, remedy="remove the line", finite=False,
            )  # fmt: skip
        except ConfigError:
            if number <= num_whole:
                raise
            continue
        lines.append(dict(line))
    return lines


def _without_retaken(lines: list[Line]) -> list[Line]:
    current: list[Line] = []
    for line in lines:
        while current and current[-1]["step"] >= line["step"]:
            current.pop()
        current.append(line)
    return current


def _usable(line: Line) -> Line:
    """Remove the losses of a skipped step, whose spike would hide all others."""
    return line | dict.fromkeys(_LOSSES) if "skipped" in line else line


def _with_sums(rounds: list[Line]) -> list[Line]:
    """Add to each round the plotted values; byte counts start again with each start of a run."""
    with_sums = []
    before: Line = {}
    for line in rounds:
        since = {name: _since(before, line, f"{name}_bytes") for name in ("sent", "received")}
        cosines = line.get("cosines")
        with_sums.append(line | since | {"cosine": float(np.mean(cosines)) if cosines else None})
        before = line
    return with_sums


def _since(before: Line, line: Line, name: str) -> int:
    then, now = before.get(name, 0), line.get(name, 0)
    return int(now - then if then <= now else now)
