"""The figures of a report; each has its data as a table and its caption as alternative text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from carbon.errors import ConfigError
from carbon.reports.figures import (
    BLUE,
    COLOURS,
    GREY,
    INK,
    ORANGE,
    PAGE_STYLE,
    axes_of,
    svg_of,
)
from carbon.run_folder import METRICS, RunLines, column, read_lines, reduced, stretches
from eval.records import Json, Stored
from eval.report.collect import Section, value_of

Cell = str | float | int | None
Table = list[tuple[Cell, ...]]
"""Rows, the first of which has the names of the columns."""

_MOST_MAPS_A_ROW = 3
_POINTS = 150


@dataclass(frozen=True)
class Picture:
    """A figure as an `svg` element.

    Attributes:
        name: of the CSV file.
        caption: the alternative text, too.
        svg: the element.
        table: every number of the figure.
    """

    name: str
    caption: str
    svg: str
    table: Table


@rc_context(PAGE_STYLE)
def pictures_of(section: Section) -> list[Picture]:
    """Return the figures of a task: values, curves, groups, maps of values and of points."""
    return [
        _values(section),
        *(_curve(section, name) for name in _figures_of_curves(section)),
        *(_groups(section, name) for name in _names(section, "groups") if _differ(section, name)),
        *(
            _grid(stored, name, grid)
            for stored in section.models
            for name, grid in _part(stored, "grids").items()
        ),
        *(_scatters(stored) for stored in section.models if _part(stored, "scatters")),
    ]


@rc_context(PAGE_STYLE)
def overview(sections: Sequence[Section]) -> Picture:
    """Draw each task on a separate axis: models, the best baseline and chance."""
    figure = Figure(figsize=(9, 0.6 + 0.75 * len(sections)), layout="constrained")
    rows = figure.subplots(len(sections), squeeze=False)[:, 0]
    colours = _colours([stored for section in sections for stored in section.models])
    table: Table = [("axis", "task", "entrant", "value", "low", "high")]
    for axes, section in zip(rows, sections, strict=True):
        shown = [stored for stored in section.shown if value_of(stored) is not None]
        for place, stored in enumerate(shown):
            value = _part(stored, "value")
            axes.errorbar(
                value["value"],
                -place,
                xerr=_distances([value]),
                fmt="s" if stored.is_baseline else "o",
                color=colours.get(stored.entrant, GREY),
                label="best baseline" if stored.is_baseline else stored.entrant,
            )
            ends = (value["value"], value["low"], value["high"])
            table.append((section.task["axis"], section.task["name"], stored.entrant, *ends))
        if section.task["chance"] is not None and shown:
            axes.axvline(section.task["chance"], color=GREY, linestyle="--", linewidth=0.8)
        axes.set(yticks=[], ylim=(-len(shown) + 0.3, 0.7))
        label = f"{section.task['name']}\n({_spoken(section.task['metric'])})"
        axes.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9)
        axes.spines["left"].set_visible(False)
    handles = {
        label: handle
        for axes in rows
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if handles:
        figure.legend(
            handles.values(), handles.keys(), frameon=False, loc="outside upper center", ncols=3
        )
    return Picture(
        "overview",
        "Each task by its own metric, with 95 % intervals; dashed: chance.",
        svg_of(figure),
        table,
    )


@rc_context(PAGE_STYLE)
def cost_picture(sections: Sequence[Section]) -> Picture:
    """Draw examples per second of each model; the table has time, tokens and memory, too."""
    rows = [(section, stored) for section in sections for stored in section.models]
    figure, axes = axes_of(8.5, 0.9 + 0.32 * len(rows))
    colours = _colours([stored for _, stored in rows])
    for place, (_, stored) in enumerate(reversed(rows)):
        speed = stored.record["cost"]["examples_per_second"] or 0.0
        axes.barh(place, speed, color=colours[stored.entrant])
        axes.text(speed, place, f" {speed:.3g}", va="center")
    labels = [f"{section.task['name']}, {stored.entrant}" for section, stored in reversed(rows)]
    axes.set_yticks(range(len(rows)), labels)
    axes.set(xlabel="examples per second")
    names = ("examples_per_second", "tokens_per_example", "seconds")
    table: Table = [("task", "entrant", *names, "peak_MiB")]
    for section in sections:
        for stored in section.all:
            cost = stored.record["cost"]
            peak = cost["peak_bytes"] and round(cost["peak_bytes"] / 2**20, 1)
            table.append(
                (section.task["name"], stored.entrant, *(cost[name] for name in names), peak)
            )
    return Picture("throughput", "Throughput, on the machines below.", svg_of(figure), table)


@rc_context(PAGE_STYLE)
def training_loss(run: Path) -> tuple[RunLines, Picture]:
    """Read a training run, and draw nats per base of its training rows against the step.

    Raises:
        ConfigError: the folder has no metrics, or they are malformed.
    """
    lines = read_lines(run)
    if not lines.steps:
        raise ConfigError(f"{run / METRICS}: has no step; give the folder of a training run")
    figure, axes = axes_of(8.5, 3.6)
    groups = stretches(len(lines.steps), lines.boundaries, _POINTS)
    steps = reduced(column(lines.steps, "step"), groups)
    table: Table = [("loss", "step", "nats_per_base")]
    for name, label, colour in (
        ("nats_per_base", "conditional likelihood", BLUE),
        ("marginal_nats_per_base", "marginal likelihood", ORANGE),
    ):
        values = reduced(column(lines.steps, name), groups)
        if np.isfinite(values).any():
            axes.plot(steps, values, color=colour, label=label)
        table += [(label, *pair) for pair in zip(steps.tolist(), values.tolist(), strict=True)]
    for place in lines.boundaries:
        axes.axvline(lines.steps[place]["step"] - 0.5, color=GREY, linestyle="--", linewidth=0.8)
    axes.set(xlabel="step", ylabel="nats per base")
    _add_legend(axes)
    caption = (
        "Nats per base of training rows, each point the mean of a stretch of steps; dashed: "
        "another phase begins."
    )
    return lines, Picture("training-loss", caption, svg_of(figure), table)


def _values(section: Section) -> Picture:
    """Draw the headline of each entrant, with lines for chance and published values."""
    task = section.task
    entrants = [stored for stored in section.all if value_of(stored) is not None]
    figure, axes = axes_of(8.5, 1.2 + 0.3 * len(entrants))
    colours = _colours(section.models)
    table: Table = [("entrant", "kind", "value", "low", "high", "samples")]
    for place, stored in enumerate(reversed(entrants)):
        value = _part(stored, "value")
        colour = colours.get(stored.entrant, GREY)
        axes.barh(place, value["value"], xerr=_distances([value]), color=colour, ecolor=INK)
    for stored in entrants:
        value, kind = _part(stored, "value"), stored.record["model"]["kind"]
        ends = (value["value"], value["low"], value["high"], value["num_samples"])
        table.append((stored.entrant, kind, *ends))
    for published, number in task["published"].items():
        axes.axvline(number, color=INK, linewidth=0.8, linestyle=":")
        axes.text(number, len(entrants) - 0.4, published, rotation=60, fontsize=8)
        table.append((published, "published", number, None, None, None))
    if task["chance"] is not None:
        axes.axvline(task["chance"], color=GREY, linestyle="--", linewidth=0.8)
        table.append(("chance", "expected", task["chance"], None, None, None))
    axes.set_yticks(range(len(entrants)), [stored.entrant for stored in reversed(entrants)])
    axes.set(xlabel=_spoken(task["metric"]))
    caption = f"{task['name']}, with 95 % intervals; dashed: chance"
    caption += ", dotted: published, on other data and machines." if task["published"] else "."
    return Picture(f"{task['name']}-values", caption, svg_of(figure), table)


def _curve(section: Section, figure_name: str) -> Picture:
    """Draw a line for each model and the best baseline; the table has the lines of all entrants.

    Curves that are named `figure: line` are lines of one figure.
    """
    figure, axes = axes_of(6, 4.2)
    styles = _styles(section, figure_name)
    table: Table = [("entrant", "line", "x", "y")]
    for stored in section.all:
        for name, curve in _part(stored, "curves").items():
            of_figure, _, line = name.partition(": ")
            if of_figure != figure_name:
                continue
            points = zip(curve["x"], curve["y"], strict=True)
            table += [(stored.entrant, line, x, y) for x, y in points]
            if stored in section.shown:
                label = ", ".join(filter(None, (stored.entrant, line)))
                axes.plot(curve["x"], curve["y"], label=label, **styles[stored.entrant, line])
                axes.set(xlabel=curve["x_label"], ylabel=curve["y_label"])
    if figure_name == "roc":
        axes.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=0.8)
    _add_legend(axes)
    name = _file_name(section.task["name"], figure_name)
    return Picture(name, f"{_spoken(figure_name)}.", svg_of(figure), table)


def _styles(section: Section, figure_name: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the style of each line: dashes for baselines, a colour for each entrant and line."""
    keys = dict.fromkeys(
        (stored.entrant, name.partition(": ")[2])
        for stored in section.shown
        for name in _part(stored, "curves")
        if name.partition(": ")[0] == figure_name
    )
    baseline = section.best_baseline and section.best_baseline.entrant
    colours = cycle(COLOURS)
    return {
        key: {"color": GREY, "linestyle": "--"} if key[0] == baseline else {"color": next(colours)}
        for key in keys
    }


