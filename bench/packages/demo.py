"""Waiting times of a visitor: the first paint, the example's answer, and the answer alone."""

import visitors as trials
from measure import Measure


def measures(quick: bool) -> list[Measure]:
    found = []
    for path, (paint, whole, answer) in trials.waits(7899, 1 if quick else 3).items():
        found += [
            Measure(f"{path}:first_paint", paint, "s", 3.0, paint < 3),
            Measure(f"{path}:until_the_example_is_answered", whole, "s"),
            Measure(f"{path}:answer", answer, "s", 2.0, answer < 2),
        ]
    return found
