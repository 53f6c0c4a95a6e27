"""The pictures of the report of a run."""

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
from carbon.finetune.data import PARTS
from carbon.finetune.findings import (
    Findings,
    estimate_text,
    number_text,
    read_findings,
    read_predictions,
    spoken,
)
from carbon.io.files import atomic_file
from carbon.progress import shown
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
    axes.grid(axis="x", color=LINE)
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


REPORT = "report.html"
_MOST_SCORES, _MOST_NUMBERS, _MOST_CLASSES = 40, 6, 40


def write_report(folder: Path, name: str | None = None) -> Path:
    """Write `report.html` into the folder of a run and return its path.

    Args:
        folder: that `carbon finetune` wrote.
        name: to call the run by; the folder's own, if none is given.

    Raises:
        ModelError: it is no such folder, or one of another version, or damaged.
    """
    findings = read_findings(folder, name)
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
        f"{findings.results['drawn_together']} drawn whole. The test part was measured once."
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
    names = list(tested["model"])[:_MOST_SCORES]
    left_out = len(tested["model"]) - len(names)
    rows = [(spoken(n), *(estimate_text(of[n]) for of in tested.values())) for n in names]
    parts = [html_table(rows, ("test part", *tested))]
    if against:
        rows = [(spoken(n), *(estimate_text(of[n]) for of in against.values())) for n in names]
        parts += [
            html_heading("Model minus baseline, on the same draws"),
            html_table(rows, ("test part", *(f"minus {name}" for name in against))),
            html_paragraph(
                "A difference whose interval leaves out 0 is more than the choice of test examples "
                "explains. Of a mean squared error less is better."
                if findings.results["kind"] == "numbers"
                else "A difference whose interval leaves out 0 is more than the choice of test "
                "examples explains."
            ),
        ]
    if left_out:
        parts.append(html_paragraph(f"{left_out:,} more scores are in results.json."))
    return _section("Scores", *parts)


def _learning(findings: Findings) -> str:
    seeds, first = findings.results["seeds"], findings.first
    if findings.manifest.way == "probe":
        learned_from = "6-mers" if findings.manifest.question.per_base else "examples"
        return _section("Learning", *_probed(seeds[0], first, learned_from))
    captions = (
        "Loss; of the train part the mean since the look before, with dropout where there is any.",
        "Score of the validation part; a ring is the look that was kept.",
    )
    figures = loss_figure(seeds), score_figure(seeds, first)
    rows = [(str(seed["seed"]), f"{seed['step']:,}", number_text(seed["score"])) for seed in seeds]
    header = ("seed", "step kept", f"{spoken(first)}, validation part")
    kept = "The folder holds the seed that is best on the validation part." if rows[1:] else ""
    pictures = [_picture(f, caption) for f, caption in zip(figures, captions, strict=True)]
    return _section(
        "Learning", *pictures, html_table(rows, header), html_paragraph(kept) if kept else ""
    )


def _probed(seed: dict[str, Any], first: str, rows: str) -> list[str]:
    """Return what a probe has in place of curves: layers, and shares of the train part."""
    parts = []
    if len(seed["layers"]) > 1:
        figure = layers_figure(seed["layers"], seed["layer"], first)
        parts.append(_picture(figure, "By layer; a ring is the one that was kept."))
    if len(seed["sizes"]) > 1:
        caption = f"By {rows} learned from, at the layer that was kept."
        parts.append(_picture(sizes_figure(seed["sizes"], first, rows), caption))
    return parts


def _predictions(folder: Path, findings: Findings) -> str:
    """Return confusion and calibration, or what was predicted by what was measured."""
    details, question = findings.results["details"], findings.manifest.question
    parts = []
    if (found := details["confusion"]) and len(question.names) <= _MOST_CLASSES:
        caption = "Confusion: of each true class, the share that is said to be which."
        parts.append(_picture(confusion_figure(found, question.names), caption))
    if found := details["calibration"]:
        caption = (
            f"Calibration of {_CERTAINTY[question.kind]}, in ten bins of equally many. Their mean "
            f"distance from the line is {found['error']:.3f}."
        )
        parts.append(_picture(calibration_figure(found["bins"]), caption))
    if question.of_kind.is_number:
        labels, said = read_predictions(folder, findings)
        columns = zip(question.names, labels.T, said.T, strict=True)
        parts += [_picture(numbers_figure(*column)) for column in list(columns)[:_MOST_NUMBERS]]
    return _section("Predictions", *parts)


_CERTAINTY = {
    "binary": "the probability of the second class",
    "classes": "the probability of the class that is said",
    "labels": "the probability of each label",
    "bases": "the probability of the class that is said",
}


