"""Views of the panel `write`: what the model wrote in colours and numbers, and its designs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from carbon.design.benchmark_functions import CHANCE_NATS
from carbon.design.goals import fronts
from carbon.design.strategies import Candidate
from carbon.genome.alphabet import gc_share
from carbon.tokenizer import K
from demo.figures import BLUE, GREY, ORANGE, Figure, figure
from demo.markup import facts, paragraph, table
from demo.open_frames import open_frames
from demo.panel import Result

_LEAST_CODONS = 15
_PERCENTILES = 2, 98  # colours span these, so that a few extremes do not hide the differences
_STEP = 0.05
_COLD, _REPEATED = 0.5, 0.8


def strip(result: Result, other: Result | None = None) -> dict[str, Any]:
    """Return bases to draw: what the model wrote after its prompt, or another sequence.

    Both share one scale of colours, from `range[0]` to `range[1]`.
    """
    seen = np.array(result["probabilities"] + result["random"]["probabilities"])
    low, high = np.percentile(seen, _PERCENTILES)
    least = float(np.floor(low / _STEP) * _STEP)
    drawn, prompt = (other, "") if other else (result, result["prompt"])
    return {
        "title": "Random DNA, read by the same model" if other else "Written by the model",
        "bases": prompt + drawn["bases"],
        "prompt_bp": len(prompt),
        "probabilities": drawn["probabilities"],
        "alternatives": drawn.get("alternatives", []),
        "range": [round(least, 2), round(max(least + _STEP, np.ceil(high / _STEP) * _STEP), 2)],
    }


def about_repeats(temperature: float, bases: str) -> str:
    """Return why a low temperature repeats itself, if it did so here; empty otherwise."""
    period, share = _period(bases)
    if temperature > _COLD or share < _REPEATED:
        return ""
    return paragraph(
        f"The model repeats {bases[-period:]}. At a low temperature it takes the likeliest 6-mer "
        "each time, and each repeat makes the next one likelier. But the likeliest sequence is not "
        "a typical one: a coin that lands on heads in 51 % of throws does not always land on heads."
        " At temperature 1 the model draws each 6-mer as often as it expects it."
    )


def _period(bases: str) -> tuple[int, float]:
    """Return the period, of 1 to 6 bases, that explains most bases, and its share of them."""
    pairs = {n: list(zip(bases[n:], bases, strict=False)) for n in range(1, K + 1)}
    shares = {n: sum(a == b for a, b in each) / max(len(each), 1) for n, each in pairs.items()}
    best = max(shares, key=lambda n: (round(shares[n], 2), -n))
    return best, shares[best]


def comparison(result: Result) -> str:
    """Return what was written and random DNA in numbers."""
    sides = {"written by the model": result, "random DNA": result["random"]}
    rows = [
        (name, f"{-np.log(np.maximum(side['probabilities'], 1e-4)).mean():.3f}",
         f"{100 * gc_share(side['bases']):.0f} %",
         f"{_longest_codons(result['prompt'] + side['bases'])} codons{_with_input(result)}")
        for name, side in sides.items()
    ]  # fmt: skip
    header = ("", "nats per base", "GC", "longest open frame")
    return table(header, rows, "Fewer nats are likelier; a blind guess has 1.386.")


def frames_table(result: Result) -> str:
    """Return the open reading frames with their proteins; empty if there are none."""
    frames = open_frames(result["prompt"] + result["bases"], _LEAST_CODONS)
    if not frames:
        return paragraph(f"No open reading frame has {_LEAST_CODONS} codons.")
    header = ("open frame", "codons", "ends with", "protein")
    rows = (
        (f"{frame.start + 1:,} to {frame.end:,} on {frame.strand}", len(frame.protein),
         "stop codon" if frame.has_stop else "end of the sequence", frame.protein)
        for frame in frames
    )  # fmt: skip
    return table(header, rows, f"Open reading frames from an ATG{_with_input(result)}")


def _with_input(result: Result) -> str:
    return ", with the input" if result["prompt"] else ""


def _longest_codons(bases: str) -> int:
    return max((len(frame.protein) for frame in open_frames(bases, 1)), default=0)


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
