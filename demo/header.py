"""The head of every page: navigation, and details on the model."""

from collections.abc import Sequence

from demo.lab import Lab
from demo.markup import escape, facts


def page_header(pages: Sequence[tuple[str, str]], path: str) -> str:
    """Return the navigation.

    Args:
        pages: path and title of each page.
        path: path of the current page.
    """
    links = "".join(
        f'<a href="{escape(to)}"{" aria-current=page" if to == path else ""}>{escape(title)}</a>'
        for to, title in pages
    )
    return f'<nav class="pages" aria-label="Pages"><b>Carbon</b>{links}</nav>'


def model_details(lab: Lab) -> str:
    """Return a one-line description of the model, which opens to its size, data and hours."""
    about = lab.about
    genome = " and ".join(file.rpartition("/")[2] for file in lab.genome.shown_files)
    simulated = "; it is a simulated genome" if lab.is_simulated else ""
    pairs: list[tuple[str, str]] = [("genome", f"{genome}{simulated}")]
    description = ""
    if about:
        hours = f"about {about.hours:.2g}" if about.hours is not None else "not recorded"
        pairs = [
            ("training data", about.trained_on or "not recorded"),
            ("parameters", f"{about.num_parameters:,}"),
            ("context", f"{about.context_bp:,} bases"),
            ("hours of training", hours),
            *pairs,
        ]
        description = f": {about.what}" if about.what else ""
    suffix = " · a simulated genome" if simulated else ""
    return (
        '<details class="model"><summary>Model '
        f"{escape(lab.shown_name + description + suffix)}</summary>{facts(pairs)}"
        '<p><a href="/api">Use the demo from a program</a></p></details>'
    )
