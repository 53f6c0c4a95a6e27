"""Folders of training runs that nobody trained: a recipe of two phases, and lines of steps."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

RECIPE = """
output = "elsewhere"
seed = 3
[model]
preset = "tiny"
[data]
corpus = "corpus"
microbatch_tokens = 512
[[phases]]
name = "{first}"
objective = "ce"
tokens = 40_960
mixture = {{ eukaryote = 0.75, mrna = 0.25 }}
context_tokens = 256
batch_rows = 4
learning_rate = 3e-3
schedule = "wsd"
warmup_steps = 4
until = "gradient_norm"
[[phases]]
name = "second"
objective = "blend"
fns_weight = [0.5, 0.9]
tokens = 20_480
mixture = {{ eukaryote = 0.5, mrna = 0.5 }}
context_tokens = 512
batch_rows = 2
length_warmup = [{{ context_tokens = 64, steps = 5 }}]
learning_rate = 1e-3
schedule = "linear"
final_learning_rate = 1e-4
"""  # 40 steps and 20


def step_line(step: int, first: str = "first", switch: int = 40, **changes: Any) -> dict[str, Any]:
    """Return the line of a step in `metrics.jsonl`; the second phase begins after `switch`."""
    phase, objective = (first, "ce") if step <= switch else ("second", "blend")
    return {
        "step": step, "tokens": 1024 * step, "phase": phase, "objective": objective,
        "context_tokens": 256, "loss": 8.0 if step <= switch else 1.3,
        "nats_per_base": 1.4 - step / 1000, "marginal_nats_per_base": 1.4 - step / 2000,
        "learning_rate": 1e-3, "gradient_norm": 1 / step, "tokens_per_second": 2048.0, "mfu": None,
    } | changes  # fmt: skip


def skipped_line(step: int) -> dict[str, Any]:
    """Return the line of a step whose loss was not a number."""
    nothing = dict.fromkeys(("loss", "nats_per_base", "marginal_nats_per_base", "gradient_norm"))
    return step_line(step, skipped="the loss is nan", **nothing)


def probe_line(step: int) -> dict[str, Any]:
    """Return the line of a probe in `probes.jsonl`."""
    return {
        "step": step, "tokens": 1024 * step, "heldout_nats_per_base": 1.41,
        "heldout_marginal_nats_per_base": 1.42, "recovery": 0.30 + step / 1000,
        "recovery_bf16": 0.29 + step / 1000,
    }  # fmt: skip


def write_run(
    folder: Path,
    steps: Iterable[Mapping[str, Any]] = (),
    probes: Iterable[Mapping[str, Any]] = (),
    events: Iterable[Mapping[str, Any]] = (),
    first: str = "first",
) -> Path:
    """Write the folder of a training run, without the files that have no line; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(RECIPE.format(first=first))
    for name, lines in (("metrics", steps), ("probes", probes), ("events", events)):
        if text := "".join(f"{json.dumps(line)}\n" for line in lines):
            (folder / f"{name}.jsonl").write_text(text)
    return folder