def _differ(section: Section, name: str) -> bool:
    """Return whether a table has more than one group."""
    return len({group for s in section.all for group in _part(s, "groups").get(name, {})}) > 1


def _groups(section: Section, name: str) -> Picture:
    """Draw the values of each group."""
    tables = {s.entrant: _part(s, "groups").get(name, {}) for s in section.all}
    groups = sorted({group for found in tables.values() for group in found})
    figure, axes = axes_of(8.5, 3.6)
    colours = _colours(section.models)
    for number, stored in enumerate(section.shown):
        found = tables[stored.entrant]
        at = [place for place, group in enumerate(groups) if _is_number(found.get(group))]
        values = [found[groups[place]] for place in at]
        if values:
            axes.errorbar(
                np.array(at) + 0.5 * (number + 0.5) / len(section.shown) - 0.25,
                [value["value"] for value in values],
                yerr=_distances(values),
                linestyle="none",
                marker="s" if stored.is_baseline else "o",
                color=colours.get(stored.entrant, GREY),
                label=stored.entrant,
            )
    axes.set_xticks(range(len(groups)), groups, rotation=20, ha="right")
    axes.set(ylabel="value")
    _add_legend(axes)
    table: Table = [(name, "entrant", "value", "low", "high", "samples")]
    for entrant, found in tables.items():
        table += [
            (group, entrant, v["value"], v["low"], v["high"], v["num_samples"])
            for group, v in found.items()
        ]
    caption = f"{section.task['name']} by {_spoken(name)}."
    return Picture(_file_name(section.task["name"], name), caption, svg_of(figure), table)


