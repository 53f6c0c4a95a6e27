"""Markdown for model cards of the Hugging Face Hub."""

import html
from collections.abc import Sequence

_NO_LICENCE = """\
# Not chosen yet: put the identifier of a licence here, such as apache-2.0, and drop its name.
license: other
license_name: unknown
"""


def plain(text: str) -> str:
    r"""Escape Markdown and HTML in text.

    >>> plain("a|b <c>")
    'a\\|b &lt;c&gt;'
    """
    for mark in "\\`*[]|":
        text = text.replace(mark, f"\\{mark}")
    return html.escape(" ".join(text.split()), quote=False)


def table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> str:
    """Return a Markdown table; cells are text."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(plain(cell) for cell in cells) + " |\n"

    return line(header) + "|---" * len(header) + "|\n" + "".join(map(line, rows))


def card_front(library: str, pipeline: str, licence: str | None = None, measured: str = "") -> str:
    """Return the metadata block of a model card.

    Args:
        library: that loads the model.
        pipeline: task name of the Hub.
        licence: identifier of a licence; None writes a placeholder.
        measured: lines of YAML, `model-index` with results.

    Source: huggingface.co/docs/hub/model-cards, "Model card metadata".
    """
    chosen = f"license: {licence}\n" if licence else _NO_LICENCE
    tags = "".join(f"- {tag}\n" for tag in ("dna", "genomics", "biology", "carbon"))
    metadata = f"library_name: {library}\npipeline_tag: {pipeline}\n{chosen}"
    return f"---\n{metadata}tags:\n{tags}{measured}---\n"
