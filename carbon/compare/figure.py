"""Scatter plot of two scores of the same alleles."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps, rc_context
from matplotlib.figure import Figure

from carbon.compare.scored_files import KINDS, consequences_of, members
from carbon.reports.figures import COLOURS, LIGHT_GREY, OLIVE, PICTURE_STYLE, save_picture

MAX_POINTS = 5000  # more points would overlap: draw their density
_MAX_NAMES = 8
_COLOURS = (*COLOURS[:-1], OLIVE, COLOURS[-1])
_SIDES_OF_A_POINT = (
    ((6, 4), "left"), ((6, -11), "left"), ((-6, 4), "right"), ((-6, -11), "right")
)  # fmt: skip


def draw_comparison(pairs: pd.DataFrame, summary: Mapping[str, Any], path: Path) -> None:
    """Draw a scatter plot as .png, .svg or .pdf; for more than 5,000 alleles their density.

    On the dashed line both scores are equal. The alleles whose ranks differ most have names.

    Args:
        pairs: compared alleles, with the columns of `COLUMNS`.
        summary: of the comparison.
        path: to write to.
    """
    with rc_context(PICTURE_STYLE):
        figure = Figure(figsize=(7.5, 7), layout="constrained")
        axes = figure.subplots()
        a, b = (pairs[side].to_numpy() for side in "ab")
        if len(pairs) > MAX_POINTS:
            _draw_density(figure, axes, a, b)
        else:
            _draw_points(figure, axes, pairs)
        axes.axline((0, 0), slope=1, color="black", linewidth=0.8, linestyle="--", zorder=1)
        for line in (axes.axhline, axes.axvline):
            line(0, color="#bbbbbb", linewidth=0.5, zorder=0)
        _name_alleles(figure, axes, summary["top"][:_MAX_NAMES])
        labels = (f"delta, nats: {label}" for label in summary["labels"])
        axes.set(xlabel=next(labels), ylabel=next(labels))
        axes.set_title(_title(summary["overall"]), fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        save_picture(figure, path)


def _draw_density(figure: Figure, axes: Any, a: Any, b: Any) -> None:
    bins = axes.hexbin(a, b, gridsize=80, bins="log", mincnt=1, cmap=colormaps["viridis"])
    figure.colorbar(bins, ax=axes, pad=0.01, aspect=40).set_label("alleles")


def _draw_points(figure: Figure, axes: Any, pairs: pd.DataFrame) -> None:
    """Draw a point for each allele, coloured by consequence if known, otherwise by kind."""
    a, b = (pairs[side].to_numpy() for side in "ab")
    size = 14 if len(pairs) < 1000 else 5
    groups = _groups(pairs)
    colours = dict(zip(groups, _COLOURS, strict=False))
    others = ~np.any(list(groups.values()), axis=0)
    if others.any():
        groups["others"], colours["others"] = others, LIGHT_GREY
    for name, chosen in groups.items():
        label = f"{name.replace('_', ' ')} ({chosen.sum():,})"
        colour = colours[name]
        axes.scatter(a[chosen], b[chosen], s=size, color=colour, alpha=0.7, lw=0, label=label)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False, markerscale=1.5)


def _groups(pairs: pd.DataFrame) -> dict[str, Any]:
    """Return the groups that have their own colour; a kind always has the same one."""
    if "consequence" in pairs.columns:
        return dict(list(members(consequences_of(pairs)).items())[: len(_COLOURS)])
    labels = pairs["kind"].to_numpy()
    return {kind: labels == kind for kind in KINDS if (labels == kind).any()}


def _name_alleles(figure: Figure, axes: Any, top: list[dict[str, Any]]) -> None:
    """Circle and name alleles; each name is on the first side without an overlap."""
    for allele in top:
        axes.plot(allele["a"], allele["b"], "o", ms=7, mfc="none", mec="black", mew=0.8)
    figure.draw_without_rendering()  # computes the extents of labels
    taken = [line.get_window_extent() for line in axes.lines[len(axes.lines) - len(top) :]]
    for allele in top:
        name, point = _name_of(allele), (allele["a"], allele["b"])
        for place, side in _SIDES_OF_A_POINT:
            text = axes.annotate(
                name, point, place, textcoords="offset points", ha=side, fontsize=8
            )
            extent = text.get_window_extent()
            if (place, side) == _SIDES_OF_A_POINT[-1] or not extent.count_overlaps(taken):
                break
            text.remove()
        taken.append(extent)


def _name_of(allele: Mapping[str, Any]) -> str:
    if allele.get("gene"):
        return str(allele["gene"])
    return f"{allele['contig']}:{allele['position']:,}" if allele["id"] == "." else allele["id"]


def _title(overall: Mapping[str, Any]) -> str:
    values = {name: overall[name]["value"] for name in ("pearson", "spearman")}
    shown = [f"{name.title()} {value:.2f}" for name, value in values.items() if value is not None]
    return ", ".join([f"{overall['n']:,} alleles", *shown])
