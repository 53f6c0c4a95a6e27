"""The card of a model, at the head of every page."""

from demo.lab import Lab
from demo.markup import escape, facts


def model_card(lab: Lab) -> str:
    """Return a one-line description of the model, which opens to its size, data and hours."""
    about = lab.about
    genome = " and ".join(file.rpartition("/")[2] for file in lab.genome.shown_files)
    simulated = "; it is a simulated genome" if lab.is_simulated else ""
    pairs: list[tuple[str, str]] = [("genome that is open", f"{genome}{simulated}")]
    what = ""
    if about:
        hours = f"about {about.hours:.2g}" if about.hours is not None else "not written down"
        pairs = [
            ("trained on", about.trained_on or "not written down"),
            ("parameters", f"{about.num_parameters:,}"),
            ("reads at once", f"{about.context_bp:,} bases"),
            ("hours of training", hours),
            *pairs,
        ]
        what = f": {about.what}" if about.what else ""
    told = " · a simulated genome" if simulated else ""
    return (
        '<header class="model"><details><summary><strong>Carbon</strong> '
        f"{escape(lab.shown_name + what + told)}</summary>{facts(pairs)}</details>"
        '<a href="/api">for programs</a></header>'
    )
