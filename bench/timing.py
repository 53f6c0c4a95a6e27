"""How long a piece of work takes."""

import time
from collections.abc import Callable


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the shortest of several times, after one that is not counted."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
