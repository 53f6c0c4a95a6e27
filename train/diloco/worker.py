"""A learner: a run that takes its share of the steps, and meets the others now and then.

A round has a number of steps. At its end a fragment synchronises: its loss since the
anchor is sent, the mean of all learners' changes moves the anchor by an outer step, and the learner
continues from the anchor, or from a mixture with its local weights (DiLoCo, arXiv 2311.08105). With
a delay it takes steps of the next round meanwhile (arXiv 2501.18512).
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import Any

from torch import Tensor

from train.config import TrainConfig
from train.diloco.catch_up import catch_up
from train.diloco.codecs import CODECS, encoded
from train.diloco.group import Group
from train.diloco.outer import Agreement, Tensors, mean_of, outer_gradient
from train.diloco.outer_params import OuterParams, as_saved
from train.diloco.rounds import (
    ChangesGoneError,
    Flight,
    Meeting,
    Plan,
    Turn,
    Unsent,
    Wait,
    WorkerReport,
    fragments_of_round,
)
from train.diloco.store import SharedStore
from train.diloco.weights import ShardWeights, Weights, WholeWeights
from train.distributed.mesh import Ranks
from train.distributed.stage import DecoderStage
from train.runs.log import RunLog
from train.runs.record import Work
from train.saved import RunState

_SECONDS_BETWEEN_LOOKS = 1.0
_KEPT = ("round", "taken", "all_steps", "is_alone", "is_new")
"""Of a learner, in a checkpoint."""


class Worker:
    """One of the learners of a run.

    Attributes:
        order: the steps from where it stands, by the plan that holds.
        stopped: whether a stop was requested while it waited for others.
    """

    def __init__(
        self,
        config: TrainConfig,
        ranks: Ranks,
        parts: list[DecoderStage],
        total_steps: int,
        settings: Mapping[str, Any],
    ) -> None:
        """Prepare; `begin` meets the others.

        Args:
            config: of the run.
            ranks: the processes of this learner.
            parts: of the network, of this process.
            total_steps: of the run.
            settings: that all learners of the run must have alike.
        """
        self._config, self._ranks = config.learners, ranks
        self._total_steps, self._settings = total_steps, settings
        self._me = self._config.number if self._config.mailbox else ranks.learner
        self._codec = CODECS[self._config.codec]
        kind = WholeWeights if self._config.mailbox else ShardWeights
        self._weights: Weights = kind(parts, ranks)
        self._anchor = OuterParams(self._config, self._weights)
        self._residuals_before: Tensors = {}
        self._flights: list[Flight] = []
        self._arrived: dict[int, tuple[Meeting, Tensors, Agreement]] = {}
        self._round = self._taken = self._all_steps = 0
        self._unsent = Unsent(self._config.fragments)
        self._is_alone = self._is_new = self._resumes = self.stopped = False
        self._lacks = ""
        self.order: Iterable[int] | None = ()
        self._predicted: Iterator[int] = iter(())

    # The interface of the trainer

    def begin(self, state: RunState, log: RunLog, wants_to_stop: Callable[[], bool]) -> None:
        """Use the weights as the first anchor, or resume from a checkpoint; enter the run.

        Raises:
            UserError: the mailbox cannot be used.
        """
        self._run, self._log, self._wants_to_stop = state, log, wants_to_stop
        if not self._resumes:
            self._anchor.begin()
        self._transport = self._opened()
        for flight in self._flights:
            if flight.round not in self._arrived:
                self._transport.send(flight, None)
        if self._is_behind():
            self._enter(is_new=self._is_new or not self._resumes)
        self._land_and_send()
        self._follow()

    def _opened(self) -> Group | SharedStore:
        given = (self._ranks, self._codec, self._weights.shapes)
        if not self._config.mailbox:
            return Group(*given)
        return SharedStore(self._config, *given, self._settings, self._wants_to_stop)

    def taken(self, state: RunState, tokens: int, seconds: float) -> None:
        """Count a step; apply meetings that are due, and send the change of a round."""
        self._run = state
        self._taken += 1
        self._all_steps += 1
        self._unsent.add(Work(tokens, 1, seconds))
        for flight in self._flights:
            flight.left, flight.age = flight.left - 1, flight.age + 1
        self._land_and_send()
        self._follow()

    def steps_taken(self, state: RunState) -> int:
        """Return the steps that this learner has taken itself."""
        return self._all_steps

    def expect(self, table: Mapping[str, Any]) -> None:
        """Take what `to_table` gave, and allocate its tensors."""
        self._resumes = True
        for name in _KEPT:
            setattr(self, f"_{name}", table[name])
        self._unsent.expect(table["unsent"])
        self._flights = [Flight.from_table(flight) for flight in table["flights"]]
        self._anchor.expect(table["anchor"])
        held = self._anchor.residuals.items()
        self._residuals_before = {name: residual.clone() for name, residual in held}
        for arrived in table["arrived"]:
            meeting = Meeting.from_table(arrived["meeting"])
            anchor = self._anchor.state.anchor
            room = {name: anchor[name].clone() for name in self._anchor.held(meeting.fragments)}
            self._arrived[meeting.round] = (meeting, room, Agreement(**arrived["agreement"]))

    def to_table(self) -> dict[str, Any]:
        """Wait for what would be lost with this process, and say where the learner stands."""
        if isinstance(self._transport, Group):
            for flight in self._flights:
                self._arrive(flight, Wait.FOR_EVER)
        self._transport.flush()
        arrived = [
            {"meeting": meeting.to_table(), "agreement": asdict(agreement)}
            for meeting, _, agreement in self._arrived.values()
        ]
        return {
            **{name: getattr(self, f"_{name}") for name in _KEPT},
            "unsent": self._unsent.to_table(),
            "anchor": self._anchor.to_table(),
            "flights": [flight.to_table() for flight in self._flights],
            "arrived": arrived,
        }

    def tensors(self) -> dict[str, Tensor]:
        """Return anchor, momentum, unsent residuals, and changes that are not merged yet."""
        kinds = {f"arrived-{r}": change for r, (_, change, _) in self._arrived.items()}
        if self._is_alone:  # a change that is sent again begins from it
            kinds["residual-before"] = self._residuals_before
        return as_saved(self._anchor.tensors() | kinds, self._weights)

    def trained(self) -> Work:
        """Return the training of all learners that is in the anchor."""
        return self._anchor.trained()

    @contextmanager
    def anchored(self) -> Iterator[None]:
        """Let the weights be the anchor for a while."""
        copies = self._weights.copies()
        self._weights.write(self._anchor.names, self._anchor.state.anchor, 0.0)
        try:
            yield
        finally:
            self._weights.restore(copies)

    def close(self) -> None:
        """Remove everything on this machine."""
        self._transport.close()

    # Rounds

    def _land_and_send(self) -> None:
        """Apply the meetings that are due; at the end of a round send its change."""
        self._land()
        while not (self._rests() or self._taken < self._budget()):
            if not self._is_alone:
                self._send()
            elif not self._config.rounds_ahead:
                self._send_again(self._flights[0])
            self._round, self._taken = self._round + 1, 0
            self._land()

    def _rests(self) -> bool:
        """Return whether no step remains: the run is over, or ends with a meeting."""
        is_ending = any(flight.is_last for flight in self._flights)
        return self._anchor.is_over or self.stopped or is_ending

    def _budget(self) -> int:
        return self._plan().budget(self._me, self._round, self._total_steps)

    def _plan(self) -> Plan:
        return self._anchor.plan(self._round)

    def _is_at_the_end(self) -> bool:
        """Return whether all steps of the run are taken, by the current plan."""
        return self._rests() or (
            self._plan().is_last(self._round, self._total_steps) and self._taken >= self._budget()
        )

    def _send(self) -> None:
        """Send the pseudo-gradient of the round's fragments."""
        plan = self._plan()
        is_last = plan.is_last(self._round, self._total_steps)
        numbers = fragments_of_round(self._round, self._config.fragments, is_last)
        base = self._anchor.base(self._round)
        told = WorkerReport(learner=self._me, tokens=0, steps=0, seconds=0.0, base=base)
        left = 0 if is_last else self._config.delay_steps
        self._flights.append(Flight(self._round, plan, numbers, is_last, told, left))
        self._residuals_before = dict(self._anchor.residuals)
        self._dispatch(self._flights[-1])

    def _send_again(self, flight: Flight) -> None:
        """Send a change again, including the steps that this worker took alone."""
        self._anchor.residuals = dict(self._residuals_before)
        flight.told = replace(flight.told, extra=flight.told.extra + 1)
        self._dispatch(flight)

    def _dispatch(self, flight: Flight) -> None:
        local = self._weights.read(self._anchor.names_of(flight.fragments))
        deltas = outer_gradient(self._anchor.state.anchor, local)
        parts, _ = encoded(self._codec, deltas, self._anchor.residuals)
        work = flight.told.work + self._unsent.take(flight.fragments)
        tokens = 0 if self._is_new else work.tokens
        flight.told = replace(flight.told, tokens=tokens, steps=work.steps, seconds=work.seconds)
        self._transport.send(flight, parts)

    def _land(self) -> None:
        """Apply the meetings of flights that are due, in order."""
        while self._flights and not self.stopped:
            flight = self._flights[0]
            if not self._is_due(flight):
                return
            began = time.monotonic()
            try:
                if not self._met(flight):
                    self._go_on_alone(flight)
                    return
            except ChangesGoneError:
                self._enter(is_new=False)
                return
            self._flights.pop(0)
            self._merge(*self._arrived.pop(flight.round), flight, time.monotonic() - began)
            if not self._rests() and self._is_behind():
                self._enter(is_new=False)

    def _is_due(self, flight: Flight) -> bool:
        """Return whether this worker must apply a flight's meeting first.

        One that takes fewer steps a round than the delay has them taken at the end of the round
        whose change begins from that meeting.
        """
        is_base = flight.round <= self._round - max(1, self._config.rounds_ahead)
        is_late = is_base and not self._is_alone and self._taken >= self._budget()
        return flight.left <= 0 or is_late or self._is_at_the_end()

    def _met(self, flight: Flight) -> bool:
        """Wait for a meeting while there may be a quorum; at the end of the run, until there is."""
        if self._arrive(flight, Wait.NOT if self._is_alone else Wait.FOR_A_QUORUM):
            return True
        self._keep_anchor()  # who is missing may lack a change that led to it
        return self._is_at_the_end() and self._arrive(flight, Wait.FOR_EVER)

    def _arrive(self, flight: Flight, wait: Wait) -> bool:
        """Wait for a meeting and the mean of its changes; return whether they arrived."""
        if flight.round in self._arrived:
            return True
        meeting = self._transport.meeting(flight, wait)
        if meeting is None:
            return False
        change, sums = self._mean_if_there(meeting)
        self._arrived[flight.round] = meeting, change, Agreement.of(self._weights.summed(sums))
        return True

    def _mean_if_there(self, meeting: Meeting) -> tuple[Tensors, Tensor]:
        """Return what `_mean` does, or raise on all processes that changes are gone."""
        found = None
        with suppress(FileNotFoundError):
            found = self._mean(meeting)
        is_gone = self._ranks.shared(found is None) if self._config.mailbox else False
        if is_gone or found is None:
            raise ChangesGoneError
        return found

    def _mean(self, meeting: Meeting) -> tuple[Tensors, Tensor]:
        """Return the mean of the members' changes, of what this process keeps an anchor of."""
        names = self._anchor.held(meeting.fragments)
        changes = self._transport.changes(meeting, names)
        tokens = [told.tokens for told in meeting.members]
        return mean_of(changes, tokens, names, self._weights.counted)

    def _merge(
        self,
        meeting: Meeting,
        change: Tensors,
        agreement: Agreement,
        flight: Flight,
        waited_seconds: float,
    ) -> None:
        """Take the outer step, and continue from the new anchor."""
        self._step_anchor(meeting, change)
        alpha = 0.0 if meeting.is_last else self._config.alpha
        names = self._anchor.names_of(meeting.fragments)
        self._weights.write(names, self._anchor.state.anchor, alpha)
        self._count_overwritten(meeting, flight, alpha)
        line = {
            "step": self._run.step + 1,  # the step after which they met, as in its metrics
            **meeting.told(),
            "sent_bytes": self._transport.sent_bytes,
            "received_bytes": self._transport.received_bytes,
            "wait_seconds": waited_seconds,
            "late_steps": flight.age,
            **asdict(agreement),
        }
        self._log.round(line, took_part=meeting.has(self._me))
        if self._is_alone:
            self._is_alone = False
            self._round, self._taken = flight.round + 1 + len(self._flights), 0
        self._is_new = False

    def _count_overwritten(self, meeting: Meeting, flight: Flight, alpha: float) -> None:
        """Count unmerged work, and report steps that were overwritten unexpectedly."""
        num_lost = self._unsent.merge(meeting, flight.told, alpha)
        if num_lost and (self._is_alone or not meeting.has(self._me)):
            message = f"round {meeting.round}: the merge overwrote {num_lost} steps of this learner"
            self._log.event(self._run.step, "overwritten", f"{message}; they count for nothing")

    def _step_anchor(self, meeting: Meeting, change: Tensors) -> None:
        self._anchor.step(meeting, change)
        is_time = (meeting.round + 1) % self._config.anchor_every == 0 or meeting.is_last
        if is_time and meeting.members[0].learner == self._me:
            self._keep_anchor()

    def _keep_anchor(self) -> None:
        anchor, mailbox = self._anchor, self._transport
        if self._ranks.is_first and isinstance(mailbox, SharedStore) and anchor.landed >= 0:
            mailbox.anchors.keep(anchor.kept())

    def _go_on_alone(self, flight: Flight) -> None:
        """Take another round of steps before looking for a meeting that lacks a quorum."""
        self.stopped = self._ranks.shared(self._wants_to_stop())
        flight.left = self._plan().budget(self._me, self._round, self._total_steps)
        if self.stopped or self._is_alone:
            return
        self._is_alone = True
        few = f"round {flight.round}: fewer than {self._config.least} learners are there"
        self._log.event(self._run.step, "alone", f"{few}; learning goes on without a meeting")

    # Coming late

    def _is_behind(self) -> bool:
        """Return whether the others have already finished this round without this worker."""
        if not isinstance(self._transport, SharedStore):
            return False
        if self._me not in self._plan().budgets:
            return True
        has_met = self._ranks.is_first and self._transport.record(self._round) is not None
        return bool(self._ranks.shared(has_met)) and self._round not in [
            f.round for f in self._flights
        ]

    def _enter(self, *, is_new: bool) -> None:
        """Go to where the others are, and wait until a round is planned with this learner."""
        assert isinstance(self._transport, SharedStore)
        self._transport.forget()
        self._flights, self._arrived, self._is_alone = [], {}, False
        said = ""
        while not self.stopped and (message := self._why_not_there()):
            if message != said:
                self._log.event(self._run.step, "join", message)
            said = message
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            self.stopped = self._ranks.shared(self._wants_to_stop())
        self._weights.write(self._anchor.names, self._anchor.state.anchor, 0.0)
        self._round = self._anchor.landed + 1
        self._taken, self._unsent = 0, Unsent(self._config.fragments)
        self._is_new = is_new and self._anchor.landed >= 0

    def _why_not_there(self) -> str:
        """Go to the newest meeting and ask to take part; say why this learner waits, if it does."""
        assert isinstance(self._transport, SharedStore)
        if self._ranks.is_first:
            self._lacks = catch_up(self._anchor, self._transport, self._mean, self._lacks)
        self._lacks, known = self._ranks.shared((self._lacks, self._anchor.known()))
        self._anchor.learn(known)
        landed = self._anchor.landed
        if self._lacks:
            return f"waits for the next anchor that is kept: {self._lacks}"
        if self._anchor.is_over or self._me in self._anchor.plan(landed + 1).budgets:
            return ""
        self._transport.ask_to_join(landed)
        return f"asks to take part after round {landed}"

    # Small things

    def _follow(self) -> None:
        """Say which step is next."""
        if self._anchor.is_over:
            self._run.step = self._total_steps
        if self._rests():
            return
        given = (self._me, self._round, self._taken, self._total_steps)
        step = self._plan().step(*given)
        if next(self._predicted, None) != step:
            self.order = Turn(self._plan(), *given)
            self._predicted = iter(self.order)
            next(self._predicted)
        self._run.step = step
