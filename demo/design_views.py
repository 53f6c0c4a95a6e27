"""Candidates of a design search: their order, their Pareto front and its figure."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from carbon.design.benchmark_functions import CHANCE_NATS
from carbon.design.goals import fronts
from carbon.design.strategies import Candidate
from demo.figures import BLUE, GREY, ORANGE, Figure, figure
from demo.markup import facts, table
from demo.panel import Result

_COLUMNS = ("name", "value", "nats_per_base", "round", "bases")
_COPIED = ("name", "nats_per_base", "round", "parent", "bases")


def candidates_to_json(history: Sequence[Candidate]) -> list[dict[str, Any]]:
    """Return the candidates of a search with one scoring function, the best first.

    The best has the largest value and, among equal values, the fewest nats per base; so no other
    candidate is better in one and as good in the other.

    Returns:
        For each `name`, `value`, `nats_per_base`, `round`, `parent`, `bases`, and `front`: whether
        no other candidate dominates it.
    """
    front = set(fronts(np.array([[c.values[0], -c.nats_per_base] for c in history]), 1)[0])
    candidates = [
        {"value": c.values[0], "front": n in front} | {name: getattr(c, name) for name in _COPIED}
        for n, c in enumerate(history)
    ]
    return sorted(candidates, key=lambda each: (-each["value"], each["nats_per_base"]))


def front_figure(candidates: Sequence[Result]) -> Figure:
    """Return every candidate, later rounds darker, and a line along the Pareto front."""
    front = [each for each in candidates if each["front"]]
    last = max(each["round"] for each in candidates) or 1

    def trace(name: str, some: Sequence[Result], mode: str, **style: Any) -> dict[str, Any]:
        return {"type": "scatter", "mode": mode, "name": name, **style,
                "x": [each["value"] for each in some],
                "y": [each["nats_per_base"] for each in some],
                "text": [f"{each['name']}, round {each['round']}" for each in some],
                "hovertemplate": "%{text}<br>%{x:.3f}, %{y:.3f} nats<extra></extra>"}  # fmt: skip

    fade = [0.25 + 0.75 * each["round"] / last for each in candidates]
    return figure(
        [
            trace("designs, later rounds darker", candidates, "markers",
                  marker={"color": BLUE, "opacity": fade, "size": 8}),
            trace("Pareto front", front, "lines", line={"color": GREY, "dash": "dot"}),
            trace("the best", candidates[:1], "markers",
                  marker={"symbol": "star", "size": 18, "color": ORANGE}),
        ],
        height=440,
        xaxis={"title": {"text": "score; higher is better"}},
        yaxis={"title": {"text": "nats per base; lower is likelier"}, "autorange": "reversed"},
        shapes=[{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": CHANCE_NATS,
                 "y1": CHANCE_NATS, "line": {"color": GREY, "width": 1, "dash": "dash"}}],
        annotations=[{"xref": "paper", "x": 0, "xanchor": "left", "y": CHANCE_NATS,
                      "yanchor": "bottom", "showarrow": False, "text": "a blind guess"}],
    )  # fmt: skip


def search_facts(candidates: Sequence[Result], calls: int) -> str:
    """Return the search in numbers."""
    best = candidates[0]
    return facts([
        ("scored", f"{len(candidates):,} of {calls:,}"),
        ("best score", f"{best['value']:.4f}"),
        ("its nats per base", f"{best['nats_per_base']:.4f}"),
        ("a blind guess", f"{CHANCE_NATS:.4f}"),
    ])  # fmt: skip


def design_table(candidates: Sequence[Result]) -> str:
    """Return the candidates as a table."""
    rows = ([each[name] for name in _COLUMNS] for each in candidates)
    return table(("name", "score", "nats per base", "round", "bases"), rows, "The best designs")
