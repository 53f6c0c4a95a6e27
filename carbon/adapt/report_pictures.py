"""The pictures of the report of a run."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from carbon.adapt.findings import spoken
from carbon.pages import BLUE, COLOURS, GREY, ORANGE, PAGE_STYLE, axes_of

_MOST_POINTS = 5000  # of more, points hide one another
_MOST_CLASSES_WITH_COUNTS = 12

Json = Mapping[str, Any]


@rc_context(PAGE_STYLE)
def answer_figure(scores: Mapping[str, Json], first: str) -> Figure:
    """Draw the first score of the model and of each baseline, with intervals."""
    known = {name: of[first] for name, of in scores.items() if of[first]["value"] is not None}
    figure, axes = axes_of(8, 0.8 + 0.42 * len(known))
    for place, (name, score) in enumerate(reversed(known.items())):
        colour = BLUE if name == "model" else GREY
        axes.errorbar(
            score["value"], place, xerr=_spread([score]), fmt="o", color=colour, capsize=3
        )
        axes.annotate(
            f"{score['value']:.3f}", (score["value"], place), (0, 6), ha="center", va="bottom",
            color=colour, textcoords="offset points", fontsize=10,
        )  # fmt: skip
    axes.set_yticks(range(len(known)), list(reversed(known)))
    axes.set(xlabel=f"{spoken(first)}, test part", ylim=(-0.5, len(known) - 0.3))
    axes.grid(axis="x", color="#e5e5e5")
    axes.set_axisbelow(True)
    return figure


def _spread(estimates: Sequence[Json]) -> list[list[float]]:
    """Return how far intervals reach below and above, as matplotlib wants it."""
    ends = [
        [e[end] if e[end] is not None else e["value"] for e in estimates] for end in ("low", "high")
    ]
    values = [e["value"] for e in estimates]
    return [
        [max(0.0, v - low) for v, low in zip(values, ends[0], strict=True)],
        [max(0.0, high - v) for v, high in zip(values, ends[1], strict=True)],
    ]


@rc_context(PAGE_STYLE)
def loss_figure(seeds: Sequence[Json]) -> Figure:
    """Draw the loss of what is learned from and of the validation part, a line a seed."""
    figure, axes = axes_of(5.6, 3.4)
    for place, seed in enumerate(seeds):
        steps = [look["step"] for look in seed["looks"]]
        for key, label, colour in (
            ("loss", "train", BLUE),
            ("validation_loss", "validation", ORANGE),
        ):
            values = _numbers(look[key] for look in seed["looks"])
            axes.plot(steps, values, marker=".", color=colour, label=label if not place else None)
    axes.set(xlabel="step", ylabel="loss")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    axes.legend(frameon=False)
    return figure


def _numbers(values: Iterable[float | None]) -> NDArray[np.float64]:
    """Return numbers to draw: NaN, a gap in the line, where one is not defined."""
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


@rc_context(PAGE_STYLE)
def score_figure(seeds: Sequence[Json], first: str) -> Figure:
    """Draw the validation score by step, a line a seed; a ring is the look that was kept."""
    figure, axes = axes_of(5.6, 3.4)
    for seed, colour in zip(seeds, cycle(COLOURS), strict=False):
        steps = [look["step"] for look in seed["looks"]]
        axes.plot(
            steps, _numbers(look["score"] for look in seed["looks"]), marker=".", color=colour,
            label=f"seed {seed['seed']}",
        )  # fmt: skip
        axes.plot(seed["step"], seed["score"], "o", ms=10, mfc="none", mec=colour)
    axes.set(xlabel="step", ylabel=f"{spoken(first)}, validation part")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    if len(seeds) > 1:
        axes.legend(frameon=False)
    return figure


@rc_context(PAGE_STYLE)
def layers_figure(layers: Sequence[Json], kept: int | None, first: str) -> Figure:
    """Draw the validation score of each layer; a ring is the one that was kept."""
    figure, axes = axes_of(5.6, 3.4)
    names = ["last" if layer["layer"] is None else str(layer["layer"]) for layer in layers]
    scores = _numbers(layer["score"] for layer in layers)
    axes.plot(range(len(layers)), scores, marker=".", color=BLUE)
    best = next(n for n, layer in enumerate(layers) if layer["layer"] == kept)
    axes.plot(best, scores[best], "o", ms=10, mfc="none", mec=BLUE)
    step = -(-len(names) // 12)
    axes.set_xticks(range(0, len(names), step), names[::step])
    axes.set(xlabel="states behind layer", ylabel=f"{spoken(first)}, validation part")
    return figure


@rc_context(PAGE_STYLE)
def sizes_figure(sizes: Sequence[Json], first: str, rows: str) -> Figure:
    """Draw the validation score by examples, or whatever rows are, of the train part."""
    figure, axes = axes_of(5.6, 3.4)
    numbers = [size["examples"] for size in sizes]
    axes.plot(numbers, [size["score"] for size in sizes], marker=".", color=BLUE)
    axes.set_xscale("log", base=2)
    axes.set_xticks(numbers, [f"{number:,}" for number in numbers])
    axes.set(xlabel=f"{rows} learned from", ylabel=f"{spoken(first)}, validation part")
    return figure


@rc_context(PAGE_STYLE)
def calibration_figure(bins: Sequence[Json]) -> Figure:
    """Draw how often what was predicted holds, by the probability that was said."""
    figure, axes = axes_of(4.4, 4.2)
    axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=0.8)
    axes.errorbar(
        [each["predicted"] for each in bins], [each["value"] for each in bins],
        yerr=_spread(bins), fmt="o-", color=BLUE, capsize=3,
    )  # fmt: skip
    axes.set(xlabel="probability that was said", ylabel="share that holds", aspect="equal")
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    return figure


@rc_context(PAGE_STYLE)
def confusion_figure(counts: Sequence[Sequence[int]], names: Sequence[str]) -> Figure:
    """Draw of each true class what share is said to be which, with counts of a few classes."""
    table = np.array(counts, dtype=np.float64)
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    size = 2.2 + 0.55 * min(len(names), 16)
    figure, axes = axes_of(size + 0.6, size)
    axes.imshow(shares, vmin=0, vmax=1, cmap="Blues")
    if len(names) <= _MOST_CLASSES_WITH_COUNTS:
        for (row, column), share in np.ndenumerate(shares):
            colour = "white" if share > 0.6 else "black"
            text = f"{int(table[row, column]):,}"
            axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=10)
    is_long = max(map(len, names)) > 4
    axes.set_xticks(range(len(names)), names, rotation=45 if is_long else 0,
                    ha="right" if is_long else "center", parse_math=False)  # fmt: skip
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set(xlabel="said", ylabel="true")
    return figure


@rc_context(PAGE_STYLE)
def numbers_figure(name: str, labels: NDArray[Any], said: NDArray[Any]) -> Figure:
    """Draw what was predicted by what was measured; of many, how many lie where."""
    known = ~(np.isnan(labels) | np.isnan(said))
    labels, said = labels[known], said[known]
    figure, axes = axes_of(4.6, 4.2)
    if len(labels) > _MOST_POINTS:
        axes.hexbin(labels, said, gridsize=50, bins="log", mincnt=1, cmap="viridis")
    else:
        axes.scatter(labels, said, s=8, alpha=0.5, lw=0, color=BLUE)
    axes.axline((float(labels.mean()), float(labels.mean())), slope=1, color=GREY,
                linestyle="--", linewidth=0.8)  # fmt: skip
    axes.set_xlabel(f"{name}, measured", parse_math=False)
    axes.set_ylabel(f"{name}, predicted", parse_math=False)
    return figure


@rc_context(PAGE_STYLE)
def groups_figure(groups: Sequence[Json], shown: Sequence[str], first: str) -> Figure:
    """Draw the first score of each group, of the model and what is shown beside it."""
    figure, axes = axes_of(8, 1.0 + 0.34 * len(groups))
    for number, (name, colour) in enumerate(zip(shown, (BLUE, GREY), strict=False)):
        found = [(place, group["scores"][name]) for place, group in enumerate(reversed(groups))]
        found = [(place, score) for place, score in found if score["value"] is not None]
        axes.errorbar(
            [score["value"] for _, score in found],
            [place + 0.12 - 0.24 * number for place, _ in found],
            xerr=_spread([score for _, score in found]), fmt="o", color=colour, label=name,
        )  # fmt: skip
    labels = [f"{group['group']} ({group['examples']:,})" for group in reversed(groups)]
    axes.set_yticks(range(len(groups)), labels, parse_math=False)
    axes.set(xlabel=f"{spoken(first)}, test part")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure
