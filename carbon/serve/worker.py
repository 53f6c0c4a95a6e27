"""The thread that runs the model, with a queue of requests; equal kinds of requests are batched."""

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

_MAX_ITEMS = 256  # in a batch of requests


class Busy(Exception):
    """The queue is full."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelJob:
    """A request for the model's thread.

    Attributes:
        batch_key: jobs with equal keys may run as one batch; contains every setting.
        items: sequences, variants or prompts, with independent results.
        run: from the items of one or several jobs to a result for each.
        is_separate: whether jobs with a common item must not share a batch, because a result
            depends on how often its item occurs.
        future: receives the results.
    """

    batch_key: Hashable
    items: Sequence[Any]
    run: Callable[[list[Any]], list[Any]]
    is_separate: bool = False
    future: "Future[list[Any]]" = field(default_factory=Future)


class ModelThread:
    """Runs jobs in a separate thread, in the order of arrival."""

    def __init__(self, most_waiting: int) -> None:
        """Start the thread.

        Args:
            most_waiting: maximum length of the queue.
        """
        self._most_waiting = most_waiting
        self._waiting: deque[ModelJob] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._thread.start()

    def submit(self, job: ModelJob) -> "Future[list[Any]]":
        """Queue a job; return the future of its results.

        Raises:
            Busy: the queue is full.
        """
        with self._changed:
            if len(self._waiting) >= self._most_waiting:
                raise Busy(f"{self._most_waiting} requests are waiting; try again later")
            self._waiting.append(job)
            self._changed.notify()
        return job.future

    def close(self) -> None:
        """Run the queued jobs, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while jobs := self._next():
            _run(jobs)

    def _next(self) -> list[ModelJob]:
        """Wait for a job; return it with the jobs of its batch; an empty list at the end."""
        with self._changed:
            while not self._waiting:
                if self._is_closed:
                    return []
                self._changed.wait()
            batch = [self._waiting.popleft()]
            for job in list(self._waiting):
                if _fits(job, batch):
                    batch.append(job)
                    self._waiting.remove(job)
            return batch


def _fits(job: ModelJob, batch: list[ModelJob]) -> bool:
    items = [item for other in batch for item in other.items]
    if job.batch_key != batch[0].batch_key or len(items) + len(job.items) > _MAX_ITEMS:
        return False
    return not (job.is_separate and set(items) & set(job.items))


def _run(jobs: list[ModelJob]) -> None:
    """Run jobs as one batch; if that fails, run each alone, so that only invalid ones fail."""
    active = [job for job in jobs if job.future.set_running_or_notify_cancel()]
    try:
        _run_batch(active)
    except Exception as error:
        if len(active) == 1:
            active[0].future.set_exception(error)
            return
        for job in active:
            try:
                _run_batch([job])
            except Exception as job_error:
                job.future.set_exception(job_error)


def _run_batch(jobs: list[ModelJob]) -> None:
    if not jobs:
        return
    results = iter(jobs[0].run([item for job in jobs for item in job.items]))
    shares = [[next(results) for _ in job.items] for job in jobs]
    for job, share in zip(jobs, shares, strict=True):
        job.future.set_result(share)
