"""Views of DNA that the model wrote: coloured bases, numbers, and open reading frames."""

from typing import Any

import numpy as np

from carbon.genome.alphabet import gc_share
from carbon.tokenizer import K
from demo.markup import paragraph, table
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
