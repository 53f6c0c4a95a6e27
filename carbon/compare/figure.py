"""The picture of a comparison: each allele by its two scores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib import colormaps, rc_context
from matplotlib.figure import Figure

from carbon.compare.scored_files import KINDS, members
from carbon.reports.figures import PICTURE_METADATA, PICTURE_STYLE

MOST_POINTS = 5000  # of more, points hide one another
_MOST_GROUPS = 8  # colours that can be told apart
_MOST_NAMED = 8
# Okabe and Ito (2008): told apart by the colour-blind.
_COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999900", "#000000"
)  # fmt: skip
_OTHERS = "#9a9a9a"
_SIDES_OF_A_POINT = (
    ((6, 4), "left"), ((6, -11), "left"), ((-6, 4), "right"), ((-6, -11), "right")
)  # fmt: skip


def draw_comparison(pairs: pa.Table, summary: Mapping[str, Any], path: Path) -> None:
    """Draw a scatter into a .png, .svg or .pdf; of more than 5,000 alleles, how many lie where.

    The dashed line is where both scores are one. The alleles whose ranks differ most are named.

    Args:
        pairs: compared alleles, with the columns of `COLUMNS`.
        summary: of the comparison.
        path: to write to.
    """
    with rc_context(PICTURE_STYLE):
        figure = Figure(figsize=(7.5, 7), layout="constrained")
        axes = figure.subplots()
        a, b = (pairs[side].to_numpy() for side in "ab")
        if len(pairs) > MOST_POINTS:
            _draw_density(figure, axes, a, b)
        else:
            _draw_points(figure, axes, pairs)
        axes.axline((0, 0), slope=1, color="black", linewidth=0.8, linestyle="--", zorder=1)
        for line in (axes.axhline, axes.axvline):
            line(0, color="#bbbbbb", linewidth=0.5, zorder=0)
        _name_alleles(figure, axes, summary["top"][:_MOST_NAMED])
        labels = (f"delta, nats: {label}" for label in summary["labels"])
        axes.set(xlabel=next(labels), ylabel=next(labels))
        axes.set_title(_title(summary["overall"]), fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, dpi=150, metadata=PICTURE_METADATA[path.suffix])


def _draw_density(figure: Figure, axes: Any, a: Any, b: Any) -> None:
    bins = axes.hexbin(a, b, gridsize=80, bins="log", mincnt=1, cmap=colormaps["viridis"])
    figure.colorbar(bins, ax=axes, pad=0.01, aspect=40).set_label("alleles")


def _draw_points(figure: Figure, axes: Any, pairs: pa.Table) -> None:
    """Draw a point an allele, by consequence where that is known and by kind elsewhere."""
    a, b = (pairs[side].to_numpy() for side in "ab")
    size = 14 if len(pairs) < 1000 else 5
    is_drawn = np.zeros(len(pairs), dtype=bool)
    for (name, chosen), colour in zip(_groups(pairs).items(), _COLOURS, strict=False):
        is_drawn |= chosen
        label = f"{name.replace('_', ' ')} ({chosen.sum():,})"
        axes.scatter(a[chosen], b[chosen], s=size, color=colour, alpha=0.7, lw=0, label=label)
    if not is_drawn.all():
        label = f"others ({(~is_drawn).sum():,})"
        axes.scatter(
            a[~is_drawn], b[~is_drawn], s=size, color=_OTHERS, alpha=0.7, lw=0, label=label
        )
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False, markerscale=1.5)


def _groups(pairs: pa.Table) -> dict[str, Any]:
    """Return the groups that have a colour of their own; a kind always has the same one."""
    if "consequence" in pairs.column_names:
        labels = pairs["consequence"].to_numpy(zero_copy_only=False)
        return dict(list(members(labels).items())[:_MOST_GROUPS])
    labels = pairs["kind"].to_numpy(zero_copy_only=False)
    return {kind: labels == kind for kind in KINDS if (labels == kind).any()}


def _name_alleles(figure: Figure, axes: Any, top: list[dict[str, Any]]) -> None:
    """Circle and name alleles, each name on the first side where it covers no other."""
    for allele in top:
        axes.plot(allele["a"], allele["b"], "o", ms=7, mfc="none", mec="black", mew=0.8)
    figure.draw_without_rendering()  # so that it is known what stands where
    taken = [line.get_window_extent() for line in axes.lines[len(axes.lines) - len(top) :]]
    for allele in top:
        name, point = _name_of(allele), (allele["a"], allele["b"])
        for place, side in _SIDES_OF_A_POINT:
            text = axes.annotate(
                name, point, place, textcoords="offset points", ha=side, fontsize=8
            )
            box = text.get_window_extent()
            if (place, side) == _SIDES_OF_A_POINT[-1] or not box.count_overlaps(taken):
                break
            text.remove()
        taken.append(box)


def _name_of(allele: Mapping[str, Any]) -> str:
    if allele.get("gene"):
        return str(allele["gene"])
    return f"{allele['contig']}:{allele['position']:,}" if allele["id"] == "." else allele["id"]


def _title(overall: Mapping[str, Any]) -> str:
    found = {name: overall[name]["value"] for name in ("pearson", "spearman")}
    shown = [f"{name.title()} {value:.2f}" for name, value in found.items() if value is not None]
    return ", ".join([f"{overall['n']:,} alleles", *shown])
