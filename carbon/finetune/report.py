"""The HTML report of a run, and its figures."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from carbon import __version__
from carbon.finetune.data import SPLITS
from carbon.finetune.findings import (
    MOST_SCORES,
    TASK_TEXTS,
    Findings,
    number_text,
    read_predictions,
    score_label,
)
from carbon.finetune.metrics import SCORE_INFO
from carbon.io.files import atomic_file
from carbon.reports.figures import BLUE, COLOURS, GREY, LINE, ORANGE, PAGE_STYLE, axes_of, svg_of
from carbon.reports.render import (
    Row,
    html_answer,
    html_figure,
    html_heading,
    html_list,
    html_page,
    html_paragraph,
    html_section,
    html_table,
)

_MOST_POINTS = 5000  # more points overlap
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


@rc_context(PAGE_STYLE)
def loss_figure(seeds: Sequence[Json]) -> Figure:
    """Draw training and validation loss, a line for each seed."""
    figure, axes = axes_of(5.6, 3.4)
    for place, seed in enumerate(seeds):
        steps = [validation_step["step"] for validation_step in seed["validations"]]
        for key, label, colour in (
            ("loss", "train", BLUE),
            ("validation_loss", "validation", ORANGE),
        ):
            values = _numbers(validation_step[key] for validation_step in seed["validations"])
            axes.plot(steps, values, marker=".", color=colour, label=label if not place else None)
    axes.set(xlabel="step", ylabel="loss")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    axes.legend(frameon=False)
    return figure


def _numbers(values: Iterable[float | None]) -> NDArray[np.float64]:
    """Return numbers to draw, NaN (a gap in the line) where undefined."""
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


@rc_context(PAGE_STYLE)
def score_figure(seeds: Sequence[Json], first: str) -> Figure:
    """Draw the validation score by step, a line for each seed; a circle marks the selected step."""
    figure, axes = axes_of(5.6, 3.4)
    for seed, colour in zip(seeds, cycle(COLOURS), strict=False):
        steps = [validation_step["step"] for validation_step in seed["validations"]]
        axes.plot(
            steps, _numbers(step["score"] for step in seed["validations"]), marker=".",
            color=colour,
            label=f"seed {seed['seed']}",
        )  # fmt: skip
        axes.plot(seed["step"], seed["score"], "o", ms=10, mfc="none", mec=colour)
    axes.set(xlabel="step", ylabel=f"{score_label(first)}, validation split")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    if len(seeds) > 1:
        axes.legend(frameon=False)
    return figure


@rc_context(PAGE_STYLE)
def layers_figure(layers: Sequence[Json], selected: int | None, first: str) -> Figure:
    """Draw the validation score of each layer; a circle marks the selected layer."""
    figure, axes = axes_of(5.6, 3.4)
    names = ["last" if layer["layer"] is None else str(layer["layer"]) for layer in layers]
    scores = _numbers(layer["score"] for layer in layers)
    axes.plot(range(len(layers)), scores, marker=".", color=BLUE)
    best = next(n for n, layer in enumerate(layers) if layer["layer"] == selected)
    axes.plot(best, scores[best], "o", ms=10, mfc="none", mec=BLUE)
    step = -(-len(names) // 12)
    axes.set_xticks(range(0, len(names), step), names[::step])
    axes.set(xlabel="states after layer", ylabel=f"{score_label(first)}, validation split")
    return figure


@rc_context(PAGE_STYLE)
def sizes_figure(sizes: Sequence[Json], first: str, rows: str) -> Figure:
    """Draw the validation score by number of training rows."""
    figure, axes = axes_of(5.6, 3.4)
    numbers = [size["examples"] for size in sizes]
    axes.plot(numbers, [size["score"] for size in sizes], marker=".", color=BLUE)
    axes.set_xscale("log", base=2)
    axes.set_xticks(numbers, [f"{number:,}" for number in numbers])
    axes.set(xlabel=f"{rows} of the train split", ylabel=f"{score_label(first)}, validation split")
    return figure


@rc_context(PAGE_STYLE)
def calibration_figure(bins: Sequence[Json]) -> Figure:
    """Draw the observed share by predicted probability."""
    figure, axes = axes_of(4.4, 4.2)
    axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=0.8)
    axes.errorbar(
        [each["predicted"] for each in bins], [each["value"] for each in bins],
        yerr=_spread(bins), fmt="o-", color=BLUE, capsize=3,
    )  # fmt: skip
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


REPORT = "report.html"
_MOST_NUMBERS, _MOST_CLASSES = 6, 40


def write_report(folder: Path, findings: Findings) -> Path:
    """Write `report.html` into the folder of a run and return its path."""
    sections = (
        _answer(findings),
        _scores(findings),
        _learning(findings),
        _predictions(folder, findings),
        _groups(findings),
        _worst(findings),
        _data(findings),
        _settings(findings),
    )
    small = (
        f"Carbon {__version__}. Brackets are 95 % intervals by bootstrap, "
        f"{findings.results['drawn_together']} drawn whole. The test split was measured once."
    )
    with atomic_file(folder / REPORT) as temporary:
        page = html_page(findings.name, small, *sections)
        temporary.write_text(page, encoding="utf-8")
    return folder / REPORT


def _section(title: str, *parts: str) -> str:
    return html_section(title, "", *parts) if any(parts) else ""


def _picture(figure: Figure, caption: str = "") -> str:
    return html_figure(svg_of(figure), caption)


def _answer(findings: Findings) -> str:
    picture = _picture(answer_figure(findings.results["test"], findings.first))
    return html_answer(findings.answer()) + picture


def _scores(findings: Findings) -> str:
    tested, against = findings.results["test"], findings.results["model_minus"]
    num_more = len(tested["model"]) - MOST_SCORES
    parts = [html_table(findings.score_rows("test", MOST_SCORES), ("test split", *tested))]
    if against:
        header = ("test split", *(f"minus {name}" for name in against))
        text = (
            "The choice of test examples does not explain a difference whose interval excludes 0."
        )
        for name in dict.fromkeys(name.partition("[")[0] for name in tested["model"]):
            if not SCORE_INFO[name].higher_is_better:
                text += f" Of the {SCORE_INFO[name].label}, lower is better."
        parts += [
            html_heading("Model minus baseline, on the same draws"),
            html_table(findings.score_rows("model_minus", MOST_SCORES), header),
            html_paragraph(text),
        ]
    if num_more > 0:
        parts.append(html_paragraph(f"{num_more:,} more scores are in results.json."))
    return _section("Scores", *parts)


def _learning(findings: Findings) -> str:
    seeds, first = findings.results["seeds"], findings.first
    if findings.manifest.method == "probe":
        unit = "6-mers" if findings.manifest.task.per_base else "examples"
        return _section("Training", *_probed(seeds[0], first, unit))
    captions = (
        "Loss; of the train split the mean since the previous validation, with dropout if any.",
        "Score of the validation split; a circle marks the selected step.",
    )
    figures = loss_figure(seeds), score_figure(seeds, first)
    rows = [(str(seed["seed"]), f"{seed['step']:,}", number_text(seed["score"])) for seed in seeds]
    header = ("seed", "selected step", f"{score_label(first)}, validation split")
    note = "The folder has the seed with the best validation score." if rows[1:] else ""
    pictures = [_picture(f, caption) for f, caption in zip(figures, captions, strict=True)]
    return _section(
        "Training", *pictures, html_table(rows, header), html_paragraph(note) if note else ""
    )


def _probed(seed: dict[str, Any], first: str, rows: str) -> list[str]:
    """Return the figures of a probe: layers, and shares of the train split."""
    parts = []
    if len(seed["layers"]) > 1:
        figure = layers_figure(seed["layers"], seed["layer"], first)
        parts.append(_picture(figure, "By layer; a circle marks the selected one."))
    if len(seed["sizes"]) > 1:
        caption = f"By {rows} of the train split, at the selected layer."
        parts.append(_picture(sizes_figure(seed["sizes"], first, rows), caption))
    return parts


def _predictions(folder: Path, findings: Findings) -> str:
    """Return confusion and calibration, or predicted by measured values."""
    details, task = findings.results["details"], findings.manifest.task
    parts = []
    if (counts := details["confusion"]) and len(task.names) <= _MOST_CLASSES:
        caption = "Confusion: the predicted share of each class, by true class."
        parts.append(_picture(confusion_figure(counts, task.names), caption))
    if calibration := details["calibration"]:
        caption = (
            f"Calibration of {TASK_TEXTS[task.type].certainty}, in ten bins of equal size. "
            f"Their mean distance from the line is {calibration['error']:.3f}."
        )
        parts.append(_picture(calibration_figure(calibration["bins"]), caption))
    if task.task_type.is_number:
        labels, predictions = read_predictions(folder, findings)
        columns = zip(task.names, labels.T, predictions.T, strict=True)
        parts += [_picture(numbers_figure(*column)) for column in list(columns)[:_MOST_NUMBERS]]
    return _section("Predictions", *parts)


def _groups(findings: Findings) -> str:
    groups = findings.results["details"]["groups"]
    if not groups:
        return ""
    shown_names = [name for name in ("model", findings.best_baseline()) if name]
    figure = groups_figure(groups, shown_names, findings.first)
    caption = "The largest groups of the test split, and their examples."
    return _section("By group", _picture(figure, caption))


def _worst(findings: Findings) -> str:
    worst = findings.results["details"]["worst"]
    if not worst:
        return ""
    has_groups = any(each["group"] for each in worst)
    header = ("name", *(["group"] if has_groups else []), "bp", *_example_header(findings), "loss")
    rows = [
        (
            each["name"],
            *([each["group"]] if has_groups else []),
            f"{each['bases']:,}",
            *_example_cells(findings, each),
            number_text(each["loss"]),
            each["begins"],
        )
        for each in worst
    ]
    loss = (
        "The loss is the squared error in variances of the test split, the mean over numbers."
        if findings.manifest.task.task_type.is_number
        else "The loss is the cross-entropy in nats, the mean over labels or bases."
    )
    table = html_table(rows, (*header, "begins with"))
    return _section("Worst examples", table, html_paragraph(loss))


def _example_header(findings: Findings) -> Row:
    task = findings.manifest.task
    if task.per_base:
        return ()
    names = "" if task.task_type.one_column else f" ({', '.join(task.names[:_MOST_NUMBERS])})"
    return f"label{names}", "predicted"


def _example_cells(findings: Findings, example: dict[str, Any]) -> Row:
    """Return label and prediction of an example; nothing for a label of every base."""
    task = findings.manifest.task
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


def _data(findings: Findings) -> str:
    files = findings.file_rows()
    sha256 = findings.results["split_sha256"]
    return _section(
        "Data and split",
        html_table(findings.label_rows(MOST_SCORES), ("", *SPLITS)),
        html_list(findings.results["notes"]),
        html_table(files, ("role", "file", "SHA-256")) if files else "",
        html_paragraph(f"SHA-256 of all sequences and their splits: {sha256}."),
    )


def _settings(findings: Findings) -> str:
    table = html_table(findings.setting_rows(), ("setting", "value"))
    return _section("Model and settings", table)
