"""The work that a worker counts after training alone, against arithmetic by hand."""

from types import SimpleNamespace

import pytest
import torch

from train.codecs import CODECS
from train.config import WorkersConfig
from train.diloco import worker as module
from train.diloco.rounds import Plan, RoundRecord, WorkerReport
from train.diloco.streaming import UnsentWork
from train.runs.record import Work

EVERY = 3
TOKENS = 10  # of a step
START = 1.0
OTHER = WorkerReport(worker=1, tokens=30, steps=3, seconds=3.0)
OWN = WorkerReport(worker=0, tokens=0, steps=0, seconds=0.0)


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

    def as_saved(self, kinds):
        return {
            f"worker.{kind}.{name}": x for kind, named in kinds.items() for name, x in named.items()
        }


class Scripted:
    """A transport whose rounds take place when the test says so.

    Attributes:
        sent: reports, in order.
        parts: encoded pseudo-gradients, in order.
        members: of rounds that have taken place; OWN is this worker's last report.
        plan: in the records.
    """

    sent_bytes = received_bytes = 0

    def __init__(self):
        self.sent: list[WorkerReport] = []
        self.parts: list[dict[str, torch.Tensor]] = []
        self.members: dict[int, tuple[WorkerReport, ...]] = {}
        self.plan = Plan.first(2, EVERY)

    def send(self, exchange, parts):
        self.sent.append(exchange.report)
        self.parts.append(parts)

    def wait_for(self, exchange, wait):
        if exchange.round not in self.members:
            return None
        members = (
            self.sent[-1] if report is OWN else report for report in self.members[exchange.round]
        )
        plan = self.plan
        return RoundRecord(round=exchange.round, fragments=(0,), members=tuple(members), plan=plan)

    def pseudo_gradients(self, record, names):
        """Return that each has lost 0.1 of the weight."""
        return [{"w": torch.tensor([0.1])} for _ in record.members]

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
    """Return a function that begins a worker, and gives it with its transport and its log."""
    monkeypatch.setattr("train.diloco.sync.WholeWeights", OneWeight)

    def make(table=None, saved=None, **how):
        given = {"count": 2, "store": "unused", "every_steps": EVERY, "codec": "fp32",
                 "momentum": 0.0, "learning_rate": 1.0}  # fmt: skip
        config = SimpleNamespace(workers=WorkersConfig(**(given | how)))
        ranks = SimpleNamespace(is_first=True, worker=0, shared=lambda value: value)
        transport, log = Scripted(), Log()
        worker = module.DilocoWorker(config, ranks, [], 10_000, {})
        monkeypatch.setattr(worker, "_opened", lambda: transport)
        if table is not None:
            worker.expect(table)
            for name, room in worker.tensors().items():
                room.copy_(saved[name])
        worker.begin(SimpleNamespace(step=0), log, lambda: False)
        return worker, transport, log

    return make


def take(worker, count, tokens=TOKENS):
    """Take steps that lower the weight by 0.1 each."""
    for _ in range(count):
        worker._weights.value = worker._weights.value - 0.1
        worker.after_step(SimpleNamespace(step=0), tokens, 1.0)


def test_steps_alone_that_a_merge_overwrites_count_for_nothing(start):
    """Leave, alone, rejoin: of both workers three steps are merged in each round, 0.5 and 0.5."""
    worker, transport, log = start()
    take(worker, EVERY)  # round 0 is sent; nobody is there
    assert worker._is_alone
    take(worker, EVERY - 1)
    transport.members[0] = (transport.sent[0], OTHER)
    take(worker, 1)  # the round took what was sent, not the three steps alone
    # Mean pseudo-gradient 0.1 from 1: the work alone has left no trace in the weight.
    assert worker._weights.value.item() == pytest.approx(0.9)
    transport.members[1] = (OWN, OTHER)
    take(worker, EVERY)
    report = transport.sent[-1]
    assert (report.tokens, report.steps, report.seconds) == (30, 3, 3.0)
    assert report.tokens / (report.tokens + OTHER.tokens) == 0.5
    # Two rounds of two workers with three steps of ten tokens each.
    assert worker.trained() == Work(120, 12, 12.0)
    assert log.events[1:] == [
        ("overwritten",
         "round 0: the merge overwrote 3 steps of this worker; they count for nothing"),
    ]  # fmt: skip


def test_steps_alone_that_were_sent_again_count_once(start):
    """Of nine steps six are merged; the last three, which nobody was sent, are not."""
    worker, transport, _ = start()
    take(worker, 2 * EVERY)  # round 0, then three steps alone, which are sent with the others
    again = transport.sent[-1]
    assert (again.extra, again.tokens, again.steps) == (1, 60, 6)
    take(worker, EVERY - 1)
    transport.members[0] = (again, OTHER)
    take(worker, 1)
    assert worker.trained() == Work(90, 9, 9.0)
    transport.members[1] = (OWN, OTHER)
    take(worker, EVERY)
    assert (transport.sent[-1].tokens, transport.sent[-1].steps) == (30, 3)
    assert worker.trained() == Work(150, 15, 15.0)


