"""Coroutines in tests of a process in which a browser test may have left an event loop running."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def run_coroutine(coroutine: Coroutine[None, None, T]) -> T:
    """Return the result of a coroutine that runs in a thread and loop of its own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
