"""Parts of an HTML page that needs no other file: tables, and pictures in SVG."""

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from carbon.console import TableRow, shown

_BINS_A_LABEL = 10
_WIDTH, _PLOT, _BAR = 340, 100, 40  # of pictures, of a histogram, from bar to bar
_LETTER, _LINE = 7, 16  # of text
# Colours are those of Okabe and Ito, told apart by any eye.
_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1a1a1a; --faint: #595959; --line: #ccc;
        --train: #0072B2; --test: #D55E00; }
@media (prefers-color-scheme: dark) { :root { --paper: #15181c; --ink: #e8e8e8; --faint: #adadad;
        --line: #444a50; --train: #56B4E9; --test: #E69F00; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 1.5rem auto;
       padding: 0 1rem; color: var(--ink); background: var(--paper); overflow-wrap: anywhere; }
h1 { margin: 0; } h2 { margin: 2.2rem 0 .3rem; } small, figcaption { color: var(--faint); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem;
        margin: .6rem 0; }
td, th { padding: .2rem .8rem .2rem 0; text-align: left; white-space: nowrap;
         border-bottom: 1px solid var(--line); }
.n { text-align: right; font-variant-numeric: tabular-nums; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(300px, 1fr)); gap: 1rem; }
figure { margin: .6rem 0; max-width: 420px; } svg { width: 100%; height: auto; display: block; }
svg text { font-size: 12px; fill: var(--ink); } svg line { stroke: var(--line); }
.train { fill: var(--train); color: var(--train); } .test { fill: var(--test); color: var(--test); }
"""


def html_page(title: str, small: str, sections: Iterable[str]) -> str:
    """Return a whole page under a title that is escaped."""
    title = html.escape(title)
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>"
        f"<small>{small}</small>{''.join(sections)}</html>\n"
    )


def section(title: str, text: str, *parts: str) -> str:
    """Return a heading, a paragraph, and what follows it; the text may hold tags."""
    return f"<h2>{title}</h2><p>{text}</p>{''.join(parts)}"


def grid(figures: Iterable[str]) -> str:
    """Put pictures side by side, as many as there is room for."""
    return f"<div class='grid'>{''.join(figures)}</div>"


def figure(caption: str, picture: str) -> str:
    """Put a picture under its caption."""
    return f"<figure><figcaption>{html.escape(caption)}</figcaption>{picture}</figure>"


def html_table(rows: Sequence[TableRow], header: tuple[str, ...]) -> str:
    """Return a table; columns that begin with a number are set on the right."""

    def line(row: TableRow, tag: str) -> str:
        cells = (
            f"<{tag}{' class=n' * right}>{html.escape(shown(cell))}</{tag}>"
            for cell, right in zip(row, numbers, strict=True)
        )
        return f"<tr>{''.join(cells)}</tr>"

    if not rows:
        return "<p>None.</p>"
    numbers = [not isinstance(cell, str) for cell in rows[0]]
    lines = line(header, "th") + "".join(line(row, "td") for row in rows)
    return f"<div class='scroll'><table>{lines}</table></div>"


def bar_chart(rows: Sequence[tuple[str, float]]) -> str:
    """Draw horizontal bars under their labels, each with its number."""
    most = max((value for _, value in rows), default=1)
    parts = [
        f"<text y='{y + 14}'>{html.escape(label)}</text>"
        f"<text x='{_WIDTH}' y='{y + 14}' text-anchor='end'>{shown(value)}</text>"
        f"<rect class='train' y='{y + 19}' width='{_WIDTH * value / most:.1f}' height='14'/>"
        for y, (label, value) in zip(range(0, _BAR * len(rows), _BAR), rows, strict=True)
    ]
    return _svg(_BAR * len(rows), parts)


def histograms(what: str, bars: Mapping[str, Sequence[Sequence[int]]], edges: list[str]) -> str:
    """Draw one picture a source: the records of each bin, to train on and held out."""
    return grid(
        figure(f"{source}: records by {what}.", _histogram(pair, edges))
        for source, pair in bars.items()
    )


def _histogram(train_and_test: Sequence[Sequence[int]], edges: list[str]) -> str:
    columns = list(zip(*train_and_test, strict=True))
    most = max(max(map(sum, columns)), 1)
    step, bottom = _WIDTH / len(columns), _PLOT + 20
    parts = [f"<text y='12'>up to {most:,} records a bar</text>"]
    for i, (train, test) in enumerate(columns):
        told = f"{edges[i]} to under {edges[i + 1]}: {train:,} to train on, {test:,} held out"
        at = f"x='{i * step:.1f}' width='{step - 0.6:.1f}'"
        low, high = _PLOT * train / most, _PLOT * test / most
        parts.append(
            f"<g><title>{told}</title>"
            f"<rect class='train' {at} y='{bottom - low:.1f}' height='{low:.1f}'/>"
            f"<rect class='test' {at} y='{bottom - low - high:.1f}' height='{high:.1f}'/></g>"
        )
    parts.append(f"<line y1='{bottom}' x2='{_WIDTH}' y2='{bottom}'/>")
    for i in range(0, len(edges), _BINS_A_LABEL):
        anchor = {0: "start", len(columns): "end"}.get(i, "middle")
        at = f"x='{i * step:.1f}' y='{bottom + 16}' text-anchor='{anchor}'"
        short = edges[i].replace(",000,000", "M").replace(",000", "k")
        parts.append(f"<text {at}>{short}</text>")
    return _svg(bottom + 22, parts)


class Box(NamedTuple):
    """A box of a treemap, whose area is its share; `told` is escaped and stands in its title."""

    label: str
    told: str
    size: float
    inside: tuple["Box", ...] = ()


def treemap(box: Box) -> str:
    """Draw boxes in boxes, side by side along the longer edge of what they lie in."""
    return _svg(_WIDTH, list(_boxes(box, 0, 0, _WIDTH, _WIDTH)))


def _boxes(box: Box, x: float, y: float, width: float, height: float) -> Iterator[str]:
    yield (
        f"<g><title>{box.told}</title><rect class='train' fill-opacity='.2' stroke='var(--paper)' "
        f"x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}'/></g>"
    )
    if not box.inside and width > _LETTER * len(box.label) and height > _LINE:
        yield f"<text x='{x + 3:.1f}' y='{y + _LINE - 3:.1f}'>{html.escape(box.label)}</text>"
    for each in box.inside:
        share = each.size / max(box.size, 1)
        if width >= height:
            yield from _boxes(each, x, y, width * share, height)
            x += width * share
        else:
            yield from _boxes(each, x, y, width, height * share)
            y += height * share


def _svg(height: int, parts: Iterable[str]) -> str:
    return f"<svg viewBox='0 0 {_WIDTH} {height}' role='img'>{''.join(parts)}</svg>"
