"""Limits on the requests of one visitor."""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Lock
from typing import Literal, TypeVar

from carbon.errors import UserError

T = TypeVar("T")
_Key = tuple[str, str]  # address and kind
_MOST_ADDRESSES = 10_000


@dataclass
class Limits:
    """Limits on calls; limits on lengths are defined by the fields.

    Attributes:
        calls_per_minute: questions from one address, which a class of thirty may share.
        uploads_per_minute: uploads from one address.
        seconds_per_call: time after which an answer is aborted.
        waiting: maximum number of calls of all visitors that compute or wait.
        upload_bytes: maximum size of one file.
        clock: function that returns seconds; tests replace it.
    """

    calls_per_minute: int = 1200
    uploads_per_minute: int = 120
    seconds_per_call: float = 120.0
    waiting: int = 64
    upload_bytes: int = 5 * 2**20
    clock: Callable[[], float] = time.monotonic
    _calls: OrderedDict[_Key, deque[float]] = field(default_factory=OrderedDict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def admit(self, address: str, kind: Literal["questions", "uploads"] = "questions") -> None:
        """Count a call of a kind.

        Raises:
            UserError: the address made too many calls in the last minute; the message says when it
                may continue.
        """
        now, key = self.clock(), (address, kind)
        most = self.uploads_per_minute if kind == "uploads" else self.calls_per_minute
        with self._lock:
            calls = self._calls.setdefault(key, deque())
            self._calls.move_to_end(key)
            while len(self._calls) > _MOST_ADDRESSES:
                self._calls.popitem(last=False)
            while calls and calls[0] <= now - 60:
                calls.popleft()
            if len(calls) >= most:
                wait_seconds = calls[0] + 60 - now
                raise UserError(
                    f"at most {most:,} {kind} a minute are answered; "
                    f"ask again in {wait_seconds:.0f} s"
                )
            calls.append(now)

    def timed(self, items: Iterator[T]) -> Iterator[T]:
        """Yield items until they have taken the time of a call; waiting between them is free.

        Raises:
            UserError: the time limit has passed.
        """
        seconds, start = 0.0, self.clock()
        for item in items:
            seconds += self.clock() - start
            if seconds > self.seconds_per_call:
                raise UserError(
                    f"the answer took more than {self.seconds_per_call:.0f} s and was stopped; "
                    "request less, or use the command line on your own machine"
                )
            yield item
            start = self.clock()
