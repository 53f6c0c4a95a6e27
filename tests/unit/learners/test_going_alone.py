"""What a learner that has gone on alone counts, in one process, against arithmetic by hand."""

from types import SimpleNamespace

import pytest
import torch

from train.config import LearnersConfig
from train.diloco import worker as module
from train.diloco.rounds import Meeting, Plan, Unsent, WorkerReport, first_plan
from train.runs.record import Work

EVERY = 3
TOKENS = 10  # of a step
START = 1.0
OTHER = WorkerReport(learner=1, tokens=30, steps=3, seconds=3.0)
OWN = WorkerReport(learner=0, tokens=0, steps=0, seconds=0.0)


class OneWeight:
    """A weight of one number."""

    def __init__(self, *_):
        self.value = torch.tensor([START])
        self.sizes, self.shapes, self.counted = {"w": 1}, {"w": (1,)}, ["w"]

    def read(self, names):
        return {"w": self.value.clone()}

    def write(self, names, values, alpha):
        self.value = alpha * self.value + (1 - alpha) * values["w"]

    def summed(self, sums):
        return sums

    def as_saved(self, name, value):
        return value


class Scripted:
    """A transport whose meetings take place when the test says so.

    Attributes:
        sent: flights' words, in order.
        members: of meetings that have taken place, by round; OWN is what this learner sent last.
        plan: that meetings make.
    """

    sent_bytes = received_bytes = 0

    def __init__(self):
        self.sent: list[WorkerReport] = []
        self.members: dict[int, tuple[WorkerReport, ...]] = {}
        self.plan = first_plan(2, EVERY)

    def send(self, flight, parts):
        self.sent.append(flight.told)

    def meeting(self, flight, wait):
        if flight.round not in self.members:
            return None
        members = (self.sent[-1] if told is OWN else told for told in self.members[flight.round])
        plan = self.plan
        return Meeting(round=flight.round, fragments=(0,), members=tuple(members), plan=plan)

    def changes(self, meeting, names):
        """Return that each has lost 0.1 of the weight."""
        return [{"w": torch.tensor([0.1])} for _ in meeting.members]

    def flush(self):
        pass


class Log:
    def __init__(self):
        self.rounds, self.events = [], []

    def round(self, line, took_part):
        self.rounds.append(line)

    def event(self, step, kind, message):
        self.events.append((kind, message))


@pytest.fixture
def start(monkeypatch):
    """Return a function that begins a learner, and gives it with its transport and its log."""
    monkeypatch.setattr(module, "WholeWeights", OneWeight)

    def make(table=None, **how):
        given = {"count": 2, "mailbox": "unused", "every_steps": EVERY, "codec": "fp32",
                 "momentum": 0.0, "learning_rate": 1.0}  # fmt: skip
        config = SimpleNamespace(learners=LearnersConfig(**(given | how)))
        ranks = SimpleNamespace(is_first=True, learner=0, shared=lambda value: value)
        transport, log = Scripted(), Log()
        learner = module.Worker(config, ranks, [], 10_000, {})
        monkeypatch.setattr(learner, "_opened", lambda: transport)
        if table is not None:
            learner.expect(table)
        learner.begin(SimpleNamespace(step=0), log, lambda: False)
        return learner, transport, log

    return make


def take(learner, count, tokens=TOKENS):
    """Take steps, each of which lowers the weight by 0.1."""
    for _ in range(count):
        learner._weights.value = learner._weights.value - 0.1
        learner.taken(SimpleNamespace(step=0), tokens, 1.0)


def test_steps_alone_that_a_merge_overwrites_count_for_nothing(start):
    """Leave, alone, rejoin: of both learners three steps are merged in each round, 0.5 and 0.5."""
    learner, transport, log = start()
    take(learner, EVERY)  # round 0 is sent; nobody is there
    assert learner._is_alone
    take(learner, EVERY - 1)
    transport.members[0] = (transport.sent[0], OTHER)
    take(learner, 1)  # the meeting took what was sent, not the three steps alone
    # Mean change 0.1 from 1: the work alone has left no trace in the weight.
    assert learner._weights.value.item() == pytest.approx(0.9)
    transport.members[1] = (OWN, OTHER)
    take(learner, EVERY)
    told = transport.sent[-1]
    assert (told.tokens, told.steps, told.seconds) == (30, 3, 3.0)
    assert told.tokens / (told.tokens + OTHER.tokens) == 0.5
    # Two rounds of two learners with three steps of ten tokens each.
    assert learner.trained() == Work(120, 12, 12.0)
    assert log.events[1:] == [
        ("overwritten",
         "round 0: the merge overwrote 3 steps of this learner; they count for nothing"),
    ]  # fmt: skip


def test_steps_alone_that_were_sent_again_count_once(start):
    """Of nine steps six are merged; the last three, which nobody was sent, are not."""
    learner, transport, _ = start()
    take(learner, 2 * EVERY)  # round 0, then three steps alone, which are sent with the others
    again = transport.sent[-1]
    assert (again.extra, again.tokens, again.steps) == (1, 60, 6)
    take(learner, EVERY - 1)
    transport.members[0] = (again, OTHER)
    take(learner, 1)
    assert learner.trained() == Work(90, 9, 9.0)
    transport.members[1] = (OWN, OTHER)
    take(learner, EVERY)
    assert (transport.sent[-1].tokens, transport.sent[-1].steps) == (30, 3)
    assert learner.trained() == Work(150, 15, 15.0)


