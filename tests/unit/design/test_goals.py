"""Goals and Pareto fronts against their definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.design.goals import best, fronts, gains, parse_goal
from carbon.errors import UserError


def test_goals():
    values = [[1.0, 5.0, 2.0], [3.0, -1.0, 9.0]]
    found = gains(values, [parse_goal("maximize"), parse_goal("minimize"), parse_goal("4")])
    assert found.tolist() == [[1, -5, -2], [3, 1, -5]]
    for wrong in ("max", "nan", "inf", ""):
        with pytest.raises(UserError, match="give maximize, minimize, or the number"):
            parse_goal(wrong)


def beats(a, b) -> bool:
    pairs = list(zip(a, b, strict=True))
    return all(x >= y for x, y in pairs) and any(x > y for x, y in pairs)


@settings(max_examples=40)
@given(
    st.integers(1, 3).flatmap(
        lambda width: st.lists(
            st.tuples(*[st.integers(0, 4).map(float)] * width), min_size=1, max_size=12
        )
    )
)
def test_fronts_are_those_that_none_beats(rows):
    found = fronts(np.array(rows), len(rows))
    left = set(range(len(rows)))
    for front in found:
        assert set(front) == {
            n for n in left if not any(beats(rows[other], rows[n]) for other in left)
        }
        left -= set(front)
    assert not left


def test_the_ends_of_a_front_come_before_its_crowded_middle():
    rows = np.array([[0.5, 0.5], [0.0, 1.0], [0.51, 0.49], [1.0, 0.0]])
    assert set(best(rows, 2)) == {1, 3}
    assert best(np.array([[1.0], [3.0], [3.0], [2.0]]), 3) == [1, 2, 3]
