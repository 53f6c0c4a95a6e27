"""Waiting times of a visitor: the first paint, and the example's answer."""

import visitors as trials
from measure import Measure


def measures(quick: bool) -> list[Measure]:
    measured = []
    for path, (paint, whole) in trials.waits(7899, 1 if quick else 3).items():
        measured += [
            Measure(f"{path}:first_paint", paint, "s", 1.0, paint < 1),
            Measure(f"{path}:until_the_example_is_answered", whole, "s"),
        ]
    return measured
