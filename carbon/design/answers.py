"""What a Python function answers, or how it fails: in this process, or in one of its own."""

from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import Any

Function = Callable[[list[str]], Iterable[float]]


def number_of_bad(function: Function, sequences: Sequence[str]) -> int | None:
    """Return which sequence the function does not take, even alone; None if it takes each alone."""
    for number, sequence in enumerate(sequences):
        try:
            function([sequence])
        except Exception:
            return number
    return None


def plain(values: Any) -> list[Any]:
    """Return numbers as JSON has them, and what is none as text."""
    return [_number(value) for value in values]


def _number(value: Any) -> float | str:
    value = value.item() if hasattr(value, "item") else value
    return float(value) if isinstance(value, Real) else repr(value)


def told(error: Exception) -> str:
    """Return the type of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
