"""What a run and a measurement of it leave as JSON, and the few numbers that tell how it went."""

import statistics
from pathlib import Path
from typing import Any

from carbon.errors import ConfigError
from carbon.io.structured import JSON_OBJECT, read_json, read_json_lines

_LAST_STEPS = 20  # of which the loss at the end is the mean


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read a line a step.

    Raises:
        ConfigError: the file is absent, empty or malformed.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; give the folder of a training run")
    lines = [line for _, line in read_json_lines(path, JSON_OBJECT, error=ConfigError)]
    if not lines:
        raise ConfigError(f"{path}: is empty; train first")
    return lines


def read_results(path: Path) -> dict[str, Any]:
    """Read what `python -m eval heldout` has measured, by task.

    Raises:
        ConfigError: the file is absent or malformed.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; run `python -m eval heldout` first")
    return read_json(path, JSON_OBJECT, error=ConfigError, remedy="was it cut off?")


def key_numbers(run: Path, results: Path) -> dict[str, Any]:
    """Return how a run learned and what was measured, without what lies behind the numbers.

    Args:
        run: folder of the run.
        results: of recovery and likelihood, and of variants if there were any.

    Raises:
        ConfigError: a file is absent or malformed.
    """
    measured = read_results(results)
    return {
        **_recovery(measured["sequence_recovery"]),
        **_variants(measured.get("variant_auroc")),
        **_learning(read_metrics(run / "metrics.jsonl")),
        **_likelihood(measured["heldout_likelihood"]),
        "overlap_with_train": measured["overlap_with_train"]["value"],
    }


def _recovery(recovery: dict[str, Any]) -> dict[str, Any]:
    order = recovery["best_markov_order"]
    return {
        "sequence_recovery": recovery["value"],
        "sequence_recovery_interval": _interval(recovery),
        "markov_recovery": recovery["markov"][order]["value"],
        "markov_order": order,
        "recovery_ahead_interval": _interval(recovery["ahead_of_best_markov"]),
    }


def _variants(variants: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "variant_auroc": variants and variants["value"],
        "variant_auroc_interval": variants and _interval(variants),
    }


def _learning(metrics: list[dict[str, Any]]) -> dict[str, Any]:
    nats = [step["nats_per_base"] for step in metrics]
    return {
        "switch_step": next((m["step"] for m in metrics if m["objective"] == "fns"), None),
        "nats_per_base_start": nats[0],
        "nats_per_base_end": statistics.mean(nats[-_LAST_STEPS:]),
    }


def _likelihood(likelihood: dict[str, Any]) -> dict[str, Any]:
    return {
        "heldout_nats_per_base": likelihood["value"],
        "markov_6_nats_per_base": likelihood["markov"][6]["value"],
        "ahead_of_markov_6": likelihood["ahead_of_order_6"]["value"],
        "ahead_of_markov_6_interval": _interval(likelihood["ahead_of_order_6"]),
    }


def _interval(estimate: dict[str, Any]) -> list[float]:
    return [estimate["low"], estimate["high"]]
