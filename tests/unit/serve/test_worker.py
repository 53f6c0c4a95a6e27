"""The thread that runs the model: what is joined, what is refused, and nothing is lost."""

import threading
import time

import pytest

from carbon.serve.worker import Busy, ModelJob, ModelThread


class Model:
    """Doubles numbers, and keeps what it was given together."""

    def __init__(self):
        self.calls, self.go = [], threading.Event()

    def run(self, items):
        self.go.wait(300)
        self.calls.append(list(items))
        if "bad" in items:
            raise ValueError("bad")
        return [2 * item for item in items]


def results(jobs):
    return [job.future.result(300) for job in jobs]


def test_what_is_alike_is_run_together_and_each_gets_its_own():
    model, worker = Model(), ModelThread(10)
    jobs = [ModelJob(kind, items, model.run) for kind, items in (
        ("x", [0]), ("a", [1, 2]), ("b", [3]), ("a", [4]), ("a", [1]), ("b", []),
    )]  # fmt: skip
    for job in jobs:
        worker.submit(job)
    model.go.set()
    assert results(jobs) == [[0], [2, 4], [6], [8], [2], []]
    assert model.calls[-2:] == [[1, 2, 4, 1], [3]]
    worker.close()


def test_what_depends_on_how_often_it_is_given_is_run_apart():
    model, worker = Model(), ModelThread(10)
    jobs = [ModelJob("a", items, model.run, is_separate=True) for items in ([1, 1], [2], [1], [3])]
    for job in (ModelJob("x", [0], model.run), *jobs):
        worker.submit(job)
    model.go.set()
    results(jobs)
    assert model.calls[-2:] == [[1, 1, 2, 3], [1]]
    worker.close()


def test_one_that_fails_does_no_harm_to_others():
    model, worker = Model(), ModelThread(10)
    first, *others = jobs = [ModelJob("a", items, model.run) for items in ([0], [1], ["bad"], [2])]
    for job in jobs:
        worker.submit(job)
    model.go.set()
    assert first.future.result(300) == [0]
    with pytest.raises(ValueError, match="bad"):
        others[1].future.result(300)
    assert results([others[0], others[2]]) == [[2], [4]]
    worker.close()


def test_too_many_are_refused_and_what_waits_is_done_before_the_end():
    model, worker = Model(), ModelThread(2)
    begun = ModelJob("x", [0], model.run)
    worker.submit(begun)
    while not begun.future.running():
        time.sleep(0.001)
    waiting = [ModelJob("a", [1], model.run), ModelJob("b", [2], model.run)]
    for job in waiting:
        worker.submit(job)
    with pytest.raises(Busy, match="2 requests are waiting"):
        worker.submit(ModelJob("c", [3], model.run))
    ending = threading.Thread(target=worker.close)
    ending.start()
    model.go.set()
    ending.join(300)
    assert results([begun, *waiting]) == [[0], [2], [4]] and not ending.is_alive()


def test_who_no_longer_waits_is_passed_over():
    model, worker = Model(), ModelThread(10)
    first, gone, last = jobs = [ModelJob(kind, [n], model.run) for n, kind in enumerate("xab")]
    for job in jobs:
        worker.submit(job)
    assert gone.future.cancel()
    model.go.set()
    assert results([first, last]) == [[0], [4]]
    assert [1] not in model.calls
    worker.close()
