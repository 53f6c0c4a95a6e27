"""Markdown of cards, with what comes from files escaped."""

import html
from collections.abc import Sequence

_NO_LICENCE = """\
# Not chosen yet: put the identifier of a licence here, such as apache-2.0, and drop its name.
license: other
license_name: unknown
"""


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


def card_front(library: str, pipeline: str, licence: str | None = None, measured: str = "") -> str:
    """Return what a model card of the Hub begins with; no licence says that none is chosen.

    Args:
        library: that loads the model.
        pipeline: what the Hub calls the task.
        licence: identifier of a licence.
        measured: lines of YAML, `model-index` with what was measured.

    Source: huggingface.co/docs/hub/model-cards, "Model card metadata".
    """
    chosen = f"license: {licence}\n" if licence else _NO_LICENCE
    tags = "".join(f"- {tag}\n" for tag in ("dna", "genomics", "biology", "carbon"))
    what = f"library_name: {library}\npipeline_tag: {pipeline}\n{chosen}"
    return f"---\n{what}tags:\n{tags}{measured}---\n"
