"""One page on what the states of a model tell: tables, curves by layer, maps."""

import html
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from carbon import __version__
from carbon.inference.options import POOLS
from carbon.io.files import atomic_file
from eval.drawing import (
    COLOURS,
    GREY,
    INK,
    axes_of,
    html_figure,
    html_page,
    html_paragraph,
    html_section,
    html_table,
    interval,
    svg_of,
)
from eval.probes.vectors import BASELINES
from eval.probes.windows import PROBES

_SPOKEN = {"mean": "mean of all states", "last": "last 6-mer", "end": "</dna>"}


def write_report(path: Path, results: Mapping[str, Any]) -> None:
    """Write the page, which needs nothing but itself."""
    small = (
        f"Carbon {__version__}. Model {html.escape(results['model'])}; windows of "
        f"{results['window_bp']:,} bp. Brackets are 95 % bootstrap intervals over groups."
    )
    sections = [_section(name, each) for name, each in results["probes"].items()]
    page = html_page("Embedding probes", small, *sections)
    with atomic_file(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _section(name: str, result: Mapping[str, Any]) -> str:
    notes = "".join(map(html_paragraph, result["notes"]))
    maps = "".join(
        f"<h3>{kind}</h3>{html_figure(svg_of(_maps_figure(points, result)))}"
        for kind, points in result["maps"].items()
    )
    text = (
        f"{result['num_windows']:,} windows of {result['num_groups']:,} groups, "
        f"{result['folds']} folds that divide no group. Always the most common class: "
        f"{result['chance']:.3f}. Layer and kernel are chosen inside of each training part."
    )
    picture = html_figure(svg_of(_layers_figure(result)))
    return html_section(
        f"{name}: {PROBES[name].question}", text, notes, _table(result), picture, maps
    )


def _table(result: Mapping[str, Any]) -> str:
    """Return the share that each reader tells right, and how far pools are ahead of others."""
    rows = []
    for name, told in result["readers"].items():
        minus = result["minus"].get(name, {})
        ahead = [interval(minus[other]) if other in minus else "" for other in BASELINES]
        unlearned = next((interval(e) for n, e in minus.items() if n not in BASELINES), "")
        rows.append((_SPOKEN.get(name, name), interval(told), *ahead, unlearned))
    others = tuple(f"minus {other}" for other in BASELINES)
    return html_table(rows, ("read from", "told right", *others, "minus random weights"))


def _layers_figure(result: Mapping[str, Any]) -> Figure:
    """Draw the share told right by layer: lines of linear machines, dashed of RBF ones."""
    figure, axes = axes_of(8.5, 3.8)
    for pool, colour in zip(POOLS, COLOURS, strict=False):
        for kernel, style in (("linear", "-"), ("rbf", "--")):
            some = [e for e in result["readers"][pool]["each"] if e["kernel"] == kernel][::-1]
            axes.plot(
                range(1, len(some) + 1), [e["value"] for e in some], style, color=colour,
                marker="o", markersize=3, label=f"{_SPOKEN[pool]}, {kernel}",
            )  # fmt: skip
    for other, style in zip(BASELINES, ("--", ":"), strict=True):
        value = result["readers"][other]["value"]
        axes.axhline(value, color=GREY, linestyle=style, linewidth=0.9, label=other)
    axes.axhline(result["chance"], color=INK, linewidth=0.8, label="most common class")
    axes.set(xlabel="layer; the last is behind the norm", ylabel="told right")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _maps_figure(points: Mapping[str, Any], result: Mapping[str, Any]) -> Figure:
    """Draw a map of each reader, windows in the colours of their classes."""
    figure = Figure(figsize=(3.0 * len(points), 3.0))
    labels = np.array(result["labels"])
    for axes, (name, of) in zip(figure.subplots(1, len(points)), points.items(), strict=True):
        places = np.array(of)
        for label, colour in zip(range(len(result["classes"])), cycle(COLOURS), strict=False):
            some = places[labels == label]
            axes.plot(
                some[:, 0], some[:, 1], ".", color=colour, markersize=2.5, alpha=0.7,
                label=result["classes"][label],
            )  # fmt: skip
        axes.set(title=_SPOKEN.get(name, name), xticks=[], yticks=[])
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1), markerscale=3)
    return figure
