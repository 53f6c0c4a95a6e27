"""Small pieces of HTML; everything that comes from a visitor or a file is escaped here."""

import html
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote, urlencode


class Html(str):
    """Markup of the demo's own, which a cell of a table shows unescaped."""


class Number(str):
    """A number that is formatted already, aligned in a table as numbers are."""


def escape(text: object) -> str:
    """Return text escaped for HTML, so that a browser shows it literally."""
    return html.escape(str(text))


def shortened(text: str, most_letters: int = 40) -> str:
    """Return the beginning of a long name."""
    return text if len(text) <= most_letters else f"{text[: most_letters - 1]}…"


def paragraph(text: str) -> str:
    """Return a paragraph of plain text."""
    return f"<p>{escape(text)}</p>"


def table(header: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """Return a table that scrolls sideways on narrow pages; numbers are right-aligned, None is
    an empty cell.
    """
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll" tabindex="0"><table class="plain">{title}<thead><tr>{head}</tr>'
        f"</thead><tbody>{body}</tbody></table></div>"
    )


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """Return a row of names with their values."""
    items = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in pairs)
    return f'<dl class="facts">{items}</dl>'


def download(name: str, text: str) -> str:
    """Return a link that saves a text; the link contains the text, so the server stores no file."""
    address = f"data:text/plain;charset=utf-8,{quote(text)}"
    shown = escape(name)
    return f'<a class="chip" download="{shown}" href="{address}">Download {shown}</a>'


def tsv(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table with a header; missing values are `.`."""
    lines = ("\t".join("." if v is None else str(v) for v in row) for row in rows)
    return "\n".join(["\t".join(names), *lines, ""])


def link_chip(address: str, text: str, title: str = "") -> str:
    """Return a link to a state of a page; `title` is the tooltip."""
    said = f' title="{escape(title)}"' if title else ""
    return f'<a class="chip" href="{escape(address)}"{said}>{escape(text)}</a>'


def share_box(link: str, title: str, sentence: str) -> str:
    """Return a box with the link of a state, and the preview and picture that others will see."""
    picture = f"/carbon/card.png?{urlencode({'state': link})}"
    return (
        '<details class="share"><summary class="chip">Share</summary>'
        f'<label>Link to this state <input readonly value="{escape(link)}"></label>'
        '<button class="chip" data-copy>Copy the link</button>'
        f'<a class="chip" download="carbon.png" href="{escape(picture)}">Download a PNG</a>'
        f'<figure><img loading="lazy" alt="" src="{escape(picture)}">'
        f"<figcaption><b>{escape(title)}</b> {escape(sentence)}</figcaption></figure></details>"
    )


def _cell(value: object) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, Html):
        return f"<td>{value}</td>"
    if isinstance(value, Number):
        return f'<td class="number">{escape(value)}</td>'
    if isinstance(value, float):
        return f'<td class="number">{value:.4g}</td>'
    if isinstance(value, int):
        return f'<td class="number">{value:,}</td>'
    return f"<td>{escape(value)}</td>"
