"""The one thread that runs the model: requests wait for it, and what is alike is read together."""

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

_MOST_ITEMS = 256  # of requests that are read together


class Busy(Exception):
    """As many requests wait as may."""


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A request as the model sees it.

    Attributes:
        kind: requests of one kind may be run as one; it holds every setting.
        items: sequences, variants or prompts; what comes of one does not depend on the others.
        run: from the items of one or several requests to a result each.
        apart: requests with an item in common are not run as one, because what comes of an item
            depends on how often it is given.
        done: will have the results.
    """

    kind: Hashable
    items: Sequence[Any]
    run: Callable[[list[Any]], list[Any]]
    apart: bool = False
    done: "Future[list[Any]]" = field(default_factory=Future)


class Worker:
    """Runs jobs one after another, in the order of their coming, in a thread of its own."""

    def __init__(self, most_waiting: int) -> None:
        """Start the thread.

        Args:
            most_waiting: jobs; one more is refused.
        """
        self._most_waiting = most_waiting
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> "Future[list[Any]]":
        """Have a job done; return what will have its results.

        Raises:
            Busy: too many wait.
        """
        with self._changed:
            if len(self._waiting) >= self._most_waiting:
                raise Busy(f"{self._most_waiting} requests are waiting already; ask again later")
            self._waiting.append(job)
            self._changed.notify()
        return job.done

    def close(self) -> None:
        """Do what waits, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while jobs := self._next():
            _run(jobs)

    def _next(self) -> list[Job]:
        """Wait for a job; return it, and those that can be run with it; none at the end."""
        with self._changed:
            while not self._waiting:
                if self._is_closed:
                    return []
                self._changed.wait()
            together = [self._waiting.popleft()]
            for job in list(self._waiting):
                if _fits(job, together):
                    together.append(job)
                    self._waiting.remove(job)
            return together


def _fits(job: Job, together: list[Job]) -> bool:
    items = [item for other in together for item in other.items]
    if job.kind != together[0].kind or len(items) + len(job.items) > _MOST_ITEMS:
        return False
    return not (job.apart and set(items) & set(job.items))


def _run(jobs: list[Job]) -> None:
    """Run jobs as one; where that fails, each by itself, so that none suffers for another."""
    wanted = [job for job in jobs if job.done.set_running_or_notify_cancel()]
    try:
        _run_as_one(wanted)
    except Exception as error:
        if len(wanted) == 1:
            wanted[0].done.set_exception(error)
            return
        for job in wanted:
            try:
                _run_as_one([job])
            except Exception as its_own:
                job.done.set_exception(its_own)


def _run_as_one(jobs: list[Job]) -> None:
    if not jobs:
        return
    results = iter(jobs[0].run([item for job in jobs for item in job.items]))
    found = [[next(results) for _ in job.items] for job in jobs]
    for job, some in zip(jobs, found, strict=True):
        job.done.set_result(some)
