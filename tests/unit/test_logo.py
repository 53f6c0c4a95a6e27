"""Letters of a logo."""

import math

import numpy as np
import pytest

from demo.logo import letter_heights, logo_polygons


def test_heights_are_information_shared_by_probability():
    rows = [[1, 0, 0, 0], [0.25] * 4, [0.5, 0.5, 0, 0], [0.7, 0.1, 0.1, 0.1], [math.nan] * 4]
    heights = letter_heights(np.array(rows))
    told = 2 + 0.7 * math.log2(0.7) + 3 * 0.1 * math.log2(0.1)
    expected = [[2, 0, 0, 0], [0] * 4, [0.5, 0.5, 0, 0], [0.7 * told, *[0.1 * told] * 3], [0] * 4]
    assert heights == pytest.approx(np.array(expected))


def runs(line):
    """Split at None."""
    found = [[]]
    for value in line:
        found.append([]) if value is None else found[-1].append(value)
    return found[:-1]


def test_stacks_with_the_highest_on_top():
    heights = np.array([[0.5, 0.1, 0.0, 1.0], [0, 2, 0, 0]])
    logo = logo_polygons(heights, first=10)
    boxes = {
        base: [(min(x), max(x), min(y), max(y)) for x, y in zip(runs(xs), runs(ys), strict=True)]
        for base, (xs, ys) in logo.items()
    }
    assert boxes["C"] == [(9.5, 10.45, 0, 0.1), (10.5, 11.45, 0, 2)]
    assert boxes["A"] == [(9.5, 10.45, 0.1, 0.6)]
    assert boxes["T"] == [(9.5, 10.45, 0.6, 1.6)]
    assert boxes["G"] == []
