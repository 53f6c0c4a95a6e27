"""A DiLoCo worker: a run that takes its share of the steps, and synchronises now and then.

A round has a number of steps. At its end the worker sends the pseudo-gradient of a fragment, the
mean of all workers' moves the outer parameters by an outer step, and the worker continues from
these, or from a mixture with its own weights (DiLoCo, arXiv 2311.08105). With a delay it takes
steps of the next round meanwhile (arXiv 2501.18512).
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import Any

from torch import Tensor

from train.codecs import CODECS, Tensors, encoded
from train.config import TrainConfig
from train.diloco.group import Group
from train.diloco.outer import (
    Agreement,
    OuterParams,
    mean_of,
    outer_step_digest,
    pseudo_gradient,
)
from train.diloco.rounds import (
    Exchange,
    Plan,
    PseudoGradientsGoneError,
    RoundRecord,
    Turn,
    Wait,
    WorkerReport,
)
from train.diloco.store import SharedStore
from train.diloco.streaming import UnsentWork, fragments_of_round
from train.diloco.sync import Worker
from train.distributed.mesh import Ranks
from train.distributed.stage import DecoderStage
from train.runs.log import RunLog
from train.runs.record import Work
from train.saved import RunState

_SECONDS_BETWEEN_LOOKS = 1.0
_SAVED = ("round", "taken", "all_steps", "is_alone", "is_new")
"""Attributes of a worker that a checkpoint holds."""


class DilocoWorker(Worker):
    """A worker that takes its share of the steps, and synchronises after each round of them."""

    def __init__(
        self,
        config: TrainConfig,
        ranks: Ranks,
        parts: list[DecoderStage],
        total_steps: int,
        settings: Mapping[str, Any],
    ) -> None:
        """Prepare as each worker does; there are outer parameters, too."""
        settings = {**settings, "outer_step_digest": outer_step_digest()}
        super().__init__(config, ranks, parts, total_steps, settings)
        self._me = self._config.number if self._config.store else ranks.worker
        self._codec = CODECS[self._config.codec]
        self._outer = OuterParams(self._config, self._weights)
        self._residuals_before: Tensors = {}
        self._exchanges: list[Exchange] = []
        self._arrived: dict[int, tuple[RoundRecord, Tensors, Agreement]] = {}
        self._round = self._taken = self._all_steps = 0
        self._unsent = UnsentWork(self._config.fragments)
        self._is_alone = self._is_new = self._resumes = False
        self._lacks = ""
        self.order: Iterable[int] | None = ()
        self._predicted: Iterator[int] = iter(())

    # The interface of the trainer

    def begin(self, state: RunState, log: RunLog, wants_to_stop: Callable[[], bool]) -> None:
        """Use the weights as the first outer parameters, or resume from a checkpoint.

        Raises:
            UserError: the store cannot be used, or is of another recipe.
        """
        self._run, self._log, self._wants_to_stop = state, log, wants_to_stop
        if not self._resumes:
            self._outer.begin()
        self._transport = self._opened()
        for exchange in self._exchanges:
            if exchange.round not in self._arrived:
                self._transport.send(exchange, None)
        if self._is_behind():
            self._join(is_new=self._is_new or not self._resumes)
        self._apply_and_send()
        self._follow()

    def _opened(self) -> Group | SharedStore:
        given = (self._ranks, self._codec, self._weights.shapes)
        if not self._config.store:
            return Group(*given)
        return SharedStore(self._config, *given, self._settings, self._wants_to_stop)

    def after_step(self, state: RunState, tokens: int, seconds: float) -> None:
        """Count a step; apply rounds that are due, and send the pseudo-gradient of a round."""
        self._run = state
        self._taken += 1
        self._all_steps += 1
        self._unsent.add(Work(tokens, 1, seconds))
        for exchange in self._exchanges:
            exchange.left, exchange.age = exchange.left - 1, exchange.age + 1
        self._apply_and_send()
        self._follow()

    def steps_taken(self, state: RunState) -> int:
        """Return the steps that this worker has taken itself."""
        return self._all_steps

    def trained(self) -> Work:
        """Return the training of all workers that is in the outer parameters."""
        return self._outer.trained()

    @contextmanager
    def outer_params_loaded(self) -> Iterator[None]:
        """Let the weights be the outer parameters for a while."""
        with self._weights.restored():
            self._weights.write(self._outer.names, self._outer.state.params, 0.0)
            yield

    def close(self) -> None:
        """Remove everything on this machine."""
        self._transport.close()

    def expect(self, table: Mapping[str, Any]) -> None:
        """Take what `to_table` gave, and allocate its tensors."""
        self._resumes = True
        for name in _SAVED:
            setattr(self, f"_{name}", table[name])
        self._unsent.expect(table["unsent"])
        self._exchanges = [Exchange.from_table(exchange) for exchange in table["exchanges"]]
        self._outer.expect(table["outer"])
        self._residuals_before = {n: r.clone() for n, r in self._outer.residuals.items()}
        for arrived in table["arrived"]:
            record, params = RoundRecord.from_table(arrived["record"]), self._outer.state.params
            room = {name: params[name].clone() for name in self._outer.held(record.fragments)}
            self._arrived[record.round] = (record, room, Agreement(**arrived["agreement"]))

    def to_table(self) -> dict[str, Any]:
        """Wait for what would be lost with this process, and return where the worker stands."""
        if isinstance(self._transport, Group):
            for exchange in self._exchanges:
                self._arrive(exchange, Wait.FOR_EVER)
        self._transport.flush()
        arrived = [
            {"record": record.to_table(), "agreement": asdict(agreement)}
            for record, _, agreement in self._arrived.values()
        ]
        return {
            **{name: getattr(self, f"_{name}") for name in _SAVED},
            "unsent": self._unsent.to_table(),
            "outer": self._outer.to_table(),
            "exchanges": [exchange.to_table() for exchange in self._exchanges],
            "arrived": arrived,
        }

    def tensors(self) -> dict[str, Tensor]:
        """Return the outer state, unsent residuals, and means that are not applied yet."""
        kinds = self._outer.tensors()
        kinds |= {f"arrived-{number}": mean for number, (_, mean, _) in self._arrived.items()}
        may_lack_a_quorum = self._config.store and self._exchanges
        if may_lack_a_quorum and not self._config.rounds_ahead:
            kinds["residual-before"] = self._residuals_before  # from which it is sent again
        return self._weights.as_saved(kinds)

    # Rounds

    def _apply_and_send(self) -> None:
        """Apply the rounds that are due; at the end of a round send its pseudo-gradient."""
        self._apply_due()
        while not (self._rests() or self._taken < self._budget()):
            if not self._is_alone:
                self._send()
            elif not self._config.rounds_ahead:
                self._send_again(self._exchanges[0])
            self._round, self._taken = self._round + 1, 0
            self._apply_due()

    def _rests(self) -> bool:
        """Return whether no step remains: the run is over, or its last round is being applied."""
        is_ending = any(exchange.is_last for exchange in self._exchanges)
        return self._outer.is_over or self.stopped or is_ending

    def _budget(self) -> int:
        return self._plan().budget(self._me, self._round, self._total_steps)

    def _plan(self) -> Plan:
        return self._outer.plan(self._round)

    def _is_at_the_end(self) -> bool:
        """Return whether all steps of the run are taken, by the current plan."""
        is_last = self._plan().is_last(self._round, self._total_steps)
        return self._rests() or (is_last and self._taken >= self._budget())

    def _send(self) -> None:
        """Send the pseudo-gradient of the round's fragments."""
        plan = self._plan()
        is_last = plan.is_last(self._round, self._total_steps)
        numbers = fragments_of_round(self._round, self._config.fragments, is_last)
        base = self._outer.base(self._round)
        report = WorkerReport(worker=self._me, tokens=0, steps=0, seconds=0.0, base=base)
        left = 0 if is_last else self._config.delay_steps
        self._exchanges.append(Exchange(self._round, plan, numbers, is_last, report, left))
        self._residuals_before = dict(self._outer.residuals)
        self._dispatch(self._exchanges[-1])

    def _send_again(self, exchange: Exchange) -> None:
        """Send a pseudo-gradient again, including the steps that this worker took alone."""
        self._outer.residuals = dict(self._residuals_before)
        exchange.report = replace(exchange.report, extra=exchange.report.extra + 1)
        self._dispatch(exchange)

    def _dispatch(self, exchange: Exchange) -> None:
        local = self._weights.read(self._outer.names_of(exchange.fragments))
        gradient = pseudo_gradient(self._outer.state.params, local)
        parts, _ = encoded(self._codec, gradient, self._outer.residuals)
        work = exchange.report.work + self._unsent.take(exchange.fragments)
        tokens = 0 if self._is_new else work.tokens
        exchange.report = replace(
            exchange.report, tokens=tokens, steps=work.steps, seconds=work.seconds
        )
        self._transport.send(exchange, parts)

    def _apply_due(self) -> None:
        """Apply the rounds of exchanges that are due, in order."""
        while self._exchanges and not self.stopped:
            exchange = self._exchanges[0]
            if not self._is_due(exchange):
                return
            began = time.monotonic()
            try:
                if not self._is_synchronised(exchange):
                    self._go_on_alone(exchange)
                    return
            except PseudoGradientsGoneError:
                self._join(is_new=False)
                return
            self._exchanges.pop(0)
            self._merge(exchange, time.monotonic() - began)
            if not self._rests() and self._is_behind():
                self._join(is_new=False)

    def _is_due(self, exchange: Exchange) -> bool:
        """Return whether this worker must apply an exchange's round first.

        A worker that takes fewer steps a round than the delay applies it at the end of the round
        whose pseudo-gradient starts from it.
        """
        is_base = exchange.round <= self._round - max(1, self._config.rounds_ahead)
        is_late = is_base and not self._is_alone and self._taken >= self._budget()
        return exchange.left <= 0 or is_late or self._is_at_the_end()

    def _is_synchronised(self, exchange: Exchange) -> bool:
        """Wait for a round while there may be a quorum; at the end of the run, until there is."""
        if self._arrive(exchange, Wait.NOT if self._is_alone else Wait.FOR_A_QUORUM):
            return True
        self._save_snapshot()  # an absent worker may lack a pseudo-gradient that led to it
        return self._is_at_the_end() and self._arrive(exchange, Wait.FOR_EVER)

    def _arrive(self, exchange: Exchange, wait: Wait) -> bool:
        """Wait for a round's record and mean pseudo-gradient; return whether they arrived."""
        if exchange.round in self._arrived:
            return True
        record = self._transport.wait_for(exchange, wait)
        if record is None:
            return False
        mean, sums = self._mean_if_there(record)
        self._arrived[exchange.round] = record, mean, Agreement.of(self._weights.summed(sums))
        return True

    def _mean_if_there(self, record: RoundRecord) -> tuple[Tensors, Tensor]:
        """Return what `_mean` does, or raise on all processes that pseudo-gradients are gone."""
        result = None
        with suppress(FileNotFoundError):
            result = self._mean(record)
        is_gone = self._ranks.shared(result is None) if self._config.store else False
        if is_gone or result is None:
            raise PseudoGradientsGoneError
        return result

    def _mean(self, record: RoundRecord) -> tuple[Tensors, Tensor]:
        """Return the mean of the members' pseudo-gradients, for the weights that are kept here."""
        names = self._outer.held(record.fragments)
        gradients = self._transport.pseudo_gradients(record, names)
        tokens = [report.tokens for report in record.members]
        return mean_of(gradients, tokens, names, self._weights.counted)

    def _merge(self, exchange: Exchange, waited_seconds: float) -> None:
        """Take the outer step, and continue from the new outer parameters."""
        record, mean, agreement = self._arrived.pop(exchange.round)
        self._outer.step(record, mean)
        is_time = (record.round + 1) % self._config.snapshot_rounds == 0 or record.is_last
        if is_time and record.members[0].worker == self._me:
            self._save_snapshot()
        alpha = 0.0 if record.is_last else self._config.alpha
        self._weights.write(self._outer.names_of(record.fragments), self._outer.state.params, alpha)
        self._count_overwritten(record, exchange, alpha)
        line = {
            "step": self._run.step + 1,  # the step after which they synchronised
            "round": record.round,
            "fragments": list(record.fragments),
            "workers": [report.worker for report in record.members],
            "tokens": [report.tokens for report in record.members],
            "sent_bytes": self._transport.sent_bytes,
            "received_bytes": self._transport.received_bytes,
            "wait_seconds": waited_seconds,
            "late_steps": exchange.age,
            **asdict(agreement),
        }
        self._log.round(line, took_part=record.has(self._me))
        if self._is_alone:
            self._is_alone = False
            self._round, self._taken = exchange.round + 1 + len(self._exchanges), 0
        self._is_new = False

    def _count_overwritten(self, record: RoundRecord, exchange: Exchange, alpha: float) -> None:
        """Count unmerged work, and report steps that were overwritten unexpectedly."""
        num_lost = self._unsent.merge(record, exchange.report, alpha)
        if num_lost and (self._is_alone or not record.has(self._me)):
            message = f"round {record.round}: the merge overwrote {num_lost} steps of this worker"
            self._log.event(self._run.step, "overwritten", f"{message}; they count for nothing")

    def _save_snapshot(self) -> None:
        store = self._transport
        if self._ranks.is_first and isinstance(store, SharedStore) and self._outer.newest >= 0:
            store.snapshots.save(self._outer.snapshot())

    def _go_on_alone(self, exchange: Exchange) -> None:
        """Take another round of steps before looking for a round that lacks a quorum.

        A worker that is stopped while it waits for a quorum waits again when it resumes.
        """
        self.stopped = self._ranks.shared(self._wants_to_stop())
        if self.stopped and not self._is_alone:
            return
        exchange.left = self._budget()
        if self._is_alone:
            return
        self._is_alone = True
        few = f"round {exchange.round}: fewer than {self._config.min_workers} workers are there"
        self._log.event(self._run.step, "alone", f"{few}; training goes on without the others")

    # Joining

    def _is_behind(self) -> bool:
        """Return whether the others have already finished this round without this worker."""
        if not isinstance(self._transport, SharedStore):
            return False
        if self._me not in self._plan().budgets:
            return True
        is_over = self._ranks.is_first and self._transport.record(self._round) is not None
        is_exchanged = self._round in [exchange.round for exchange in self._exchanges]
        return bool(self._ranks.shared(is_over)) and not is_exchanged

    def _join(self, *, is_new: bool) -> None:
        """Go to where the others are, and wait until a round is planned with this worker."""
        assert isinstance(self._transport, SharedStore)
        self._transport.forget()
        self._exchanges, self._arrived, self._is_alone = [], {}, False
        reported = ""
        while not self.stopped and (reason := self._reason_to_wait(self._transport)):
            if reason != reported:
                self._log.event(self._run.step, "join", reason)
            reported = reason
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            self.stopped = self._ranks.shared(self._wants_to_stop())
        self._weights.write(self._outer.names, self._outer.state.params, 0.0)
        self._round = self._outer.newest + 1
        self._taken, self._unsent = 0, UnsentWork(self._config.fragments)
        self._is_new = is_new and self._outer.newest >= 0

    def _reason_to_wait(self, store: SharedStore) -> str:
        """Go to the newest round and ask to take part; return why this worker waits, if it does."""
        if self._ranks.is_first:
            self._lacks = store.catch_up(self._outer, self._mean, self._lacks)
        self._lacks, progress = self._ranks.shared((self._lacks, self._outer.progress()))
        self._outer.follow(progress)
        newest = self._outer.newest
        if self._lacks:
            return f"waits for the next snapshot: {self._lacks}"
        if self._outer.is_over or self._me in self._outer.plan(newest + 1).budgets:
            return ""
        store.ask_to_join(newest)
        return f"asks to take part after round {newest}"

    # The next step

    def _follow(self) -> None:
        """Set the step that is next."""
        if self._outer.is_over:
            self._run.step = self._total_steps
        if self._rests():
            return
        turn = Turn(self._plan(), self._me, self._round, self._taken, self._total_steps)
        step = next(iter(turn), self._total_steps)
        if next(self._predicted, None) != step:
            self.order, self._predicted = turn, iter(turn)
            next(self._predicted, None)
        self._run.step = step
