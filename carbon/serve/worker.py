"""The thread that runs the model: small requests are batched, large ones run in slices."""

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from typing import Any

SLICE_TOKENS = 8192
"""Of a batch of small requests, and of a slice of a large one."""


class Busy(Exception):
    """The queue is full."""


class Dropped(Exception):
    """Nobody waits for the results of the running batch."""


@dataclass(slots=True, eq=False)
class ModelJob:
    """A request for the model's thread.

    Attributes:
        batch_key: jobs with equal keys may run as one batch; contains every setting.
        items: sequences, variants or samples; a result depends on its own item only.
        tokens: maximum tokens that the model computes for each item.
        run: from the items of one or several jobs to a result for each.
        on_result: called in the model's thread with the index of each result, and the result.
        future: receives the results.
        results: of the first items, in order.
        is_dropped: whether nobody waits for the results any longer.
    """

    batch_key: Hashable
    items: Sequence[Any]
    tokens: Sequence[int]
    run: Callable[[list[Any]], list[Any]]
    on_result: Callable[[int, Any], None] = lambda index, result: None
    future: "Future[list[Any]]" = field(default_factory=Future)
    results: list[Any] = field(default_factory=list)
    is_dropped: bool = False

    @property
    def num_tokens(self) -> int:
        """Tokens of all items."""
        return sum(self.tokens)

    @property
    def is_small(self) -> bool:
        """Whether the job fits into one batch."""
        return self.num_tokens <= SLICE_TOKENS

    def run_slice(self) -> None:
        """Run the next items."""
        first = len(self.results)
        stop = first + max(1, _num_fitting(self.tokens[first:]))
        self.add(self.run(list(self.items[first:stop])))

    def add(self, results: Sequence[Any]) -> None:
        """Take the results of the next items; set the result of the future after the last ones."""
        for result in results:
            self.on_result(len(self.results), result)
            self.results.append(result)
        if len(self.results) == len(self.items):
            self.future.set_result(self.results)


class ModelThread:
    """Runs jobs in a separate thread, so that a small job never waits for a large one.

    Small jobs run in the order of arrival, in batches of equal settings. Large jobs take turns, a
    slice each. After each slice, and after each forward pass of a slice, a batch of small jobs
    runs, so that neither kind displaces the other.
    """

    def __init__(self, most_waiting: int) -> None:
        """Start the thread.

        Args:
            most_waiting: maximum number of jobs in the queues.
        """
        self._most_waiting = most_waiting
        self._small: deque[ModelJob] = deque()
        self._large: deque[ModelJob] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._running: list[ModelJob] = []
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._thread.start()

    @property
    def num_waiting(self) -> int:
        """Number of jobs in the queues."""
        return len(self._small) + len(self._large)

    @property
    def why_not_ready(self) -> str | None:
        """Why the thread takes no job now, or None."""
        if not self._thread.is_alive():
            return "the thread of the model has ended"
        if self.num_waiting >= self._most_waiting:
            return f"{self.num_waiting} requests are waiting (--most-waiting)"
        return None

    def submit(self, job: ModelJob) -> None:
        """Queue a job, whose future receives the results.

        Raises:
            Busy: the queues are full.
        """
        with self._changed:
            if why := self.why_not_ready:
                raise Busy(f"{why}; try again later")
            job.future.set_running_or_notify_cancel()  # a cancelled one could get no result
            (self._small if job.is_small else self._large).append(job)
            self._changed.notify()

    def drop(self, job: ModelJob) -> None:
        """Remove a job from its queue, or end it after the current forward pass."""
        with self._changed:
            job.is_dropped = True
            for queue in (self._small, self._large):
                if job in queue:
                    queue.remove(job)

    def pause(self) -> None:
        """Run a batch of small jobs between two forward passes of a large one.

        The runner of the model calls this in the model's thread, after each forward pass.

        Raises:
            Dropped: nobody waits for the results of the running jobs.
        """
        if all(job.is_dropped for job in self._running):
            raise Dropped
        if self._running[0].is_small:
            return
        with self._changed:
            batch = self._small_batch()
        outer, self._running = self._running, batch
        try:
            _run_batch(batch)
        finally:
            self._running = outer

    def close(self) -> None:
        """Run the queued jobs, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while self._wait_for_job():
            with self._changed:
                self._running = self._small_batch()
            _run_batch(self._running)
            with self._changed:
                self._running = [self._large.popleft()] if self._large else []
            self._run_slice(self._running)

    def _wait_for_job(self) -> bool:
        """Wait for a job; return False if the thread is closed and there is none."""
        with self._changed:
            while not (self._small or self._large or self._is_closed):
                self._changed.wait()
            return bool(self._small or self._large)

    def _small_batch(self) -> list[ModelJob]:
        """Remove the next small jobs that may run together from their queue."""
        alike = [job for job in self._small if job.batch_key == self._small[0].batch_key]
        batch = alike[: _num_fitting([job.num_tokens for job in alike])]
        for job in batch:
            self._small.remove(job)
        return batch

    def _run_slice(self, jobs: list[ModelJob]) -> None:
        for job in jobs:
            _run_one(job)
            with self._changed:
                if not job.future.done() and not job.is_dropped:
                    self._large.append(job)


def _num_fitting(tokens: Sequence[int]) -> int:
    """Return how many of the first jobs or items fit into a slice."""
    return len(list(takewhile(lambda total: total <= SLICE_TOKENS, accumulate(tokens))))


def _run_batch(jobs: list[ModelJob]) -> None:
    """Run small jobs as one batch; if that fails, run each alone, so that only that one fails."""
    if len(jobs) < 2:
        for job in jobs:
            _run_one(job)
        return
    try:
        results = iter(jobs[0].run([item for job in jobs for item in job.items]))
    except Exception:
        for job in jobs:
            _run_one(job)
        return
    for job in jobs:
        job.add([next(results) for _ in job.items])


def _run_one(job: ModelJob) -> None:
    """Run the next slice of a job, which is all of a small one."""
    try:
        if job.is_dropped:
            raise Dropped
        job.run_slice()
    except Exception as error:
        job.future.set_exception(error)
