"""A sequence logo as polygons: four letters per position, with heights in bits.

A stack's height is the information of its distribution, 2 bits minus its entropy, and each letter
has the share of its probability (Schneider and Stephens 1990). Their correction for small samples
is omitted, because a model's probabilities are not estimated from samples.
"""

import numpy as np
from numpy.typing import NDArray

MOST_BITS = 2.0
_LEAST_BITS = 0.02  # smallest height of a letter that is drawn
Outline = tuple[list[float | None], list[float | None]]
# Letters as one outline in a square from (0, 0) to (1, 1); the hole of A runs backwards.
_OUTLINES = {
    "A": "0,0 .4,1 .6,1 1,0 .8,0 .7,.25 .3,.25 .36,.4 .64,.4 .5,.78 .36,.4 .3,.25 .2,0",
    "C": "1,.3 .8,.07 .5,0 .2,.07 0,.35 0,.65 .2,.93 .5,1 .8,.93 1,.7 .8,.62 .65,.8 .5,.84 "
         ".32,.78 .2,.6 .2,.4 .32,.22 .5,.16 .65,.2 .8,.38",
    "G": "1,.3 1,.5 .55,.5 .55,.36 .8,.36 .8,.28 .65,.19 .5,.16 .32,.22 .2,.4 .2,.6 .32,.78 .5,.84 "
         ".65,.8 .8,.64 1,.7 .8,.93 .5,1 .2,.93 0,.65 0,.35 .2,.07 .5,0 .8,.07 1,.16",
    "T": ".4,0 .6,0 .6,.84 1,.84 1,1 0,1 0,.84 .4,.84",
}  # fmt: skip
_SHAPES = {
    base: np.array([[float(v) for v in point.split(",")] for point in text.split()])
    for base, text in _OUTLINES.items()
}


def letter_heights(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the height in bits of each base at each position.

    Args:
        probabilities: (N, 4), rows that sum to 1.

    Returns:
        (N, 4); a row sums to the information of its distribution, 0 to 2 bits. Rows of NaN
        (unknown distributions) become 0.
    """
    p = np.asarray(probabilities, dtype=float)
    p = np.where(np.isnan(p).any(axis=1, keepdims=True), 1 / 4, p)
    entropy_bits = -np.sum(p * np.log2(np.where(p > 0, p, 1)), axis=1, keepdims=True)
    heights: NDArray[np.float64] = p * np.clip(MOST_BITS - entropy_bits, 0, MOST_BITS)
    return heights


def logo_polygons(heights: NDArray[np.float64], first: int) -> dict[str, Outline]:
    """Return the letters of a logo, with the highest letter of a stack on top.

    Args:
        heights: (N, 4) in bits, in the order ACGT.
        first: x of the middle of the first stack; stacks are 1 apart.

    Returns:
        base -> x and y of its outlines, separated by None, as Plotly fills them.
    """
    outlines: dict[str, Outline] = {base: ([], []) for base in _SHAPES}
    for n, row in enumerate(heights.tolist()):
        y = 0.0
        for height, base in sorted(zip(row, _SHAPES, strict=True)):
            if height < _LEAST_BITS:
                continue
            x, own_y = outlines[base]
            x += _rounded(first + n - 0.5 + 0.95 * _SHAPES[base][:, 0])
            own_y += _rounded(y + height * _SHAPES[base][:, 1])
            y += height
    return outlines


def _rounded(line: NDArray[np.float64]) -> list[float | None]:
    """Return a line that ends where it starts, and a gap."""
    return [*(round(value, 3) for value in (*line.tolist(), float(line[0]))), None]
