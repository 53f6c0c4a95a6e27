"""A stock model of single bases: variants compared with a bare batched loop."""

import stock_models as trials
from measure import Measure


def measures(quick: bool) -> list[Measure]:
    found = trials.single_bases(48 if quick else 1000)
    of_loop, difference = found["of_loop"], found["difference_nats"]
    return [
        Measure("single_bases:variants_per_second", found["variants_per_second"], "/s"),
        Measure("single_bases:of_a_bare_loop", of_loop, "times", 0.9, of_loop >= 0.9),
        Measure("single_bases:difference", difference, "nats", 1e-4, difference <= 1e-4),
    ]
