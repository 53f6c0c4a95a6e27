"""Views of DNA that the model wrote: coloured bases, numbers, and open reading frames."""

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carbon.genome import short
from carbon.genome.alphabet import gc_share
from demo.figures import BLUE, GREY, Figure, figure
from demo.gene_views import rounded, smoothed
from demo.markup import paragraph, table
from demo.open_frames import OpenFrame, open_frames
from demo.panel import Result

_SMOOTHED_BP = 30
_FRAME_NAMES = ["+1", "+2", "+3", "-1", "-2", "-3"]
_LEAST_CODONS = 15
_PERCENTILES = 2, 98  # colours span these, so that a few extremes do not hide the differences
_STEP = 0.05
_COLD, _UNIFORM_SHARE = 0.5, 0.6


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


def about_temperature(temperature: float, bases: str) -> str:
    """Return why a low temperature repeats itself, if it did so here; empty otherwise."""
    base, count = Counter(bases).most_common(1)[0]
    share = count / len(bases)
    if temperature > _COLD or share < _UNIFORM_SHARE:
        return ""
    return paragraph(
        f"{100 * share:.0f} % of the new bases are {base}. At a low temperature the model takes "
        f"the likeliest 6-mer each time: here a run of {base}, and each run makes the next one "
        "likelier. The likeliest sequence is not a typical one, as a coin that lands on heads in "
        "51 % of throws does not always land on heads. At temperature 1 the model draws each "
        "6-mer as often as it expects it."
    )


def comparison(result: Result) -> str:
    """Return what was written and random DNA in numbers."""
    sides = {"written by the model": result, "random DNA": result["random"]}
    rows = [
        (name, f"{_nats(side):.3f}", f"{100 * gc_share(side['bases']):.0f} %", _longest(side))
        for name, side in sides.items()
    ]
    header = ("", "nats per base", "GC", "longest open frame, codons")
    return table(header, rows, "Fewer nats are likelier; a blind guess has 1.386.")


def lines_figure(result: Result) -> Figure:
    """Return bits along both sequences, and the open reading frames as arrows."""
    prompt_bp = len(result["prompt"])
    text = result["prompt"] + result["bases"]
    traces = [
        {"type": "scatter", "mode": "lines", "name": name, "x0": prompt_bp + 1, "dx": 1,
         "y": rounded(smoothed(_bits(side), _SMOOTHED_BP)), "line": {"color": color}}
        for name, side, color in (("written", result, BLUE), ("random", result["random"], GREY))
    ]  # fmt: skip
    return figure(
        [*traces, *map(_arrow, open_frames(text, _LEAST_CODONS))],
        height=400,
        xaxis={"title": {"text": "base"}, "anchor": "y2", "range": [0.5, len(text) + 0.5]},
        yaxis={"domain": [0.46, 1], "title": {"text": f"bits, mean of {_SMOOTHED_BP}"}},
        yaxis2={"domain": [0, 0.36], "title": {"text": "open frame"}, "range": [5.6, -0.6],
                "tickvals": list(range(6)), "ticktext": _FRAME_NAMES, "fixedrange": True},
    )  # fmt: skip


def frames_table(result: Result) -> str:
    """Return the open reading frames with their proteins; empty if there are none."""
    frames = open_frames(result["prompt"] + result["bases"], _LEAST_CODONS)
    if not frames:
        return paragraph(f"No open reading frame has {_LEAST_CODONS} codons.")
    header = ("open frame", "amino acids", "protein", "end")
    return table(header, map(_row, frames), "Open reading frames from an ATG, with the prompt")


def _bits(side: Result) -> NDArray[np.float64]:
    """Return log2 of the probability of each base over chance."""
    bits: NDArray[np.float64] = np.log2(4 * np.maximum(side["probabilities"], 1e-4))
    return bits


def _nats(side: Result) -> float:
    return float(-np.log(np.maximum(side["probabilities"], 1e-4)).mean())


def _longest(side: Result) -> int:
    return max((len(frame.protein) for frame in open_frames(side["bases"], 1)), default=0)


def _arrow(frame: OpenFrame) -> dict[str, Any]:
    """Return an open frame as an arrow in the row of its strand and frame."""
    forward = frame.strand == "+"
    row = frame.start % 3 if forward else 3 + frame.end % 3
    ends = [frame.start + 1, frame.end]
    return {
        "type": "scatter", "mode": "lines+markers", "x": ends if forward else ends[::-1],
        "y": [row, row], "yaxis": "y2", "showlegend": False, "hoverinfo": "text",
        "cliponaxis": False, "text": f"{_row(frame)[0]}: {short(frame.protein)}",
        "line": {"width": 5, "color": BLUE},
        "marker": {"size": [0, 15], "angleref": "previous", "symbol": "triangle-up", "opacity": 1},
    }  # fmt: skip


def _row(frame: OpenFrame) -> tuple[str, int, str, str]:
    place = f"{frame.start + 1:,} to {frame.end:,} on {frame.strand}"
    end = "a stop codon" if frame.has_stop else "the sequence's end"
    return place, len(frame.protein), frame.protein, end
