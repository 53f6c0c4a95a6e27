"""The queue before the model: in turn, item by item, and whoever leaves holds up nobody."""

from itertools import islice
from threading import Event, Thread

from demo.turns import Turns, Waiting


def test_one_alone_never_waits():
    assert list(Turns().take(iter([1, 2, 3]))) == [1, 2, 3]


def _slow(started, released):
    started.set()
    released.wait(20)
    yield "slow"


def test_those_who_wait_learn_how_many_come_first_and_come_in_turn():
    turns, started, released, order = Turns(), Event(), Event(), []
    first = Thread(target=lambda: order.extend(turns.take(_slow(started, released))))
    first.start()
    started.wait(20)
    second, third = turns.take(iter(["second"])), turns.take(iter(["third"]))
    assert next(second) == Waiting(1)
    assert next(third) == Waiting(2)
    released.set()
    first.join()
    order += [item for item in second if not isinstance(item, Waiting)]
    order += [item for item in third if not isinstance(item, Waiting)]
    assert order == ["slow", "second", "third"]


def test_a_long_answer_lets_others_in_between_its_items():
    turns = Turns()
    long = turns.take(iter(range(1000)))
    assert list(islice(long, 3)) == [0, 1, 2]
    assert list(turns.take(iter(["short"]))) == ["short"]
    assert next(long) == 3


def test_a_visitor_who_leaves_holds_up_nobody():
    now = [0.0]
    turns, started, released = Turns(clock=lambda: now[0]), Event(), Event()
    first = Thread(target=lambda: list(turns.take(_slow(started, released))))
    first.start()
    started.wait(20)
    gone, lost = turns.take(iter(["gone"])), turns.take(iter(["lost"]))
    assert (next(gone), next(lost)) == (Waiting(1), Waiting(2))
    gone.close()
    released.set()
    first.join()
    now[0] = 60.0  # the answer in `lost` was not asked for again
    assert list(turns.take(iter(["next"]))) == ["next"]