def _groups(findings: Findings) -> str:
    groups = findings.results["details"]["groups"]
    if not groups:
        return ""
    shown_names = [name for name in ("model", findings.best_baseline()) if name]
    figure = groups_figure(groups, shown_names, findings.first)
    caption = "The largest groups of the test part, and their examples."
    return _section("By group", _picture(figure, caption))


def _worst(findings: Findings) -> str:
    worst = findings.results["details"]["worst"]
    if not worst:
        return ""
    has_groups = any(each["group"] for each in worst)
    header = ("name", *(["group"] if has_groups else []), "bp", *_said_of(findings), "loss")
    rows = [
        (
            each["name"],
            *([each["group"]] if has_groups else []),
            f"{each['bases']:,}",
            *_said(findings, each),
            number_text(each["loss"]),
            each["begins"],
        )
        for each in worst
    ]
    loss = (
        "The loss is the squared error in variances of the test part, the mean over numbers."
        if findings.manifest.question.of_kind.is_number
        else "The loss is the cross-entropy in nats, the mean over labels or bases."
    )
    table = html_table(rows, (*header, "begins with"))
    return _section("Worst examples", table, html_paragraph(loss))


def _said_of(findings: Findings) -> Row:
    question = findings.manifest.question
    if question.per_base:
        return ()
    names = "" if question.of_kind.one_column else f" ({', '.join(question.names[:_MOST_NUMBERS])})"
    return f"label{names}", "predicted"


def _said(findings: Findings, example: dict[str, Any]) -> Row:
    """Return what an example is and what was predicted; nothing of a label of every base."""
    question = findings.manifest.question
    if question.per_base:
        return ()
    if not question.of_kind.one_column:
        return _values(example["label"]), _values(example["prediction"])
    said = example["prediction"]
    probabilities = said if len(said) > 1 else [1 - said[0], said[0]]
    most = max(range(len(probabilities)), key=lambda n: probabilities[n])
    label = question.names[int(example["label"][0])]
    return label, f"{question.names[most]} ({probabilities[most]:.3f})"


def _values(values: Sequence[float | None]) -> str:
    few = ["unknown" if v is None else number_text(v) for v in values[:_MOST_NUMBERS]]
    return ", ".join(few) + (", ..." if len(values) > len(few) else "")


def _data(findings: Findings) -> str:
    results = findings.results
    files = [(each["role"], each["name"], each["sha256"]) for each in results["files"]]
    return _section(
        "Data and split",
        html_table(label_rows(findings), ("", *PARTS)),
        html_list(results["told"]),
        html_table(files, ("role", "file", "SHA-256")) if files else "",
        html_paragraph(f"SHA-256 of all sequences and their parts: {results['split_sha256']}."),
    )


def label_rows(findings: Findings) -> list[Row]:
    """Return rows of a table: examples of each part, and labels of each name."""
    results = findings.results
    rows = [("examples", *(f"{results['examples'][part]:,}" for part in PARTS))]
    for name in findings.manifest.question.names[:_MOST_SCORES]:
        values = [results["labels"][part][name] for part in PARTS]
        rows.append((name, *map(_label_text, values)))
    return rows


def _label_text(value: Any) -> str:
    if isinstance(value, dict):
        mean, sd = (v if v is None else number_text(v) for v in (value["mean"], value["sd"]))
        return f"mean {mean}, SD {sd}" if mean else "none known"
    return f"{value:,}"


def _settings(findings: Findings) -> str:
    return _section("Model and settings", html_table(setting_rows(findings), ("setting", "value")))


def setting_rows(findings: Findings) -> list[Row]:
    """Return rows of a table: the model, and what it was fine-tuned with."""
    way, manifest, question = findings.config.way, findings.manifest, findings.manifest.question
    rows: list[tuple[str, Any]] = [
        ("base model", findings.base),
        ("SHA-256 of its weights", manifest.base_sha256),
        ("question", question.kind),
        ("loss", question.loss),
        ("class weights", findings.config.question.class_weights),
        ("way", way.name),
        ("pool", manifest.pool),
        ("layer", manifest.layer or "last"),
        ("strands of a prediction", manifest.strands),
        ("sequences that are too long", manifest.too_long),
    ]
    if question.transforms:
        rows.append(("transform", findings.config.question.transform))
    if way.name == "lora":
        rows += [("rank", way.rank), ("alpha", way.scale), ("dropout", way.dropout)]
    if way.name != "probe":
        rows += [
            ("highest learning rate", f"{way.rate:g}"),
            ("sequences a step", way.batch_sequences),
            ("most epochs", f"{way.most_epochs:g}"),
            ("patience, looks", way.patience),
            ("weight decay", f"{way.weight_decay:g}"),
            ("reverse complements in learning", "half" if way.augment else "none"),
            ("seeds", ", ".join(map(str, findings.config.seeds))),
        ]
    return [(name, shown(value)) for name, value in rows]