def test_what_was_sent_too_late_counts_for_nothing(start):
    """The others took the first pseudo-gradient, while this worker sent another one."""
    worker, transport, log = start()
    take(worker, EVERY)
    first = transport.sent[-1]
    take(worker, 2 * EVERY - 1)
    transport.members[0] = (first, OTHER)
    take(worker, 1)
    assert worker.trained() == Work(60, 6, 6.0)
    assert "overwrote 6 steps" in log.events[-1][1]
    transport.members[1] = (OWN, OTHER)
    take(worker, EVERY)
    assert (transport.sent[-1].tokens, transport.sent[-1].steps) == (30, 3)


def test_a_round_without_this_worker_takes_none_of_its_work(start):
    worker, transport, log = start()
    transport.members[0] = (OTHER,)
    take(worker, EVERY)
    assert worker.trained() == Work(30, 3, 3.0)
    assert [kind for kind, _ in log.events] == ["overwritten"]
    take(worker, EVERY)
    assert (transport.sent[-1].tokens, transport.sent[-1].steps) == (30, 3)


def test_a_mixture_keeps_a_share_of_delayed_steps(start):
    """With alpha 0.5 half of two delayed steps is kept; one more step follows: 10 + 10 tokens."""
    worker, transport, _ = start(alpha=0.5, delay_steps=2)
    transport.members[0] = (OWN, OTHER)
    take(worker, 2 * EVERY)
    assert (transport.sent[-1].tokens, transport.sent[-1].steps) == (20, 2)


def test_a_mixture_keeps_a_share_of_a_pseudo_gradient_that_nobody_took(start):
    """Half of three steps that others left out, and of two delayed ones: 15 + 10 + 10."""
    worker, transport, _ = start(alpha=0.5, delay_steps=2)
    transport.members[0] = (OTHER,)
    take(worker, 2 * EVERY)
    assert transport.sent[-1].tokens == 35


def test_delayed_steps_are_overwritten_without_a_mixture(start):
    """Two of three steps are taken while the pseudo-gradient is on its way, and overwritten."""
    worker, transport, log = start(delay_steps=2)
    transport.members[0] = (OWN, OTHER)
    take(worker, 2 * EVERY)
    assert (transport.sent[-1].tokens, transport.sent[-1].steps) == (10, 1)
    assert not log.events  # that is what the settings say


def test_a_slow_worker_with_fewer_steps_a_round_than_the_delay(start):
    """It takes one step a round, so each round is due before the next is sent, not 3 steps on."""
    worker, transport, _ = start(delay_steps=EVERY, by_speed=True)
    worker._outer.plans = [Plan(0, 0, {0: 1, 1: EVERY})]
    transport.members = {round_: (OWN, OTHER) for round_ in range(3)}
    transport.plan = worker._outer.plans[0]
    take(worker, 4)
    assert worker._outer.newest == 2 and len(transport.sent) == 4


def test_a_new_worker_counts_nothing_in_its_first_round(start):
    """It has learned from weights that may be old; its steps are reported all the same."""
    worker, transport, _ = start()
    worker._is_new = True
    transport.members = {0: (OWN, OTHER), 1: (OWN, OTHER)}
    take(worker, 2 * EVERY)
    assert [(report.tokens, report.steps) for report in transport.sent] == [(0, 3), (30, 3)]


def test_fragments_are_counted_apart():
    """Work on a fragment that is not synchronised adds up."""
    unsent = UnsentWork(2)
    unsent.add(Work(20, 2, 2.0))
    report = WorkerReport(worker=0, tokens=20, steps=2, seconds=2.0)
    assert unsent.take((0,)) == report.work
    unsent.add(Work(30, 3, 3.0))
    record = RoundRecord(
        round=0, fragments=(0,), members=(report, OTHER), plan=Plan.first(2, EVERY)
    )
    assert unsent.merge(record, report, 0.0) == 3
    assert unsent.works == [Work(), Work(50, 5, 5.0)]


def test_a_stop_while_alone_keeps_what_was_not_sent_before(start):
    """A pseudo-gradient that is sent again after a resume begins from the same residual."""
    worker, _, _ = start(codec="top2")
    worker._outer.residuals["w"].fill_(0.25)
    take(worker, EVERY + 1)
    assert worker._is_alone
    table, saved = worker.to_table(), worker.tensors()
    assert saved["worker.residual-before.w"].item() == 0.25
    again, _, _ = start(table, saved, codec="top2")
    again._weights.value = worker._weights.value.clone()
    for one in (worker, again):
        take(one, EVERY - 1)
    assert torch.equal(again._outer.residuals["w"], worker._outer.residuals["w"])
    assert again._unsent.works == worker._unsent.works


def test_a_stop_while_waiting_for_a_quorum_keeps_the_residual(start):
    """The worker waits again when it resumes, and what it sends again has its whole residual."""
    worker, _, _ = start(codec="top2")
    worker._outer.residuals["w"].fill_(0.25)
    worker._wants_to_stop = lambda: True
    take(worker, EVERY)
    assert worker.stopped and not worker._is_alone
    table, saved = worker.to_table(), worker.tensors()
    again, transport, log = start(table, saved, codec="top2")
    again._weights.value = worker._weights.value.clone()
    assert [kind for kind, _ in log.events] == ["alone"]  # it has waited, in vain
    take(again, EVERY)
    # Six steps of 0.1, and the residual, which decays; a single number is sent as it is.
    expected = 6 * 0.1 + CODECS["top2"].feedback * 0.25
    assert transport.parts[-1]["w:magnitudes"][0, 0].item() == pytest.approx(expected)
    assert (transport.sent[-1].extra, transport.sent[-1].steps) == (1, 6)
