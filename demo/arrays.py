"""Arrays for figures and JSON: smoothed, rounded, and with None for NaN."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

SMOOTHED_BP = 61


def smoothed(values: NDArray[np.float64], width_bp: int = SMOOTHED_BP) -> NDArray[np.float64]:
    """Return the mean of `width_bp` values around each, fewer at the ends and next to NaN."""
    known = ~np.isnan(values)
    kernel = np.ones(min(width_bp, len(values)))
    sums = np.convolve(np.where(known, values, 0), kernel, "same")
    counts = np.convolve(known, kernel, "same")
    means: NDArray[np.float64] = np.divide(
        sums, counts, out=np.full(len(values), np.nan), where=counts > 0
    )
    return means


def as_lists(values: NDArray[np.floating[Any]], decimals: int | None = None) -> list[Any]:
    """Return an array as nested lists, with None for NaN; `decimals` rounds them."""
    shown = values if decimals is None else np.round(values.astype(float), decimals)
    objects: NDArray[np.object_] = shown.astype(object)
    objects[np.isnan(values)] = None
    lists: list[Any] = objects.tolist()
    return lists
