"""Plotly figures as plain data: `{"data": traces, "layout": layout}`."""

from collections.abc import Iterable, Sequence
from typing import Any

from carbon.genome import Gene, Interval, Span
from demo.markup import shortened

Figure = dict[str, Any]

# Okabe and Ito (2008): distinguishable for colour-blind readers. One meaning per colour: BLUE is a
# number of the model, ORANGE what the visitor asked about, GREY what it is compared with. The
# colours of bases mean bases alone.
BASE_COLORS = {"A": "#009E73", "C": "#56B4E9", "G": "#E69F00", "T": "#CC79A7"}
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#888888"
SEQUENTIAL = "Cividis"
DIVERGING = [[0.0, "#762a83"], [0.5, "#f2f2f2"], [1.0, "#1b7837"]]  # less, equally, more likely
_MOST_GENES = 40
_LANES = 4
_LABEL_BELOW = 0.55  # share of a lane's height


def figure(traces: Sequence[dict[str, Any]], height: int = 320, **layout: Any) -> Figure:
    """Return a figure; the page adds fonts, grid and colours of its theme."""
    return {"data": list(traces), "layout": {"height": height, **layout}}


def positions(interval: Interval) -> list[int]:
    """Return the 1-based positions of an interval's bases, as in genome browsers."""
    return list(range(interval.start + 1, interval.end + 1))


def position_axis(interval: Interval, **more: Any) -> dict[str, Any]:
    """Return the x axis of positions on a contig, over an interval."""
    return {
        "title": {"text": f"position on {plain(interval.contig)}"}, "tickformat": ",d",
        "nticks": 4, "range": [interval.start + 0.5, interval.end + 0.5], **more,
    }  # fmt: skip


def gene_traces(genes: Iterable[Gene], interval: Interval, axis: str) -> list[dict[str, Any]]:
    """Return the first transcript of each gene: a line with its exons, the CDS thicker.

    Args:
        genes: genes to draw, each in its own lane.
        interval: visible interval.
        axis: Plotly's name of the y axis, such as `y2`.
    """
    traces = []
    for lane, gene in enumerate(list(genes)[:_MOST_GENES]):
        transcript = gene.transcripts[0] if gene.transcripts else None
        exons = transcript.exons if transcript else ((gene.interval.start, gene.interval.end),)
        coding = transcript.cds if transcript else ()
        arrow = "→" if gene.strand == "+" else "←"
        label = f"{plain(shortened(gene.name, 24))} {arrow}"
        y = -(lane % _LANES)
        for spans, width in (
            (((gene.interval.start, gene.interval.end),), 1),
            (exons, 6),
            (coding, 14),
        ):
            clipped = [_clipped(span, interval) for span in spans]
            inside = [span for span in clipped if span]
            if inside:
                traces.append(bars(inside, y, width, label, axis))
        start = max(gene.interval.start, interval.start)
        traces.append({
            "type": "scatter", "mode": "text", "x": [start + 1], "y": [y - _LABEL_BELOW],
            "yaxis": axis, "text": [label], "textposition": "middle right", "hoverinfo": "skip",
            "showlegend": False, "cliponaxis": False,
        })  # fmt: skip
    return traces


def gene_axis(domain: tuple[float, float], num_genes: int) -> dict[str, Any]:
    """Return the y axis for `num_genes` lanes of genes."""
    lanes = min(max(num_genes, 1), _LANES)
    span = [0.4 - lanes - _LABEL_BELOW / 2, 0.5]
    return {"domain": list(domain), "visible": False, "fixedrange": True, "range": span}


def stacked_axes(number: int) -> list[str]:
    """Return Plotly's suffixes of the y axes of stacked rows: none, then 2, 3 and so on."""
    return ["", *map(str, range(2, number + 1))]


def plain(text: str) -> str:
    """Return text that Plotly shows literally; Plotly would interpret some markup otherwise."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _clipped(span: Span, interval: Interval) -> Span | None:
    start, end = max(span[0], interval.start), min(span[1], interval.end)
    return (start, end) if start < end else None


def bars(
    spans: Iterable[Span], y: float, width: int, label: str, axis: str, color: str = BLUE
) -> dict[str, Any]:
    """Return horizontal bars as one trace: segments with gaps between."""
    x: list[float | None] = []
    for start, end in spans:
        x += [start + 0.5, end + 0.5, None]
    return {
        "type": "scatter", "mode": "lines", "x": x, "y": [y if v is not None else None for v in x],
        "yaxis": axis, "line": {"color": color, "width": width}, "hoverinfo": "text",
        "text": label, "name": label, "showlegend": False,
    }  # fmt: skip
