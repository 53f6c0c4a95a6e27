"""A difference in words: nothing is called better or worse whose interval includes 0."""

import math

import pytest

from carbon.reports.render import interval
from carbon.uncertainty import shown_sign, verdict


def sentence(value, low, high):
    difference = {"value": value, "low": low, "high": high, "num_samples": 9}
    return verdict("The model", "order 6", difference, interval)


def test_only_an_interval_without_zero_is_a_difference():
    ahead, behind = sentence(0.05, 0.01, 0.09), sentence(-0.072, -0.137, -0.024)
    assert "ahead of order 6 by 0.050 [0.010, 0.090]" in ahead
    # Behind by 0.072: the difference and both ends change their sign, and the ends their order.
    assert "behind order 6 by 0.072 [0.024, 0.137]" in behind
    assert "No difference is shown" in sentence(-0.046, -0.144, 0.013)


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 0.1), (-0.1, 0.0), (0.0, 0.0), (None, None), (math.nan, math.nan)]
)
def test_an_interval_that_ends_at_zero_or_lacks_ends_shows_nothing(low, high):
    assert shown_sign(low, high) == 0
    assert "No difference is shown" in sentence(0.05, low, high)
