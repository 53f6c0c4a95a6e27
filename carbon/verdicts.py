"""A difference of two scores in words; its 95 % interval decides what is said."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from carbon.uncertainty import shown_sign


def verdict(
    subject: str, other: str, difference: Mapping[str, Any], text: Callable[[Any], str]
) -> str:
    """Return a sentence on whether the subject is ahead of or behind the other.

    A difference is stated only if its interval excludes 0. Of a model that is behind, the amount by
    which it is behind is written, with its own interval.

    Args:
        subject: whose score the other's was subtracted from, such as "The model".
        other: what it is compared with.
        difference: `value`, `low` and `high` of the score of the subject minus that of the other,
            so that positive is better; None or NaN where there is no interval.
        text: writes such an estimate.
    """
    sign = shown_sign(difference["low"], difference["high"])
    if sign > 0:
        return f"{subject} is ahead of {other} by {text(difference)}."
    if sign < 0:
        return f"{subject} is behind {other} by {text(_negated(difference))}."
    return (
        f"No difference is shown between {subject[:1].lower()}{subject[1:]} and {other}: "
        f"{text(difference)}{_why(difference)}."
    )


def _negated(difference: Mapping[str, Any]) -> dict[str, Any]:
    value, low, high = (difference[key] for key in ("value", "low", "high"))
    return {**difference, "value": -value, "low": -high, "high": -low}


def _why(difference: Mapping[str, Any]) -> str:
    ends = difference["low"], difference["high"]
    has_interval = all(end is not None and not math.isnan(end) for end in ends)
    return ", an interval that includes 0" if has_interval else ", without an interval"