def _grid(stored: Stored, name: str, grid: Json) -> Picture:
    """Draw a map of values; cells without a value are empty."""
    values = np.array(
        [[np.nan if v is None else v for v in row] for row in grid["values"]], dtype=float
    ).reshape(len(grid["rows"]), len(grid["columns"]))
    figure, axes = axes_of(1.5 + 0.8 * len(grid["columns"]), 1.2 + 0.45 * len(grid["rows"]))
    axes.imshow(np.ma.masked_invalid(values), vmin=0, vmax=1, cmap="viridis", aspect="auto")
    for (row, place), value in np.ndenumerate(values):
        if np.isfinite(value):
            colour = "white" if value < 0.5 else "black"
            axes.text(place, row, f"{value:.2f}", ha="center", va="center", color=colour)
    axes.set_xticks(range(len(grid["columns"])), grid["columns"])
    axes.set_yticks(range(len(grid["rows"])), grid["rows"])
    axes.set(xlabel=grid["x_label"], ylabel=grid["y_label"])
    table: Table = [(grid["y_label"], grid["x_label"], "value")]
    for row_name, row in zip(grid["rows"], grid["values"], strict=True):
        table += [(row_name, c, v) for c, v in zip(grid["columns"], row, strict=True)]
    caption = f"{stored.entrant}: {_spoken(name)}."
    name = _file_name(f"{stored.task}-{stored.path.stem}", name)
    return Picture(name, caption, svg_of(figure), table)


