"""What is not installed is told before anything is measured."""

import sys

import pytest

from carbon.design.rules import Rules
from carbon.errors import UserError


def never(sequences):
    raise AssertionError


@pytest.mark.parametrize(
    ("library", "ask"),
    [
        ("edlib", lambda model: model.design([never], start="ACGT" * 5)),
        ("RNA", lambda model: model.design([never], length_bp=9, rules=Rules(least_kcal=-3))),
    ],
)
def test_a_library_that_is_not_there(model, monkeypatch, library, ask):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UserError, match=r"pip install 'carbon-dna\[design\]'"):
        ask(model)
