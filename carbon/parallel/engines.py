"""The interface of an engine, the worker's side of it, and the engine of one process.

A pickled function creates a worker in its own process; the worker is then called for one block
after another. Its results must survive JSON, because they pass through the journal.
"""

import traceback
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from carbon.errors import UserError

MOST_IN_FLIGHT = 2
"""Blocks sent to a worker: the current and the next one, so that it never waits for the driver."""


class Worker(Protocol):
    """Computes blocks.

    Attributes:
        about: all settings that the results depend on, as JSON; equal for all workers of a job.
    """

    about: dict[str, Any]

    def __call__(self, payload: Any) -> Any:
        """Return the result of a block as JSON."""


MakeWorker = Callable[[], Worker]
"""A module-level function or class, or a partial of one, because it is pickled."""


class Answer(NamedTuple):
    """The return value of a worker: the result of a block, or `about` if the number is None."""

    worker: int
    number: int | None
    value: Any


class Death(NamedTuple):
    """A worker ended; all blocks sent to it are lost."""

    worker: int
    reason: str


class Engine(Protocol):
    """Runs workers, which are numbered from 0."""

    @property
    def size(self) -> int:
        """Number of workers that currently have room."""

    def submit(self, worker: int, number: int | None, payload: Any) -> None:
        """Send a block to a worker, or None for its `about`; start the worker if it is not running.

        Never waits for the worker.
        """

    def results(self, seconds: float) -> Iterator[Answer | Death]:
        """Wait at most this long, and yield the events since the last call."""

    def close(self) -> None:
        """End all workers immediately."""


class Failure(NamedTuple):
    """An exception as a value: many exceptions cannot be unpickled."""

    kind: type[Exception]
    arguments: tuple[Any, ...]


class Seat:
    """A worker's side of an engine: creates the worker on first use, and catches its errors."""

    def __init__(self, make: MakeWorker) -> None:
        """Store the function that creates the worker."""
        self._make = make
        self._worker: Worker | None = None

    def compute(self, number: int | None, payload: Any) -> Any:
        """Return the result of a block, or `about` if the number is None."""
        if self._worker is None:
            self._worker = self._make()
        return self._worker.about if number is None else self._worker(payload)

    def close(self) -> None:
        """Call the worker's `close`, if it has one."""
        if close := getattr(self._worker, "close", None):
            close()

    def answer(self, number: int | None, payload: Any) -> Any:
        """Return what `compute` returns, or a `Failure` if it raises."""
        try:
            return self.compute(number, payload)
        except UserError as error:
            return Failure(UserError, (str(error),))
        except FloatingPointError as error:
            return Failure(FloatingPointError, (str(error),))
        except OSError as error:
            arguments = (error.errno, error.strerror or str(error), error.filename)
            return Failure(OSError, arguments)
        except Exception:
            return Failure(RuntimeError, (f"in a worker:\n{traceback.format_exc()}",))


class InProcess:
    """The engine of one process: it computes a block when its result is requested."""

    size = 1

    def __init__(self, make: MakeWorker) -> None:
        """Store the function that creates the worker."""
        self._seat = Seat(make)
        self._submitted: deque[tuple[int | None, Any]] = deque()

    def submit(self, worker: int, number: int | None, payload: Any) -> None:
        """Queue a block until its result is requested."""
        self._submitted.append((number, payload))

    def results(self, seconds: float) -> Iterator[Answer | Death]:
        """Compute the next block; its exceptions propagate unchanged."""
        number, payload = self._submitted.popleft()
        yield Answer(0, number, self._seat.compute(number, payload))

    def close(self) -> None:
        """Close the worker."""
        self._seat.close()
