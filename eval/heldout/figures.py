"""The pictures of the report on a training run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from carbon.losses.objectives import StageObjective
from eval.drawing import BLUE, GREEN, GREY, INK, ORANGE, axes_of

_POINTS = 150


@dataclass(frozen=True, slots=True)
class Change:
    """The first step under another objective."""

    step: int
    before: StageObjective
    after: StageObjective


def loss_figure(metrics: list[dict[str, Any]], changes: Sequence[Change]) -> Figure:
    """Draw nats per base, chain and marginals, against the step; mark changes of the objective."""
    figure, axes = axes_of(8.5, 3.8)
    steps = np.array([m["step"] for m in metrics], dtype=float)
    for name, label, colour in (
        ("nats_per_base", "chain (likelihood of the sequence)", BLUE),
        ("marginal_nats_per_base", "marginals (what FNS trains)", ORANGE),
    ):
        values = np.array([m[name] for m in metrics])
        axes.plot(_smooth(steps, changes), _smooth(values, changes), color=colour, label=label)
    for place, change in enumerate(changes):
        axes.axvline(change.step - 0.5, color=GREY, linestyle="--")
        # One below the other, three times: neighbours would write over each other.
        text = place % 3 * "\n" + f" {change.before.short} to {change.after.short}"
        axes.text(change.step, axes.get_ylim()[1], text, va="top", color=GREY, parse_math=False)
    axes.set(xlabel="step", ylabel="nats per base")
    axes.legend(frameon=False)
    return figure


def _smooth(values: NDArray[np.float64], changes: Sequence[Change]) -> NDArray[np.float64]:
    """Take means of equal stretches; none reaches over a change of the objective."""
    parts = np.split(values, [change.step - 1 for change in changes])
    width = max(1, len(values) // _POINTS)
    means = []
    for part in parts:
        num_means = max(1, len(part) // width)
        means += [chunk.mean() for chunk in np.array_split(part, num_means)]
    return np.array(means)


def recovery_figure(recovery: dict[str, Any]) -> Figure:
    """Draw recovery of the model, token and base mode, and of every Markov order."""
    figure, axes = axes_of(8.5, 3.4)
    bars = [("model", recovery, BLUE), ("model,\nbase mode", recovery["base_mode"], GREEN)]
    bars += [(f"Markov\n{k}", m, GREY) for k, m in enumerate(recovery["markov"])]
    for place, (_, bar, colour) in enumerate(bars):
        axes.bar(place, bar["value"], color=colour, width=0.7)
        spread = [[bar["value"] - bar["low"]], [bar["high"] - bar["value"]]]
        axes.errorbar(place, bar["value"], yerr=spread, color=INK, capsize=3)
        axes.text(place, bar["high"] + 0.01, f"{bar['value']:.2f}", ha="center", va="bottom")
    axes.set_xticks(range(len(bars)), [label for label, _, _ in bars])
    axes.set(ylabel="bases recovered", ylim=(0, min(1.05, axes.get_ylim()[1] + 0.08)))
    return figure


def roc_figure(variants: dict[str, Any]) -> Figure:
    """Draw the receiver operating characteristic."""
    figure, axes = axes_of(4.6, 4.4)
    roc = variants["roc"]
    label = f"model, AUROC {variants['value']:.2f}"
    axes.plot(roc["false_positive"], roc["true_positive"], color=BLUE, label=label)
    axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", label="chance")
    axes.set(xlabel="controls called damaging", ylabel="damaging called damaging", aspect="equal")
    axes.legend(frameon=False, loc="lower right")
    return figure
