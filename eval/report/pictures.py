"""The pictures of a report; each comes with its data as a table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from eval.drawing import COLOURS, GREY, INK, axes_of
from eval.records import Json, Stored
from eval.report.collect import Section, value_of

Cell = str | float | int | None
Table = list[tuple[Cell, ...]]
"""Rows, the first of which has the names of the columns."""


@dataclass(frozen=True)
class Picture:
    """A figure, what it is called, and every number in it."""

    name: str
    caption: str
    figure: Figure
    table: Table


def pictures_of(section: Section) -> Iterator[Picture]:
    """Yield the pictures of a task: values, curves, groups, maps."""
    yield _values(section)
    for name in _names(section, "curves"):
        yield _curve(section, name)
    for name in _names(section, "groups"):
        yield _groups(section, name)
    for stored in section.models:
        for name, grid in (_summary(stored).get("grids") or {}).items():
            yield _map(stored, name, grid)


def overview(sections: Sequence[Section]) -> Picture:
    """Draw every task on its axis: models and the best baseline, with intervals."""
    figure, axes = axes_of(9, 0.9 + 0.55 * len(sections))
    table: Table = [("axis", "task", "entrant", "value", "low", "high")]
    colours = _colours([s for section in sections for s in section.models])
    labelled: set[str] = set()
    for row, section in enumerate(reversed(sections)):
        shown = section.shown
        for place, stored in enumerate(shown):
            value = _summary(stored).get("value")
            if value is None or value["value"] is None:
                continue
            label = "best baseline" if stored.is_baseline else stored.entrant
            y = row + 0.3 * (0.5 - (place + 0.5) / len(shown))
            axes.errorbar(
                value["value"], y, xerr=_spread([value]), fmt="s" if stored.is_baseline else "o",
                color=colours.get(stored.entrant, GREY),
                label=None if label in labelled else label,
            )  # fmt: skip
            labelled.add(label)
            estimate = (value["value"], value["low"], value["high"])
            table.append((section.task["axis"], section.task["name"], stored.entrant, *estimate))
    axes.set_yticks(range(len(sections)), [_on_axis(s) for s in reversed(sections)])
    axes.set(xlabel="value of the task's metric", xlim=(-0.02, 1.02))
    _add_legend(axes)
    return Picture("overview", "Every task, each by its own metric.", figure, table)


def _on_axis(section: Section) -> str:
    return f"{section.task['name']}\n({section.task['axis']})"


def cost_picture(sections: Sequence[Section]) -> Picture:
    """Draw examples a second of every model; the table has time, tokens and memory too."""
    header = ("task", "entrant", "examples_per_second", "tokens_per_example", "seconds",
              "peak_MiB")  # fmt: skip
    table: Table = [header]
    rows = [(section, stored) for section in sections for stored in section.models]
    figure, axes = axes_of(8.5, 0.9 + 0.32 * len(rows))
    colours = _colours([stored for _, stored in rows])
    for place, (_, stored) in enumerate(reversed(rows)):
        speed = stored.record["cost"]["examples_per_second"] or 0.0
        axes.barh(place, speed, color=colours[stored.entrant])
        axes.text(speed, place, f" {speed:.3g}", va="center")
    for section in sections:
        for stored in section.all:
            cost = stored.record["cost"]
            peak = cost["peak_bytes"] and round(cost["peak_bytes"] / 2**20, 1)
            figures = (cost["examples_per_second"], cost["tokens_per_example"], cost["seconds"])
            table.append((section.task["name"], stored.entrant, *figures, peak))
    labels = [f"{section.task['name']}, {stored.entrant}" for section, stored in reversed(rows)]
    axes.set_yticks(range(len(rows)), labels)
    axes.set(xlabel="examples a second")
    return Picture("throughput", "Throughput, on the machine named below.", figure, table)


def _values(section: Section) -> Picture:
    """Draw the headline of everyone; lines for chance and for what is published."""
    name = section.task["name"]
    entrants = [stored for stored in section.all if value_of(stored) is not None]
    figure, axes = axes_of(8.5, 1.2 + 0.3 * len(entrants))
    colours = _colours(section.models)
    table: Table = [("entrant", "kind", "value", "low", "high", "samples")]
    for place, stored in enumerate(reversed(entrants)):
        value = _summary(stored)["value"]
        axes.barh(
            place, value["value"], xerr=_spread([value]), color=colours.get(stored.entrant, GREY)
        )
    for stored in entrants:
        value = _summary(stored)["value"]
        kind = stored.record["model"]["kind"]
        estimate = (value["value"], value["low"], value["high"], value["num_samples"])
        table.append((stored.entrant, kind, *estimate))
    for published, number in section.task["published"].items():
        axes.axvline(number, color=INK, linewidth=0.8, linestyle=":")
        axes.text(number, len(entrants) - 0.4, published, rotation=60, fontsize=8)
        table.append((published, "published", number, None, None, None))
    if section.task["chance"] is not None:
        axes.axvline(section.task["chance"], color=GREY, linestyle="--", linewidth=0.8)
        table.append(("chance", "expected", section.task["chance"], None, None, None))
    axes.set_yticks(range(len(entrants)), [stored.entrant for stored in reversed(entrants)])
    axes.set(xlabel=section.task["metric"].replace("_", " "))
    caption = "With 95 % intervals; dashed: chance, dotted: published, of other data and machines."
    return Picture(f"{name}-values", caption, figure, table)


def _curve(section: Section, name: str) -> Picture:
    """Draw a line for each model and the best baseline; the table has everyone's."""
    figure, axes = axes_of(6, 4.2)
    colours = _colours(section.models)
    table: Table = [("entrant", "x", "y")]
    for stored in section.all:
        curve = (_summary(stored).get("curves") or {}).get(name)
        if curve is None:
            continue
        table += [(stored.entrant, x, y) for x, y in zip(curve["x"], curve["y"], strict=True)]
        if stored in section.shown:
            style = {"linestyle": "--"} if stored.is_baseline else {}
            colour = colours.get(stored.entrant, GREY)
            axes.plot(curve["x"], curve["y"], color=colour, label=stored.entrant, **style)
            axes.set(xlabel=curve["x_label"], ylabel=curve["y_label"])
    if name == "roc":
        axes.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=0.8)
    _add_legend(axes)
    return Picture(f"{section.task['name']}-{name}", _spoken(name), figure, table)


