"""Pictures of a corpus in SVG: bars, and histograms whose bars say their numbers."""

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from carbon.progress import shown

_BINS_A_LABEL = 10
_WIDTH, _PLOT, _BAR = 340, 100, 40  # of pictures, of a histogram, from bar to bar
_LETTER, _LINE = 7, 16  # of text
_LABEL = "font-size='12' fill='var(--ink)'"
_TRAIN, _TEST = "fill='var(--blue)'", "fill='var(--orange)'"


def bar_chart(rows: Sequence[tuple[str, float]]) -> Markup:
    """Draw horizontal bars under their labels, each with its number."""
    most = max((value for _, value in rows), default=1) or 1
    parts = [
        f"<text {_LABEL} y='{y + 14}'>{html.escape(label)}</text>"
        f"<text {_LABEL} x='{_WIDTH}' y='{y + 14}' text-anchor='end'>{shown(value)}</text>"
        f"<rect {_TRAIN} y='{y + 19}' width='{_WIDTH * value / most:.1f}' height='14'/>"
        for y, (label, value) in zip(range(0, _BAR * len(rows), _BAR), rows, strict=True)
    ]
    return _svg(_BAR * len(rows), parts)


def histograms(bars: Mapping[str, Sequence[Sequence[int]]], edges: list[str]) -> dict[str, Markup]:
    """Draw one picture a source: the records of each bin, to train on and held out."""
    return {source: _histogram(pair, edges) for source, pair in bars.items()}


def _histogram(train_and_test: Sequence[Sequence[int]], edges: list[str]) -> Markup:
    columns = list(zip(*train_and_test, strict=True))
    most = max(max(map(sum, columns)), 1)
    step, bottom = _WIDTH / len(columns), _PLOT + 20
    parts = [f"<text {_LABEL} y='12'>up to {most:,} records a bar</text>"]
    for i, (train, test) in enumerate(columns):
        title = f"{edges[i]} to under {edges[i + 1]}: {train:,} to train on, {test:,} held out"
        at = f"x='{i * step:.1f}' width='{step - 0.6:.1f}'"
        low, high = _PLOT * train / most, _PLOT * test / most
        parts.append(
            f"<g><title>{title}</title>"
            f"<rect {_TRAIN} {at} y='{bottom - low:.1f}' height='{low:.1f}'/>"
            f"<rect {_TEST} {at} y='{bottom - low - high:.1f}' height='{high:.1f}'/></g>"
        )
    parts.append(f"<line stroke='var(--line)' y1='{bottom}' x2='{_WIDTH}' y2='{bottom}'/>")
    for i in range(0, len(edges), _BINS_A_LABEL):
        anchor = {0: "start", len(columns): "end"}.get(i, "middle")
        at = f"x='{i * step:.1f}' y='{bottom + 16}' text-anchor='{anchor}'"
        short = edges[i].replace(",000,000", "M").replace(",000", "k")
        parts.append(f"<text {_LABEL} {at}>{short}</text>")
    return _svg(bottom + 22, parts)


class Box(NamedTuple):
    """A box of a treemap, whose area is its share; `title` is escaped."""

    label: str
    title: str
    size: float
    inside: tuple["Box", ...] = ()


def treemap(box: Box) -> Markup:
    """Draw nested boxes, side by side along the longer edge of the box around them."""
    return _svg(_WIDTH, _boxes(box, 0, 0, _WIDTH, _WIDTH))


def _boxes(box: Box, x: float, y: float, width: float, height: float) -> Iterator[str]:
    yield (
        f"<g><title>{box.title}</title><rect {_TRAIN} fill-opacity='.2' stroke='var(--paper)' "
        f"x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}'/></g>"
    )
    if not box.inside and width > _LETTER * len(box.label) and height > _LINE:
        at = f"x='{x + 3:.1f}' y='{y + _LINE - 3:.1f}'"
        yield f"<text {_LABEL} {at}>{html.escape(box.label)}</text>"
    for each in box.inside:
        share = each.size / max(box.size, 1)
        if width >= height:
            yield from _boxes(each, x, y, width * share, height)
            x += width * share
        else:
            yield from _boxes(each, x, y, width, height * share)
            y += height * share


def _svg(height: int, parts: Iterable[str]) -> Markup:
    box = f"viewBox='0 0 {_WIDTH} {height}'"
    return Markup(f"<svg class='bars' {box} role='img'>{''.join(parts)}</svg>")
