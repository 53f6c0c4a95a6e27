"""Draw a scan: a heat map of all SNVs of a region, their mean above it, genes below it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from carbon.genome import Gene, Interval
from carbon.genome.genes import exons_of
from carbon.inference.scan.score import SCANNED_BASES, ScanChunk
from carbon.reports.figures import (
    BLUE,
    DARK_GREY,
    LIGHT_BLUE,
    LIGHT_GREY,
    PICTURE_STYLE,
    save_picture,
)

_MOST_LETTERS_BP = 120
_MOST_COLUMNS = 2000  # about the pixels of the widest map
_MOST_GENES = 6
_REFERENCE_GREY, _MEAN_GREY = LIGHT_GREY, DARK_GREY
_GENE_BLUE, _EXON_BLUE = BLUE, LIGHT_BLUE
_MAP = "RdBu"
_LEGEND: dict[str, Any] = {
    "mean delta of a base's three SNVs": _MEAN_GREY,
    "SNV less likely than the reference": colormaps[_MAP](0.1),
    "SNV more likely": colormaps[_MAP](0.9),
    "reference base, or unknown": _REFERENCE_GREY,
}
_LEGEND_OF_GENES = {"coding exon (CDS)": _GENE_BLUE, "exon that is not coding": _EXON_BLUE}


def draw_scan(chunk: ScanChunk, genes: Sequence[Gene], path: Path, title: str) -> None:
    """Draw a scan into a .png, .svg or .pdf.

    The map is red where a base is less likely than the reference and blue where it is more likely,
    which colour-blind readers can distinguish. The reference, and bases without a delta, are grey.
    The colour range ends at the 99th percentile. In a region of more than 2,000 bases a column is
    the mean of several.

    Args:
        chunk: the region, ideally of 50 bp to some kbp.
        genes: overlapping genes; the longest six are drawn.
        path: output file.
        title: title of the figure.
    """
    shown = longest_genes(genes)
    length_bp = chunk.interval.length_bp
    gene_height = 0.25 * len(shown)
    heights = [1.1, 1.3, *([gene_height] if shown else [])]
    with rc_context(PICTURE_STYLE):
        width = float(np.clip(length_bp / 12, 9, 18))
        figure = Figure(figsize=(width, sum(heights) + 1.6), layout="constrained")
        axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
        figure.suptitle(title, fontsize=10)
        _draw_means(axes[0], chunk)
        _draw_map(figure, axes[1], chunk)
        if shown:
            draw_genes(axes[2], chunk.interval, shown)
        axes[0].set_xlim(chunk.interval.start + 0.5, chunk.interval.end + 0.5)
        label_positions(axes[0].xaxis)
        axes[-1].set_xlabel(f"position on {chunk.interval.contig} (1-based)")
        _draw_legend(figure, has_genes=bool(shown))
        save_picture(figure, path)


def _draw_legend(figure: Figure, *, has_genes: bool) -> None:
    """Draw a legend of the colours below the figure."""
    colours = {**_LEGEND, **(_LEGEND_OF_GENES if has_genes else {})}
    patches = [
        Patch(facecolor=colour, edgecolor="none", label=label) for label, colour in colours.items()
    ]
    figure.legend(handles=patches, loc="outside lower center", ncols=4, fontsize=8, frameon=False)


def _draw_means(axes: Any, chunk: ScanChunk) -> None:
    edges = np.arange(chunk.interval.start, chunk.interval.end + 1) + 0.5
    axes.stairs(chunk.mean_delta, edges, fill=True, color=_MEAN_GREY, linewidth=0)
    axes.axhline(0, color="black", linewidth=0.5)
    axes.set_ylabel("mean delta\n(nats)")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_map(figure: Figure, axes: Any, chunk: ScanChunk) -> None:
    # A column is a base, or the mean of several where single bases would be too narrow.
    deltas = np.ma.masked_invalid(np.where(chunk.is_base, np.nan, chunk.deltas))
    column_bp = -(-len(deltas) // _MOST_COLUMNS)
    starts = range(0, len(deltas), column_bp)
    columns = np.ma.stack([deltas[at : at + column_bp].mean(axis=0) for at in starts], axis=1)
    known = np.abs(columns.compressed())
    # A few extremes would leave all other values pale.
    most = float(np.percentile(known, 99)) if len(known) else 1.0
    axes.set_facecolor(_REFERENCE_GREY)
    first = chunk.interval.start + 0.5
    image = axes.imshow(
        columns,
        cmap=_MAP,
        vmin=-most,
        vmax=most,
        aspect="auto",
        extent=(first, first + column_bp * len(starts), 3.5, -0.5),
        interpolation="nearest",
    )
    axes.set_yticks(range(4), SCANNED_BASES)
    axes.set_ylabel("base")
    bar = figure.colorbar(image, ax=axes, extend="both", pad=0.01, aspect=8)
    bar.set_label("delta (nats)" if column_bp == 1 else f"delta (nats),\nmeans of {column_bp} bp")
    if chunk.interval.length_bp <= _MOST_LETTERS_BP:
        for number, base in enumerate(chunk.bases):
            if base in SCANNED_BASES:
                place = (chunk.interval.start + 1 + number, SCANNED_BASES.index(base))
                axes.text(*place, base, ha="center", va="center", fontsize=6, color="white")


def longest_genes(genes: Sequence[Gene]) -> list[Gene]:
    """Return the longest six genes, in the order of the contig."""
    longest = sorted(genes, key=lambda gene: (-gene.interval.length_bp, gene.gene_id))
    return sorted(longest[:_MOST_GENES], key=lambda gene: (gene.interval, gene.gene_id))


def label_positions(axis: Any) -> None:
    """Label an axis with whole positions, with commas between thousands."""
    axis.set_major_locator(MaxNLocator(8, integer=True))
    axis.set_major_formatter(lambda place, _: f"{place:,.0f}")


def draw_genes(axes: Any, region: Interval, genes: Sequence[Gene]) -> None:
    """Draw one row a gene: a line, thin boxes for exons of any transcript, thick ones for CDS."""
    for row, gene in enumerate(genes):
        ends = gene.interval.start + 0.5, gene.interval.end + 0.5
        axes.plot(ends, (row, row), color=_GENE_BLUE, linewidth=0.8)
        for kind, height, colour in (("exons", 0.45, _EXON_BLUE), ("cds", 0.7, _GENE_BLUE)):
            spans = exons_of(span for t in gene.transcripts for span in getattr(t, kind))
            boxes = [(start + 0.5, end - start) for start, end in spans]
            axes.broken_barh(boxes, (row - height / 2, height), color=colour, linewidth=0)
        first = max(gene.interval.start, region.start) + 0.5
        arrow = "\N{RIGHTWARDS ARROW}" if gene.strand == "+" else "\N{LEFTWARDS ARROW}"
        label = f"{gene.name} {arrow} "
        axes.text(first, row, label, ha="right", va="center", fontsize=8, clip_on=False)
    axes.set_ylim(len(genes) - 0.4, -0.6)
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)
