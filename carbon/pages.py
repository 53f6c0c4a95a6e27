"""How reports look: pages that need no other file, and the pictures in them.

Colours are those of Okabe and Ito (2008), told apart by any eye. Drawing needs matplotlib.
"""

import html
import io
from collections.abc import Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from carbon.pictures import PICTURE_STYLE

PAGE_STYLE: dict[Any, Any] = PICTURE_STYLE | {"font.size": 11}
"""What is drawn for a page is drawn in this context."""

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#777777"
COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9", "#000000")

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #1a1a1a; background: #fff; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.2rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
td, th { padding: .25rem .9rem .25rem 0; text-align: left; }
td:not(:first-child) { font-variant-numeric: tabular-nums; }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; }
.sequence { font: 14px/1.6 ui-monospace, monospace; overflow-wrap: anywhere; }
.A { color: #00714f; } .C { color: #0060a0; } .G { color: #8a5a00; } .T { color: #b8432f; }
small, figcaption { color: #555; }
"""

Row = tuple[str, ...]


def axes_of(width: float, height: float) -> tuple[Figure, Any]:
    """Return a figure of so many inches and its axes, open at the top and on the right."""
    figure = Figure(figsize=(width, height))
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


@rc_context(PAGE_STYLE)
def svg_of(figure: Figure) -> str:
    """Return a figure as an `svg` element; equal figures give equal bytes."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def html_table(rows: Sequence[Row], header: Row) -> str:
    """Return a table; cells are text."""

    def line(cells: Row, tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{line(header, 'th')}{''.join(line(row, 'td') for row in rows)}</table>"


def interval(estimate: dict[str, Any], digits: int = 3) -> str:
    """Write a value and its interval; a dash where there is none."""
    value, low, high = (estimate[key] for key in ("value", "low", "high"))
    if value is None or low is None or high is None:
        return "-" if value is None else f"{value:.{digits}f}"
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def html_page(title: str, small: str, body: str) -> str:
    """Return a whole page that needs nothing but itself."""
    shown = html.escape(title)
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'>"
        f"<meta name='viewport' content='width=device-width'><title>{shown}</title>"
        f"<style>{STYLE}</style><h1>{shown}</h1><small>{small}</small>{body}</html>\n"
    )
