"""Figures of a region: a track that turns into letters, and a dependency map."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carbon.genome import Interval, reverse_complement
from carbon.genome.genome import Genome
from demo import figures as f
from demo.arrays import SMOOTHED_BP, as_lists, smoothed
from demo.coding import residues
from demo.logo import letter_heights, logo_polygons
from demo.panel import Result

_MOST_LETTERS_BP = 150  # in view: fewer bases are drawn as letters
_LEAST_TOP_BITS = 0.5
_LEAST_LETTER_PIXELS = 8
_LAST_PERCENTILE = 99.5  # a few extremes would leave all other cells pale

Floats = NDArray[np.float64]
_Drawn = tuple[list[dict[str, Any]], dict[str, Any]]
"""Traces, and what the axis of bits adds."""


def track_figure(
    genome: Genome,
    interval: Interval,
    view: Interval,
    result: Result,
    title: str,
    marked: Sequence[int],
    *,
    turns_into_letters: bool,
) -> f.Figure:
    """Return bits along a region above its genes, smoothed or as letters, or as bars of bases.

    Args:
        genome: genome of the region.
        interval: the region.
        view: the part that is in view.
        result: `bits` and `log_probabilities` of each base.
        title: title of the axis of bits.
        marked: 0-based positions that the visitor asked about.
        turns_into_letters: draw a logo where few bases are in view, and else a smoothed track; the
            page then follows each zoom.
    """
    is_near = view.length_bp <= _MOST_LETTERS_BP
    draw = (_letters if is_near else _area) if turns_into_letters else _bars
    traces, axis = draw(genome, interval, view, result)
    genes = genome.genes_in(interval)
    return f.figure(
        [*traces, *f.gene_traces(genes, interval, "y2")],
        height=420,
        meta={"follows": turns_into_letters},
        showlegend=False,
        xaxis=f.position_axis(view, anchor="y2" if genes else "y"),
        yaxis={"domain": [0.34, 1], "fixedrange": True, "title": {"text": title}}
        | axis,
        yaxis2=f.gene_axis((0, 0.24), len(genes)),
        shapes=[_mark(position) for position in marked],
    )  # fmt: skip


def map_figure(interval: Interval, cells: Floats, pairs: Sequence[tuple[int, int]]) -> f.Figure:
    """Return a dependency map, in log2 odds, with known base pairs marked.

    Args:
        interval: the region.
        cells: (bases, bases), symmetric; NaN for unknown bases.
        pairs: 0-based positions on the contig that pair in the folded molecule.
    """
    known = cells[~np.isnan(cells)]
    most = float(np.percentile(known, _LAST_PERCENTILE)) if known.size else 1.0
    both_ways = [*pairs, *((last, first) for first, last in pairs)]
    axis = f.position_axis(interval, constrain="domain", showgrid=False, zeroline=False)
    marks = {
        "type": "scatter", "mode": "markers", "hoverinfo": "skip", "name": "base pairs of the tRNA",
        "x": [first + 1 for first, _ in both_ways], "y": [last + 1 for _, last in both_ways],
        "marker": {"symbol": "square-open", "size": 6, "color": f.ORANGE, "line": {"width": 1.5}},
    }  # fmt: skip
    heat = {
        "type": "heatmap", "z": as_lists(cells, 3), "x0": interval.start + 1, "dx": 1,
        "y0": interval.start + 1, "dy": 1, "zmin": 0, "zmax": most,
        "colorscale": [[0, "rgba(0,114,178,0)"], [1, f.BLUE]],
        "colorbar": {"title": {"text": "log2 odds"}, "thickness": 12, "orientation": "h",
                     "y": -0.16, "yanchor": "top"},
        "hovertemplate": "%{x:,d} and %{y:,d}: %{z:.2f}<extra></extra>",
    }  # fmt: skip
    return f.figure(
        [heat, *([marks] if pairs else [])],
        height=600,
        showlegend=bool(pairs),
        xaxis=axis,
        yaxis=axis | {"range": axis["range"][::-1], "scaleanchor": "x", "title": None},
    )


def _area(genome: Genome, interval: Interval, view: Interval, result: Result) -> _Drawn:
    heights = smoothed(np.array(result["bits"], dtype=float))
    trace = {
        "type": "scatter", "mode": "lines", "fill": "tozeroy", "name": "bits",
        "x0": interval.start + 1, "dx": 1, "y": as_lists(heights, 3),
        "line": {"color": f.BLUE, "width": 1},
        "hovertemplate": f"%{{x:,d}}: %{{y:.2f}} bits, mean of {SMOOTHED_BP} bases<extra></extra>",
    }  # fmt: skip
    return [trace], {"title": {"text": f"bits, mean of {SMOOTHED_BP} bases"}}


def _bars(genome: Genome, interval: Interval, view: Interval, result: Result) -> _Drawn:
    trace = {
        "type": "bar", "name": "bits", "x0": interval.start + 1, "dx": 1, "y": result["bits"],
        "marker": {"color": f.BLUE}, "text": list(result["bases"]), "textposition": "none",
        "hovertemplate": "%{x:,d} %{text}: %{y:.2f} bits<extra></extra>",
    }  # fmt: skip
    return [trace], {}


def _letters(genome: Genome, interval: Interval, view: Interval, result: Result) -> _Drawn:
    """Return a logo with both strands below it, and amino acids; also just outside the view."""
    start = max(interval.start, view.start - view.length_bp)
    end = min(interval.end, view.end + view.length_bp)
    inside = slice(start - interval.start, end - interval.start)
    positions, bases = list(range(start + 1, end + 1)), result["bases"][inside].upper()
    p = np.exp(np.array(result["log_probabilities"], dtype=float)[inside])
    heights = letter_heights(p)
    top = max(_LEAST_TOP_BITS, 1.1 * float(heights.sum(axis=1).max()))
    traces: list[dict[str, Any]] = [
        {"type": "scatter", "mode": "lines", "fill": "toself", "name": base, "x": x, "y": y,
         "fillcolor": f.BASE_COLORS[base], "line": {"width": 0}, "hoverinfo": "skip"}
        for base, (x, y) in logo_polygons(heights, start + 1).items()
    ]  # fmt: skip
    hovers = [_four(row) for row in p]
    traces += [
        _texts("forward strand", positions, -0.09 * top, bases, hovers, _LEAST_LETTER_PIXELS),
        _texts("reverse strand", positions, -0.19 * top, reverse_complement(bases)[::-1], hovers,
               _LEAST_LETTER_PIXELS),
    ]  # fmt: skip
    acids = [
        (residue.places[1] + 1, residue.amino_acid, f"{f.plain(gene.name)} {residue.number}")
        for gene in genome.genes_in(interval) for transcript in gene.transcripts[:1]
        for residue in residues(genome.reference, transcript)
        if start <= residue.places[1] < end
    ]  # fmt: skip
    if acids:
        x, letters, numbers = zip(*acids, strict=True)
        least_pixels = _LEAST_LETTER_PIXELS / 3
        traces.append(_texts("amino acids", list(x), -0.3 * top, letters, numbers, least_pixels))
    ticks = [round(0.25 * n, 2) for n in range(int(top / 0.25) + 1)]
    return traces, {
        "range": [-0.36 * top, top],
        "tickvals": [*ticks, -0.09 * top, -0.19 * top],
        "ticktext": [*(f"{tick:g}" for tick in ticks), "5'→3'", "3'→5'"],
        "showgrid": False,
        "title": {"text": "bits, of 2"},
    }


def _four(p: Floats) -> str:
    """Return the probabilities of the four bases, the likeliest first; empty if unknown."""
    if np.isnan(p).any():
        return "-"
    ranked = sorted(zip(p.tolist(), "ACGT", strict=True), reverse=True)
    return ", ".join(f"{base} {100 * share:.0f} %" for share, base in ranked)


def _texts(
    name: str, x: list[int], y: float, letters: Sequence[str], hovers: Sequence[str],
    least_pixels: float,
) -> dict[str, Any]:  # fmt: skip
    return {
        "type": "scatter", "mode": "text", "name": name, "x": x, "y": [y] * len(x),
        "text": list(letters), "hovertext": list(hovers),
        "hovertemplate": "%{x:,d} %{text}: %{hovertext}<extra></extra>",
        "textfont": {"family": "ui-monospace, monospace"},
        "meta": {"least_pixels_per_base": least_pixels},
    }  # fmt: skip


def _mark(position: int) -> dict[str, Any]:
    """Return a line through both axes at a position."""
    return {"type": "line", "x0": position + 1, "x1": position + 1, "yref": "paper", "y0": 0,
            "y1": 1, "line": {"color": f.ORANGE, "width": 2, "dash": "dot"}}  # fmt: skip
