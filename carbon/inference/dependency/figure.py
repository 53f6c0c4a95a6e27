"""Draw a dependency map: a square map, the influence of each base above it, genes below it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from carbon.genome import Gene
from carbon.inference.dependency.maps import DependencyMap
from carbon.inference.scan.figure import draw_genes, label_positions, longest_genes
from carbon.reports.figures import BLUE, DARK_GREY, INK, LINE, PICTURE_STYLE, save_picture

_MOST_CELLS = 1000  # of a side of the drawn map
_WIDTH, _SIDE = 8.0, 6.4
_COLOURS = LinearSegmentedColormap.from_list("dependency", ["white", BLUE, INK])
_LAST_PERCENTILE = 99.5  # a few extremes would leave all other values pale


def draw_dependency(found: DependencyMap, genes: Sequence[Gene], path: Path, title: str) -> None:
    """Draw a map into a .png, .svg or .pdf.

    Colours end at the 99.5th percentile. In a region of more than 1,000 bases a cell is the largest
    value of several. Unknown bases are grey.

    Args:
        found: the map.
        genes: overlapping genes; the longest six are drawn.
        path: output file.
        title: title of the figure.
    """
    shown, region = longest_genes(genes), found.interval
    heights = [0.9, _SIDE, *([0.25 * len(shown)] if shown else [])]
    first, last = region.start + 0.5, region.end + 0.5
    with rc_context(PICTURE_STYLE):
        figure = Figure(figsize=(_WIDTH, sum(heights) + 1.2), layout="constrained")
        axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
        figure.suptitle(title, fontsize=10)
        edges = np.arange(region.start, region.end + 1) + 0.5
        axes[0].stairs(np.nan_to_num(found.influence), edges, fill=True, color=DARK_GREY)
        axes[0].set_ylabel("mean e(i, .)\n(log2 odds)")
        axes[0].spines[["top", "right"]].set_visible(False)
        _draw_map(figure, axes[1], found)
        if shown:
            draw_genes(axes[2], region, shown)
        axes[0].set_xlim(first, last)
        label_positions(axes[1].xaxis)
        axes[-1].set_xlabel(f"position on {region.contig} (1-based)")
        save_picture(figure, path)


def _draw_map(figure: Figure, axes: Any, found: DependencyMap) -> None:
    cell_bp = -(-len(found.bases) // _MOST_CELLS)
    cells = _largest(found.dependency, cell_bp)
    known = cells[~np.isnan(cells)]
    most = float(np.percentile(known, _LAST_PERCENTILE)) if len(known) else 1.0
    first, last = found.interval.start + 0.5, found.interval.start + 0.5 + cell_bp * len(cells)
    axes.set_facecolor(LINE)
    image = axes.imshow(
        np.ma.masked_invalid(cells),
        cmap=_COLOURS,
        vmin=0,
        vmax=most or 1.0,
        aspect="auto",
        extent=(first, last, last, first),
        interpolation="nearest",
    )
    label_positions(axes.yaxis)
    axes.set_ylabel(f"position on {found.interval.contig}")
    bar = figure.colorbar(image, ax=axes, extend="max", pad=0.01, aspect=30)
    of_cells = "" if cell_bp == 1 else f", largest of {cell_bp} x {cell_bp} bp"
    bar.set_label(f"dependency (log2 odds{of_cells})")


def _largest(values: Any, cell_bp: int) -> Any:
    """Return the largest value of each square of cells; NaN if it has none."""
    if cell_bp == 1:
        return values
    starts = np.arange(0, len(values), cell_bp)
    rows = np.fmax.reduceat(values, starts, axis=0)
    return np.fmax.reduceat(rows, starts, axis=1)
