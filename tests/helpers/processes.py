"""Processes that others have started, and what they are at."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any


def children_of(process) -> list[int]:
    text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(number) for number in text.split()]


def waits_for(condition, seconds=500):
    """Wait until there is something, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return found


def workers_of(driver) -> list[int]:
    """Return the processes that the fork server of a driver has forked."""
    found = []
    for child in children_of(driver):
        with suppress(OSError):
            text = Path(f"/proc/{child}/task/{child}/children").read_text()
            found += [int(number) for number in text.split()]
    return found


def interrupted_after(num_calls: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose call after `num_calls` raises KeyboardInterrupt, as Ctrl-C does."""
    left = iter(range(num_calls))

    def call(*arguments: Any, **options: Any) -> Any:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return function(*arguments, **options)

    return call