def _scatters(stored: Stored) -> Picture:
    """Draw the maps of a model next to each other, points in the colours of their classes."""
    maps = _part(stored, "scatters")
    columns = min(_MOST_MAPS_A_ROW, len(maps))
    rows = -(-len(maps) // columns)
    figure = Figure(figsize=(3.2 * columns, 3.2 * rows), layout="constrained")
    table: Table = [("map", "x", "y", "class")]
    places = iter(figure.subplots(rows, columns, squeeze=False).flat)
    for (name, points), axes in zip(maps.items(), places, strict=False):
        labels = np.array(points["labels"])
        for label, colour in zip(sorted(set(points["labels"])), cycle(COLOURS), strict=False):
            x, y = (np.array(points[key])[labels == label] for key in ("x", "y"))
            axes.plot(x, y, ".", color=colour, markersize=3, alpha=0.7, label=label)
        axes.set(xticks=[], yticks=[])
        axes.set_title(name, fontsize=9)
        axes.legend(frameon=False, loc="upper right", fontsize=8, markerscale=2)
        table += [
            (name, *point) for point in zip(points["x"], points["y"], points["labels"], strict=True)
        ]
    for axes in places:
        axes.set_visible(False)
    caption = f"Maps of {stored.entrant}: each point is a window, its colour the class."
    name = f"{stored.task}-{stored.path.stem}-maps"
    return Picture(name, caption, svg_of(figure), table)


def _part(stored: Stored, name: str) -> dict[str, Any]:
    summary: Mapping[str, Any] = stored.record["summary"] or {}
    return summary.get(name) or {}


def _names(section: Section, part: str) -> Iterator[str]:
    yield from dict.fromkeys(name for stored in section.all for name in _part(stored, part))


def _figures_of_curves(section: Section) -> Iterator[str]:
    names = (name.partition(": ")[0] for name in _names(section, "curves"))
    yield from dict.fromkeys(names)


def _colours(models: Sequence[Stored]) -> dict[str, str]:
    return dict(zip(dict.fromkeys(m.entrant for m in models), cycle(COLOURS), strict=False))


def _is_number(estimate: Json | None) -> bool:
    return estimate is not None and estimate["value"] is not None


def _distances(estimates: Sequence[Json]) -> list[list[float]]:
    """Return the distances from values to interval ends, below and above, for matplotlib."""

    def distance(estimate: Json, end: str) -> float:
        known = estimate[end] is not None
        return max(0.0, abs(estimate[end] - estimate["value"])) if known else 0.0

    return [[distance(e, end) for e in estimates] for end in ("low", "high")]


def _add_legend(axes: Any) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _file_name(task: str, name: str) -> str:
    """Return a name for files.

    >>> _file_name("representation", "strand: mean, linear")
    'representation-strand-mean-linear'
    """
    words = "".join(letter if letter.isalnum() or letter == "_" else " " for letter in name)
    return "-".join([task, *words.split()])


def _spoken(name: str) -> str:
    return name.replace("_", " ")
