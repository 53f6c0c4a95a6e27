"""The HTML report and the model card of a run, and the figures of the report."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from carbon import __version__
from carbon.finetune.config import METHODS, SPLITS
from carbon.finetune.folder import ADAPTER
from carbon.finetune.metrics import SCORES
from carbon.finetune.results import (
    MOST_SCORES,
    Findings,
    Row,
    number_text,
    read_predictions,
    score_label,
)
from carbon.io.files import atomic_file
from carbon.reports.card import card_front
from carbon.reports.figures import BLUE, COLOURS, GREY, LINE, ORANGE, PAGE_STYLE, axes_of, svg_of
from carbon.reports.render import render_card, render_page

REPORT, CARD = "report.html", "README.md"
_MOST_NUMBERS, _MOST_CLASSES, _MOST_NAMES, _MOST_CARD_SCORES = 6, 40, 20, 20
_MOST_POINTS = 5000  # more points overlap
_MOST_CLASSES_WITH_COUNTS = 12

Json = Mapping[str, Any]


def write_pages(folder: Path, run: Findings) -> tuple[Path, Path]:
    """Write report and card into the folder of a run, and the card of an adapter.

    Returns:
        The paths of `report.html` and `README.md`.
    """
    task_type = run.manifest.task.task_type
    context = _context(run)
    front = card_front("carbon-dna", task_type.pipeline)
    pages = {
        folder / REPORT: _page(folder, run, context),
        folder / CARD: render_card("finetune.md", front=front, **context),
    }
    front = card_front("peft", "feature-extraction")
    for member in run.manifest.members or ("",):
        if (adapter := folder / member / ADAPTER).is_dir():
            pages[adapter / CARD] = render_card("finetune_adapter.md", front=front)
    for path, text in pages.items():
        with atomic_file(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return folder / REPORT, folder / CARD


def _context(run: Findings) -> dict[str, Any]:
    """Return the variables that page and card share."""
    method = run.manifest.method
    lengths_bp = sorted(set(run.results["lengths_bp"].values()))
    return {
        "run": run,
        "task": run.manifest.task,
        "method": method,
        "method_text": METHODS[method],
        "members": run.manifest.members,
        "split": run.config.data.split,
        "splits": list(SPLITS),
        "version": __version__,
        "predictors": list(run.results["test"]),
        "minus": [f"minus {name}" for name in run.results["model_minus"]],
        "lengths": " to ".join(f"{bp:,}" for bp in lengths_bp),
        "most_scores": MOST_SCORES,
        "most_card_scores": _MOST_CARD_SCORES,
        "most_names": _MOST_NAMES,
    }


def _page(folder: Path, run: Findings, context: Mapping[str, Any]) -> str:
    small = (
        f"Carbon {__version__}. Brackets are 95 % intervals by bootstrap, "
        f"{run.results['drawn_together']} drawn whole. The test split was measured once."
    )
    tested = run.results["test"]["model"]
    scores = (SCORES[name] for name in dict.fromkeys(name.partition("[")[0] for name in tested))
    return render_page(
        "finetune.html",
        run.name,
        small,
        figures=_figures(folder, run),
        first_label=score_label(run.first),
        lower_is_better=[score.label for score in scores if not score.higher_is_better],
        more_scores=len(tested) - MOST_SCORES,
        seeds=_seed_rows(run),
        worst=_worst(run),
        **context,
    )


def _seed_rows(run: Findings) -> list[Row]:
    """Return seed, selected step and validation score of each seed; nothing for a probe."""
    if run.manifest.method == "probe":
        return []
    return [
        (str(seed["seed"]), f"{seed['step']:,}", number_text(seed["score"]))
        for seed in run.results["seeds"]
    ]


def _worst(run: Findings) -> dict[str, Any]:
    """Return the table of the worst examples."""
    worst = run.results["details"]["worst"]
    has_groups = any(each["group"] for each in worst)
    group = ("group",) if has_groups else ()
    rows = [
        (
            each["name"],
            *((each["group"],) if has_groups else ()),
            f"{each['bases']:,}",
            *_example_cells(run, each),
            number_text(each["loss"]),
            each["begins"],
        )
        for each in worst
    ]
    header = ("name", *group, "bp", *_example_header(run), "loss", "begins with")
    return {"rows": rows, "header": header}


def _example_header(run: Findings) -> Row:
    task = run.manifest.task
    if task.per_base:
        return ()
    names = "" if task.task_type.one_column else f" ({', '.join(task.names[:_MOST_NUMBERS])})"
    return f"label{names}", "predicted"


def _example_cells(run: Findings, example: dict[str, Any]) -> Row:
    """Return label and prediction of an example; nothing for a label of every base."""
    task = run.manifest.task
    if task.per_base:
        return ()
    if not task.task_type.one_column:
        return _values(example["label"]), _values(example["prediction"])
    outputs = example["prediction"]
    probabilities = outputs if len(outputs) > 1 else [1 - outputs[0], outputs[0]]
    most = max(range(len(probabilities)), key=lambda n: probabilities[n])
    label = task.names[int(example["label"][0])]
    return label, f"{task.names[most]} ({probabilities[most]:.3f})"


def _values(values: Sequence[float | None]) -> str:
    few = ["unknown" if v is None else number_text(v) for v in values[:_MOST_NUMBERS]]
    return ", ".join(few) + (", ..." if len(values) > len(few) else "")


class Picture(NamedTuple):
    """A figure of the page, as SVG, and its caption."""

    svg: Markup
    caption: str = ""


def _picture(figure: Figure, caption: str = "") -> Picture:
    return Picture(Markup(svg_of(figure)), caption)


def _figures(folder: Path, run: Findings) -> dict[str, list[Picture]]:
    """Return the figures of each section."""
    groups = run.results["details"]["groups"]
    predictors = [name for name in ("model", run.best_baseline()) if name]
    caption = "The largest groups of the test split, and their examples."
    by_group = [_picture(groups_figure(groups, predictors, run.first), caption)] if groups else []
    return {
        "answer": [_picture(answer_figure(run.results["test"], run.first))],
        "training": _probe_figures(run) if run.manifest.method == "probe" else _step_figures(run),
        "predictions": _prediction_figures(folder, run),
        "groups": by_group,
    }


def _step_figures(run: Findings) -> list[Picture]:
    """Return loss and score by step."""
    loss = "Loss; of the train split the mean since the previous validation, with dropout if any."
    score = "Score of the validation split; a circle marks the selected step."
    seeds = run.results["seeds"]
    return [_picture(loss_figure(seeds), loss), _picture(score_figure(seeds, run.first), score)]


def _probe_figures(run: Findings) -> list[Picture]:
    """Return the score by layer, and by share of the train split."""
    seed, figures = run.results["seeds"][0], []
    rows = f"{run.manifest.k}-mers" if run.manifest.task.per_base else "examples"
    if len(seed["layers"]) > 1:
        figure = layers_figure(seed["layers"], seed["layer"], run.first)
        figures.append(_picture(figure, "By layer; a circle marks the selected one."))
    if len(seed["sizes"]) > 1:
        caption = f"By {rows} of the train split, at the selected layer."
        figures.append(_picture(sizes_figure(seed["sizes"], run.first, rows), caption))
    return figures


def _prediction_figures(folder: Path, run: Findings) -> list[Picture]:
    """Return confusion and calibration, or predicted by measured values."""
    details, task = run.results["details"], run.manifest.task
    figures = []
    if (counts := details["confusion"]) and len(task.names) <= _MOST_CLASSES:
        caption = "Confusion: the predicted share of each class, by true class."
        figures.append(_picture(confusion_figure(counts, task.names), caption))
    if calibration := details["calibration"]:
        caption = (
            f"Calibration of {task.task_type.certainty}, in ten bins of equal size. "
            f"Their mean distance from the line is {calibration['error']:.3f}."
        )
        curves = {"": calibration["bins"]}
        if before := details["uncalibrated"]:
            method = run.config.task.calibration
            caption += f" Before the recalibration ({method}) it is {before['error']:.3f}."
            curves = {method: calibration["bins"], "before": before["bins"]}
        figures.append(_picture(calibration_figure(curves), caption))
    if task.task_type.is_number and not task.per_base:
        labels, predictions = read_predictions(folder, run)
        columns = zip(task.names, labels.T, predictions.T, strict=True)
        figures += [_picture(numbers_figure(*column)) for column in list(columns)[:_MOST_NUMBERS]]
    return figures


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
    axes.set(xlabel=f"{score_label(first)}, test split", ylim=(-0.5, len(known) - 0.3))
    axes.grid(axis="x", color=LINE)
    axes.set_axisbelow(True)
    return figure


def _spread(estimates: Sequence[Json]) -> list[list[float]]:
    """Return the distances from values to interval ends, below and above, for matplotlib."""
    ends = [
        [e[end] if e[end] is not None else e["value"] for e in estimates] for end in ("low", "high")
    ]
    values = [e["value"] for e in estimates]
    return [
        [max(0.0, v - low) for v, low in zip(values, ends[0], strict=True)],
        [max(0.0, high - v) for v, high in zip(values, ends[1], strict=True)],
    ]


class Curve(NamedTuple):
    """A line of a figure; None is a gap in it.

    Attributes:
        x: abscissae.
        y: ordinates.
        colour: of the line.
        label: of the legend; None for no entry.
        circled: a point to mark.
    """

    x: Sequence[float]
    y: Sequence[float | None]
    colour: str = BLUE
    label: str | None = None
    circled: tuple[float, float] | None = None


@rc_context(PAGE_STYLE)
def _curves_figure(curves: Iterable[Curve], xlabel: str, ylabel: str) -> tuple[Figure, Any]:
    """Draw lines with points, and a legend if a line has a label; return figure and axes."""
    figure, axes = axes_of(5.6, 3.4)
    for curve in curves:
        y = np.array([np.nan if value is None else value for value in curve.y], dtype=np.float64)
        axes.plot(curve.x, y, marker=".", color=curve.colour, label=curve.label)
        if curve.circled:
            axes.plot(*curve.circled, "o", ms=10, mfc="none", mec=curve.colour)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False)
    return figure, axes


def _by_step(curves: Iterable[Curve], ylabel: str) -> Figure:
    figure, axes = _curves_figure(curves, "step", ylabel)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    return figure


def _column(rows: Sequence[Json], key: str) -> list[Any]:
    return [row[key] for row in rows]


def loss_figure(seeds: Sequence[Json]) -> Figure:
    """Draw training and validation loss, a line for each seed."""
    lines = (("loss", "train", BLUE), ("validation_loss", "validation", ORANGE))
    curves = [
        Curve(_column(steps, "step"), _column(steps, key), colour, None if number else label)
        for number, steps in enumerate(_column(seeds, "validations"))
        for key, label, colour in lines
    ]
    return _by_step(curves, "loss")


def score_figure(seeds: Sequence[Json], first: str) -> Figure:
    """Draw the validation score by step, a line for each seed; a circle marks the selected step."""
    curves = [
        Curve(
            _column(seed["validations"], "step"),
            _column(seed["validations"], "score"),
            colour,
            f"seed {seed['seed']}" if len(seeds) > 1 else None,
            (seed["step"], seed["score"]),
        )
        for seed, colour in zip(seeds, cycle(COLOURS), strict=False)
    ]
    return _by_step(curves, f"{score_label(first)}, validation split")


def layers_figure(layers: Sequence[Json], selected: int | None, first: str) -> Figure:
    """Draw the validation score of each layer; a circle marks the selected layer."""
    names = ["last" if layer["layer"] is None else str(layer["layer"]) for layer in layers]
    scores = _column(layers, "score")
    best = _column(layers, "layer").index(selected)
    curve = Curve(range(len(layers)), scores, circled=(best, scores[best]))
    ylabel = f"{score_label(first)}, validation split"
    figure, axes = _curves_figure([curve], "states after layer", ylabel)
    step = -(-len(names) // 12)
    axes.set_xticks(range(0, len(names), step), names[::step])
    return figure


def sizes_figure(sizes: Sequence[Json], first: str, rows: str) -> Figure:
    """Draw the validation score by number of training rows."""
    numbers = _column(sizes, "examples")
    curve = Curve(numbers, _column(sizes, "score"))
    ylabel = f"{score_label(first)}, validation split"
    figure, axes = _curves_figure([curve], f"{rows} of the train split", ylabel)
    axes.set_xscale("log", base=2)
    axes.set_xticks(numbers, [f"{number:,}" for number in numbers])
    return figure


@rc_context(PAGE_STYLE)
def calibration_figure(curves: Mapping[str, Sequence[Json]]) -> Figure:
    """Draw the observed share by predicted probability, a line for the bins of each label."""
    figure, axes = axes_of(4.4, 4.2)
    axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=0.8)
    for (label, bins), colour in zip(curves.items(), (BLUE, GREY), strict=False):
        axes.errorbar(
            [each["predicted"] for each in bins], [each["value"] for each in bins],
            yerr=_spread(bins), fmt="o-", color=colour, capsize=3, label=label,
        )  # fmt: skip
    if len(curves) > 1:
        axes.legend(frameon=False)
    axes.set(xlabel="predicted probability", ylabel="observed share", aspect="equal")
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    return figure


@rc_context(PAGE_STYLE)
def confusion_figure(counts: Sequence[Sequence[int]], names: Sequence[str]) -> Figure:
    """Draw the predicted shares of each true class, with counts if there are few classes."""
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
    axes.set(xlabel="predicted", ylabel="true")
    return figure


@rc_context(PAGE_STYLE)
def numbers_figure(name: str, labels: NDArray[Any], predictions: NDArray[Any]) -> Figure:
    """Draw predicted by measured values; densities if there are many."""
    known = ~(np.isnan(labels) | np.isnan(predictions))
    labels, predictions = labels[known], predictions[known]
    figure, axes = axes_of(4.6, 4.2)
    if len(labels) > _MOST_POINTS:
        axes.hexbin(labels, predictions, gridsize=50, bins="log", mincnt=1, cmap="viridis")
    else:
        axes.scatter(labels, predictions, s=8, alpha=0.5, lw=0, color=BLUE)
    axes.axline((float(labels.mean()), float(labels.mean())), slope=1, color=GREY,
                linestyle="--", linewidth=0.8)  # fmt: skip
    axes.set_xlabel(f"{name}, measured", parse_math=False)
    axes.set_ylabel(f"{name}, predicted", parse_math=False)
    return figure


@rc_context(PAGE_STYLE)
def groups_figure(groups: Sequence[Json], predictors: Sequence[str], first: str) -> Figure:
    """Draw the first score of each group, for the model and a baseline."""
    figure, axes = axes_of(8, 1.0 + 0.34 * len(groups))
    for number, (name, colour) in enumerate(zip(predictors, (BLUE, GREY), strict=False)):
        scores = [(place, group["scores"][name]) for place, group in enumerate(reversed(groups))]
        scores = [(place, score) for place, score in scores if score["value"] is not None]
        axes.errorbar(
            [score["value"] for _, score in scores],
            [place + 0.12 - 0.24 * number for place, _ in scores],
            xerr=_spread([score for _, score in scores]), fmt="o", color=colour, label=name,
        )  # fmt: skip
    labels = [f"{group['group']} ({group['examples']:,})" for group in reversed(groups)]
    axes.set_yticks(range(len(groups)), labels, parse_math=False)
    axes.set(xlabel=f"{score_label(first)}, test split")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure
