"""A fair queue before the model: long answers take turns with others between their items."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Condition
from typing import TypeVar

T = TypeVar("T")
_DONE = object()
_TURN_SECONDS = 1.0  # short answers end within one turn
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
    """First come, first served; an answer that takes long goes to the end after each turn.

    Attributes:
        clock: function that returns seconds; tests replace it.
    """

    clock: Callable[[], float] = time.monotonic
    _queue: list[_Ticket] = field(default_factory=list, repr=False)
    _changed: Condition = field(default_factory=Condition, repr=False)

    def take(self, items: Iterator[T]) -> Iterator[T | Waiting]:
        """Yield items computed in turn, and `Waiting` while others have theirs.

        Closing the iterator gives the turn to the next answer.
        """
        ticket, seconds = self._join(), 0.0
        try:
            while True:
                yield from self._wait(ticket)
                start = self.clock()
                item = next(items, _DONE)
                seconds += self.clock() - start
                if item is _DONE:
                    return
                ticket.is_computing, ticket.asked_at = False, self.clock()
                if seconds >= _TURN_SECONDS:
                    self._leave(ticket)  # and join again behind those who wait
                    seconds = 0.0
                yield item  # type: ignore[misc]  # not _DONE
        finally:
            self._leave(ticket)

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
            if self._queue[:1] != [ticket]:
                self._changed.wait(_POLL_SECONDS)
            if ticket not in self._queue:
                self._queue.append(ticket)
            ticket.asked_at = self.clock()
            before = self._queue.index(ticket)
            ticket.is_computing = before == 0
            return before

    def _drop_lost(self) -> None:
        least = self.clock() - _LOST_SECONDS
        self._queue = [t for t in self._queue if t.is_computing or t.asked_at >= least]
