"""The thread that runs the model: batches, slices of large jobs, and jobs that are dropped."""

import threading
from functools import partial

import pytest

from carbon.serve.worker import SLICE_TOKENS, Busy, Dropped, ModelJob, ModelThread
from tests.helpers.processes import waits_for

HALF = SLICE_TOKENS // 2


class Model:
    """Doubles numbers, and records its batches; the first one waits until `go` is set."""

    def __init__(self, most_waiting=10):
        self.calls, self.go = [], threading.Event()
        self.thread = ModelThread(most_waiting)

    def run(self, items):
        self.calls.append(list(items))
        self.go.wait(300)
        if "bad" in items:
            raise ValueError("bad")
        return [2 * item for item in items]

    def submit(self, key, items, tokens=1, run=None):
        job = ModelJob(key, items, [tokens] * len(items), run or self.run)
        self.thread.submit(job)
        return job

    def submit_all(self, *jobs):
        """Submit a job that blocks the thread, and then others."""
        first = self.submit("x", [0])
        waits_for(lambda: self.calls)
        return [first, *(self.submit(*job) for job in jobs)]

    def finish(self):
        self.go.set()
        self.thread.close()


def results(jobs):
    return [job.future.result(300) for job in jobs]


@pytest.mark.parametrize(
    ("jobs", "calls"),
    [
        # Equal settings run together, in the order of arrival.
        (
            [("a", [1, 2]), ("b", [3]), ("a", [4]), ("a", [1]), ("b", [])],
            [[1, 2, 4, 1], [3]],
        ),
        # A batch has at most a slice of tokens.
        ([("a", [1], HALF), ("a", [2], HALF), ("a", [3], HALF)], [[1, 2], [3]]),
        # A large job runs in slices, with a batch of small jobs after each.
        (
            [("a", [1, 2, 3, 4, 5], HALF), ("b", [6]), ("c", [7])],
            [[1, 2], [6], [3, 4], [7], [5]],
        ),
        # Large jobs take turns; an item that exceeds a slice runs alone.
        (
            [("a", [1, 2], SLICE_TOKENS + 1), ("b", [3, 4], SLICE_TOKENS)],
            [[1], [3], [2], [4]],
        ),
    ],
)
def test_order_of_batches(jobs, calls):
    model = Model()
    submitted = model.submit_all(*jobs)
    model.finish()
    assert results(submitted) == [[0], *([2 * item for item in job[1]] for job in jobs)]
    assert model.calls[1:] == calls


def test_a_small_job_runs_between_two_forward_passes_of_a_large_one():
    model, order = Model(), []

    def slow(items):
        order.append("pass")
        small = model.submit("b", [1])
        model.thread.pause()
        assert small.future.result(0) == [2]
        return ["large"]

    model.go.set()
    large = model.submit("a", [1], SLICE_TOKENS + 1, slow)
    assert large.future.result(300) == ["large"] and order == ["pass"]
    model.thread.close()


def test_results_are_reported_as_soon_as_they_are_there():
    """Of a large job after each slice, of small ones after their batch."""
    model, reported = Model(), []
    first, large, *small = [
        ModelJob(key, items, [tokens] * len(items), model.run, partial(report, reported, key))
        for key, items, tokens in (
            ("x", [0], 1), ("a", [1, 2, 3], HALF), ("b", [4], 1), ("b", [5], 1),
        )
    ]  # fmt: skip
    for job in (first, large, *small):
        model.thread.submit(job)
        waits_for(lambda: model.calls)
    model.finish()
    of_small = [("b", 0, 8), ("b", 0, 10)]
    assert reported == [("x", 0, 0), ("a", 0, 2), ("a", 1, 4), *of_small, ("a", 2, 6)]


def report(reported, key, index, result):
    reported.append((key, index, result))


def test_an_invalid_job_does_not_affect_others():
    model = Model()
    first, *others = model.submit_all(("a", [1]), ("a", ["bad"]), ("a", [2]))
    model.finish()
    with pytest.raises(ValueError, match="bad"):
        others[1].future.result(300)
    assert results([first, others[0], others[2]]) == [[0], [2], [4]]


def test_a_full_queue_refuses_and_queued_jobs_finish_before_the_end():
    model = Model(2)
    jobs = model.submit_all(("a", [1]), ("b", [2], SLICE_TOKENS + 1))
    with pytest.raises(Busy, match="2 requests are waiting"):
        model.submit("c", [3])
    model.finish()
    assert results(jobs) == [[0], [2], [4]]


def test_a_dropped_job_ends_at_the_next_forward_pass():
    model = Model()
    passes = []

    def endless(items):
        while True:
            passes.append(items)
            model.thread.pause()

    _, waiting, last = model.submit_all(("a", [1]), ("b", [2]))
    model.thread.drop(waiting)
    model.go.set()
    assert last.future.result(300) == [4] and [1] not in model.calls
    running = model.submit("c", [3], SLICE_TOKENS + 1, endless)
    waits_for(lambda: passes)
    model.thread.drop(running)
    with pytest.raises(Dropped):
        running.future.result(300)
    model.thread.close()
