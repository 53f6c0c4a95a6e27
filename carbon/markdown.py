"""Markdown of cards, with what comes from files escaped."""

import html
from collections.abc import Sequence


def plain(text: str) -> str:
    r"""Escape what Markdown or HTML would take for more than text.

    >>> plain("a|b <c>")
    'a\\|b &lt;c&gt;'
    """
    for mark in "\\`*[]|":
        text = text.replace(mark, f"\\{mark}")
    return html.escape(" ".join(text.split()), quote=False)


def table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> str:
    """Return a table; cells are text."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(plain(cell) for cell in cells) + " |\n"

    return line(header) + "|---" * len(header) + "|\n" + "".join(map(line, rows))
