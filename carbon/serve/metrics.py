"""Counters of a server in the text format of Prometheus.

Format: https://prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4.
"""

import os
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from itertools import accumulate
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
_OTHER = "other"
_CANCELLED = 499  # the server ends, or the client is gone, before the answer begins
_STATM = Path("/proc/self/statm")


class Metrics:
    """Counts requests by path and status, their seconds, and the tokens computed for them.

    Attributes:
        tokens: tokens of accepted requests, as the limits count them, by path.
    """

    def __init__(self, waiting: Callable[[], int]) -> None:
        """Take a function that returns the number of waiting requests."""
        self._waiting = waiting
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(_SECONDS) + 1))
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self.tokens: Counter[str] = Counter()

    def add(self, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests[path, status] += 1
        self._buckets[path][bisect_left(_SECONDS, seconds)] += 1
        self._seconds[path] += seconds

    def to_text(self) -> str:
        """Return all metrics."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield from _head("carbon_requests_total", "counter", "Requests by path and HTTP status.")
        for (path, status), count in sorted(self._requests.items()):
            yield f'carbon_requests_total{{path="{path}",status="{status}"}} {count}'
        name = "carbon_request_seconds"
        yield from _head(name, "histogram", "Seconds from the head of a request to its last byte.")
        for path, counts in sorted(self._buckets.items()):
            bounds = (*map(str, _SECONDS), "+Inf")
            for bound, count in zip(bounds, accumulate(counts), strict=True):
                yield f'{name}_bucket{{path="{path}",le="{bound}"}} {count}'
            yield f'{name}_sum{{path="{path}"}} {self._seconds[path]}'
            yield f'{name}_count{{path="{path}"}} {sum(counts)}'
        yield from _head("carbon_tokens_total", "counter", "Tokens of accepted requests.")
        for path, count in sorted(self.tokens.items()):
            yield f'carbon_tokens_total{{path="{path}"}} {count}'
        yield from _head("carbon_waiting_requests", "gauge", "Requests that wait for the model.")
        yield f"carbon_waiting_requests {self._waiting()}"
        if _STATM.exists():
            yield from _head("process_resident_memory_bytes", "gauge", "Resident memory.")
            yield f"process_resident_memory_bytes {_resident_bytes()}"


class Measured:
    """Measures each request of an application."""

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: Collection[str]) -> None:
        """Wrap an application; requests of other paths are counted together."""
        self._app, self._metrics, self._paths = app, metrics, frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count it when it is answered or its client is gone."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, status = time.monotonic(), _CANCELLED

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception:
            status = 500
            raise
        finally:
            path = scope["path"] if scope["path"] in self._paths else _OTHER
            # A stream that ends with an error began with 200.
            status = scope.get("state", {}).get("status", status)
            self._metrics.add(path, status, time.monotonic() - begin)


def _head(name: str, kind: str, meaning: str) -> tuple[str, str]:
    return f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"


def _resident_bytes() -> int:
    pages = int(_STATM.read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
