"""The queue before the model: in turn, and whoever leaves holds up nobody."""

from threading import Event, Thread

from demo.turns import Turns, Waiting


class Clock:
    """Seconds that stand still until something is computed."""

    now = 0.0

    def __call__(self):
        return self.now

    def computed(self, names, seconds):
        for name in names:
            self.now += seconds
            yield name


def _begun(turns):
    """Return an answer that computes in a thread, and how to let it end."""
    started, released, items = Event(), Event(), []

    def slow():
        started.set()
        released.wait(20)
        yield "slow"

    thread = Thread(target=lambda: items.extend(turns.take(slow())))
    thread.start()
    started.wait(20)
    return thread, released, items


def test_those_who_wait_learn_how_many_come_first_and_come_in_turn():
    turns = Turns()
    thread, released, items = _begun(turns)
    second, third = turns.take(iter(["second"])), turns.take(iter(["third"]))
    assert (next(second), next(third)) == (Waiting(1), Waiting(2))
    released.set()
    thread.join()
    assert items == ["slow"]
    assert next(third) == Waiting(1)
    assert list(second) == ["second"] and list(third) == ["third"]


def test_a_long_answer_lets_others_in_after_each_turn_and_a_short_one_ends_in_one():
    clock = Clock()
    turns = Turns(clock)
    long = turns.take(clock.computed("abc", seconds=2.0))
    assert next(long) == "a"
    assert list(turns.take(clock.computed("xyz", seconds=0.1))) == ["x", "y", "z"]
    other = turns.take(clock.computed("de", seconds=2.0))
    assert [next(other), next(long), next(other), next(long)] == ["d", "b", "e", "c"]


def test_a_visitor_who_leaves_holds_up_nobody():
    clock = Clock()
    turns = Turns(clock)
    thread, released, _ = _begun(turns)
    gone, lost = turns.take(iter(["gone"])), turns.take(iter(["lost"]))
    assert (next(gone), next(lost)) == (Waiting(1), Waiting(2))
    gone.close()
    clock.now = 60.0  # nobody asks for the answer in `lost` any more
    released.set()
    thread.join()
    assert list(turns.take(iter(["next"]))) == ["next"]
