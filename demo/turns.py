"""A fair queue before the model: answers take turns between the items that they yield."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Condition
from typing import TypeVar

T = TypeVar("T")
_DONE = object()
_POLL_SECONDS = 0.25
_LOST_SECONDS = 5.0  # an answer that does not ask for its turn for so long was closed


@dataclass(frozen=True, slots=True)
class Waiting:
    """Place in the queue.

    Attributes:
        before: number of answers that come first.
    """

    before: int


@dataclass(eq=False, slots=True)
class _Ticket:
    asked_at: float
    is_computing: bool = False


@dataclass
class Turns:
    """First come, first served, for each item anew: a long answer never holds up a short one.

    Attributes:
        clock: function that returns seconds; tests replace it.
    """

    clock: Callable[[], float] = time.monotonic
    _queue: list[_Ticket] = field(default_factory=list, repr=False)
    _changed: Condition = field(default_factory=Condition, repr=False)

    def take(self, items: Iterator[T]) -> Iterator[T | Waiting]:
        """Yield items, each computed in a turn of its own, and `Waiting` while others have theirs.

        Closing the iterator gives the turn to the next answer.
        """
        while True:
            ticket = self._join()
            try:
                yield from self._wait(ticket)
                item = next(items, _DONE)
            finally:
                self._leave(ticket)
            if item is _DONE:
                return
            yield item  # type: ignore[misc]  # not _DONE

    def _join(self) -> _Ticket:
        with self._changed:
            ticket = _Ticket(self.clock())
            self._queue.append(ticket)
            return ticket

    def _leave(self, ticket: _Ticket) -> None:
        with self._changed:
            if ticket in self._queue:
                self._queue.remove(ticket)
            self._changed.notify_all()

    def _wait(self, ticket: _Ticket) -> Iterator[Waiting]:
        shown = 0
        while before := self._before(ticket):
            if before != shown:
                yield Waiting(before)
            shown = before

    def _before(self, ticket: _Ticket) -> int:
        """Return how many answers come first, at once if none, else after a short wait."""
        with self._changed:
            self._drop_lost()
            if ticket not in self._queue:
                self._queue.append(ticket)
            if self._queue[0] is not ticket:
                self._changed.wait(_POLL_SECONDS)
            ticket.asked_at = self.clock()
            before = self._queue.index(ticket) if ticket in self._queue else len(self._queue)
            ticket.is_computing = before == 0
            return before

    def _drop_lost(self) -> None:
        least = self.clock() - _LOST_SECONDS
        self._queue = [t for t in self._queue if t.is_computing or t.asked_at >= least]
