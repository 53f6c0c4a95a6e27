"""Small pieces of HTML, by templates that escape everything from a visitor or a file."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from carbon.reports.render import templates_in
from demo.words import many

_TEMPLATES = templates_in(Path(__file__).parent / "templates")


class Number(str):
    """A number that is formatted already, aligned in a table as numbers are."""


def render(template: str, **variables: Any) -> str:
    """Return a file of `templates/` with its variables; markup among them is `Markup`."""
    return _TEMPLATES.get_template(template).render(**variables)


def part(name: str, *arguments: Any, file: str = "parts.html") -> str:
    """Return a macro of a file of `templates/`; markup among its arguments is `Markup`."""
    macro = getattr(_TEMPLATES.get_template(file).module, name)
    return str(macro(*arguments))


def shortened(text: str, most_letters: int = 40) -> str:
    """Return the beginning of a long name."""
    return text if len(text) <= most_letters else f"{text[: most_letters - 1]}…"


def paragraph(text: str, look: str = "") -> str:
    """Return a paragraph of plain text; `look` is a class of the stylesheet."""
    return part("paragraph", text, look)


def table(header: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """Return a table that scrolls sideways on narrow pages; numbers are right-aligned, None is
    an empty cell.
    """
    return part("table", header, [list(map(_cell, row)) for row in rows], caption)


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """Return a row of names with their values."""
    return part("facts", pairs)


def download(name: str, text: str) -> str:
    """Return a link that saves a text; the link contains the text, so the server stores no file."""
    return part("download", name, f"data:text/plain;charset=utf-8,{quote(text)}")


def tsv(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table with a header; missing values are `.`."""
    lines = ("\t".join("." if v is None else str(v) for v in row) for row in rows)
    return "\n".join(["\t".join(names), *lines, ""])


def link_chip(address: str, text: str, title: str = "") -> str:
    """Return a link to a state of a page; `title` is the tooltip."""
    return part("chip", address, text, title)


def share_box(link: str, title: str, sentence: str) -> str:
    """Return a box with the link of a state, and the preview and picture that others will see."""
    picture = f"/carbon/card.png?{urlencode({'state': link})}"
    return part("share", link, picture, title, sentence)


def _cell(value: object) -> tuple[object, bool]:
    """Return the text of a cell, and whether it is a number."""
    match value:
        case None:
            return "", False
        case float():
            return f"{value:.4g}", True
        case int():
            return f"{value:,}", True
        case _:
            return value, isinstance(value, Number)


def _keywords(options: Mapping[str, Any]) -> str:
    """Return options as further arguments of a Python call."""
    return "".join(f", {name}={value!r}" for name, value in options.items())


def _flags(options: Mapping[str, Any]) -> str:
    """Return options as further words of a command line."""
    texts = {
        k: ",".join(map(str, v)) if isinstance(v, list) else str(v) for k, v in options.items()
    }
    return "".join(f" --{k.removesuffix('_bp')} {shlex.quote(v)}" for k, v in texts.items())


_TEMPLATES.filters |= {"flags": _flags, "keywords": _keywords}
_TEMPLATES.filters |= {"many": many, "quote": shlex.quote, "repr": repr}