def _groups(section: Section, name: str) -> Picture:
    """Draw the values of each group."""
    tables = {s.entrant: (_summary(s).get("groups") or {}).get(name, {}) for s in section.all}
    groups = sorted({group for found in tables.values() for group in found})
    figure, axes = axes_of(8.5, 3.6)
    colours = _colours(section.models)
    shown = section.shown
    for number, stored in enumerate(shown):
        found = tables[stored.entrant]
        at = [place for place, group in enumerate(groups) if _is_number(found.get(group))]
        values = [found[groups[place]] for place in at]
        if values:
            axes.errorbar(
                np.array(at) + 0.5 * (number + 0.5) / len(shown) - 0.25,
                [value["value"] for value in values],
                yerr=_spread(values), linestyle="none", marker="s" if stored.is_baseline else "o",
                color=colours.get(stored.entrant, GREY), label=stored.entrant,
            )  # fmt: skip
    axes.set_xticks(range(len(groups)), groups, rotation=20, ha="right")
    axes.set(ylabel=section.task["metric"].replace("_", " "))
    _add_legend(axes)
    table: Table = [(name, "entrant", "value", "low", "high", "samples")]
    for entrant, found in tables.items():
        table += [
            (group, entrant, v["value"], v["low"], v["high"], v["num_samples"])
            for group, v in found.items()
        ]
    return Picture(f"{section.task['name']}-{name}", f"By {_spoken(name)}.", figure, table)


def _map(stored: Stored, name: str, grid: Json) -> Picture:
    """Draw a map of values; what was not measured is left white."""
    values = np.array(
        [[np.nan if v is None else v for v in row] for row in grid["values"]], dtype=float
    ).reshape(len(grid["rows"]), len(grid["columns"]))
    figure, axes = axes_of(1.5 + 0.8 * len(grid["columns"]), 1.2 + 0.45 * len(grid["rows"]))
    axes.imshow(np.ma.masked_invalid(values), vmin=0, vmax=1, cmap="viridis", aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            colour = "white" if value < 0.5 else "black"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=colour)
    axes.set_xticks(range(len(grid["columns"])), grid["columns"])
    axes.set_yticks(range(len(grid["rows"])), grid["rows"])
    axes.set(xlabel=grid["x_label"], ylabel=grid["y_label"])
    table: Table = [(grid["y_label"], grid["x_label"], "value")]
    for row_name, row in zip(grid["rows"], grid["values"], strict=True):
        table += [(row_name, c, v) for c, v in zip(grid["columns"], row, strict=True)]
    title = f"{stored.entrant}: {_spoken(name)}"
    return Picture(f"{stored.task}-{stored.path.stem}-{name}", title, figure, table)


def _summary(stored: Stored) -> dict[str, Any]:
    return stored.record["summary"] or {}


def _names(section: Section, part: str) -> list[str]:
    found: dict[str, None] = {}
    for stored in section.all:
        found |= dict.fromkeys(_summary(stored).get(part) or {})
    return list(found)


def _colours(models: Sequence[Stored]) -> dict[str, str]:
    return dict(zip(dict.fromkeys(m.entrant for m in models), cycle(COLOURS), strict=False))


def _is_number(estimate: Json | None) -> bool:
    return estimate is not None and estimate["value"] is not None


def _spread(estimates: Sequence[Json]) -> list[list[float]]:
    """Return how far intervals reach below and above, as matplotlib wants it."""

    def distance(estimate: Json, end: str) -> float:
        known = estimate[end] is not None
        return max(0.0, abs(estimate[end] - estimate["value"])) if known else 0.0

    return [[distance(e, end) for e in estimates] for end in ("low", "high")]


def _add_legend(axes: Any) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _spoken(name: str) -> str:
    return name.replace("_", " ")