def test_what_was_sent_too_late_counts_for_nothing(start):
    """The others met with the first change, while this learner sent it again with more steps."""
    learner, transport, log = start()
    take(learner, EVERY)
    first = transport.sent[-1]
    take(learner, 2 * EVERY - 1)
    transport.members[0] = (first, OTHER)
    take(learner, 1)
    assert learner.trained() == Work(60, 6, 6.0)
    assert "overwrote 6 steps" in log.events[-1][1]
    transport.members[1] = (OWN, OTHER)
    take(learner, EVERY)
    assert (transport.sent[-1].tokens, transport.sent[-1].steps) == (30, 3)


def test_a_meeting_without_this_learner_takes_none_of_its_work(start):
    learner, transport, log = start()
    transport.members[0] = (OTHER,)
    take(learner, EVERY)
    assert learner.trained() == Work(30, 3, 3.0)
    assert [kind for kind, _ in log.events] == ["overwritten"]
    take(learner, EVERY)
    assert (transport.sent[-1].tokens, transport.sent[-1].steps) == (30, 3)


def test_what_a_mixture_keeps_counts_by_its_share(start):
    """With alpha 0.5 half of two delayed steps is kept; one more step follows: 10 + 10 tokens."""
    learner, transport, _ = start(alpha=0.5, delay_steps=2)
    transport.members[0] = (OWN, OTHER)
    take(learner, 2 * EVERY)
    assert (transport.sent[-1].tokens, transport.sent[-1].steps) == (20, 2)


def test_a_mixture_keeps_a_share_of_a_change_that_nobody_took(start):
    """Half of three steps that others met without, and of two delayed ones: 15 + 10 + 10."""
    learner, transport, _ = start(alpha=0.5, delay_steps=2)
    transport.members[0] = (OTHER,)
    take(learner, 2 * EVERY)
    assert transport.sent[-1].tokens == 35


def test_delayed_steps_are_overwritten_without_a_mixture(start):
    """Two of three steps are taken while the change is on its way, and overwritten."""
    learner, transport, log = start(delay_steps=2)
    transport.members[0] = (OWN, OTHER)
    take(learner, 2 * EVERY)
    assert (transport.sent[-1].tokens, transport.sent[-1].steps) == (10, 1)
    assert not log.events  # that is what the settings say


def test_a_slow_learner_with_fewer_steps_a_round_than_the_delay(start):
    """It takes one step a round, so each meeting is due before the next change, not 3 steps on."""
    learner, transport, _ = start(delay_steps=EVERY, by_speed=True)
    learner._anchor.plans = [Plan(0, 0, {0: 1, 1: EVERY})]
    transport.members = {round_: (OWN, OTHER) for round_ in range(3)}
    transport.plan = learner._anchor.plans[0]
    take(learner, 4)
    assert learner._anchor.landed == 2 and len(transport.sent) == 4


def test_a_new_learner_counts_nothing_in_its_first_meeting(start):
    """It has learned from weights that may be old; its steps are told all the same."""
    learner, transport, _ = start()
    learner._is_new = True
    transport.members = {0: (OWN, OTHER), 1: (OWN, OTHER)}
    take(learner, 2 * EVERY)
    assert [(told.tokens, told.steps) for told in transport.sent] == [(0, 3), (30, 3)]


def test_fragments_are_counted_apart():
    """Of the fragment that does not meet, work goes on counting."""
    unsent = Unsent(2)
    unsent.add(Work(20, 2, 2.0))
    told = WorkerReport(learner=0, tokens=20, steps=2, seconds=2.0)
    assert unsent.take((0,)) == told.work
    unsent.add(Work(30, 3, 3.0))
    meeting = Meeting(round=0, fragments=(0,), members=(told, OTHER), plan=first_plan(2, EVERY))
    assert unsent.merge(meeting, told, 0.0) == 3
    assert unsent.works == [Work(), Work(50, 5, 5.0)]


def test_a_stop_while_alone_keeps_what_was_not_sent_before(start):
    """A change that is sent again after a resume begins from the same residual."""
    learner, _, _ = start(codec="top2")
    learner._anchor.residuals["w"].fill_(0.25)
    take(learner, EVERY + 1)
    assert learner._is_alone
    table, saved = learner.to_table(), learner.tensors()
    assert saved["learner.residual-before.w"].item() == 0.25
    again, _, _ = start(table, codec="top2")
    for name, room in again.tensors().items():
        room.copy_(saved[name])
    again._weights.value = learner._weights.value.clone()
    for one in (learner, again):
        take(one, EVERY - 1)
    assert torch.equal(again._anchor.residuals["w"], learner._anchor.residuals["w"])
    assert again._unsent.works == learner._unsent.works
