"""Workers of launches of their own, which have nothing in common but a shared store.

run.json                                  settings of the run, by the first worker that comes
workers/2.json                            which launch is worker 2, and since when it asks to join
pseudo_gradients/000012/2-0.safetensors   of round 12, encoded; 2-1 if worker 2 went on alone
pseudo_gradients/000012/2-0.json          the report on it, with the sha256; written after it
rounds/000012.json                        who took part, and who takes which steps next
snapshots/000010.safetensors              outer parameters after a round; with a .json

Any worker that sees enough pseudo-gradients creates the record of a round; storage lets only one
of them do so. All others follow it. No clocks must agree, and no port or server is needed.
"""

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from safetensors.torch import save_file
from torch import Tensor

from carbon.errors import UserError
from carbon.io.files import scratch_folder, sha256_of_file
from carbon.io.store import Store, open_tensors
from carbon.model.save import OnDemand
from carbon.progress import say
from train.codecs import Codec, Tensors, decoded
from train.config import WorkersConfig
from train.diloco.outer import OuterParams, OuterState, Snapshot
from train.diloco.rounds import (
    Exchange,
    Plan,
    PseudoGradient,
    RoundRecord,
    Wait,
    WorkerReport,
    plan_after,
)
from train.distributed.mesh import Ranks
from train.distributed.recipes import differing
from train.runs.record import Work

_FIRST_LOOK_SECONDS, _MOST_BETWEEN_LOOKS_SECONDS = 0.05, 2.0
_MESSAGE_SECONDS = 1.0
"""Between two messages of the first process to the others, which wait for it."""


class Snapshots:
    """The two newest snapshots; pseudo-gradients older than both are removed."""

    def __init__(self, store: Store, scratch: Path) -> None:
        """Look after them.

        Args:
            store: that is shared.
            scratch: folder of this machine.
        """
        self._store, self._scratch = store, scratch
        self._said: set[str] = set()

    def save(self, snapshot: Snapshot) -> None:
        """Write a snapshot, once; if that fails, an older one has to do."""
        round_, state = snapshot.round, snapshot.state
        kinds = {"params": state.params, "momentum": state.momentum}
        tensors = {f"{kind}:{n}": t for kind, named in kinds.items() for n, t in named.items()}
        file, path = self._scratch / f"snapshot-{round_}.safetensors", _snapshot(round_)
        try:
            if round_ in self._rounds():
                return
            save_file(tensors, file)
            table = {
                "sha256": sha256_of_file(file),
                "digests": snapshot.digests,
                "merged": asdict(snapshot.merged),
            }
            self._store.put(file, f"{path}.safetensors")
            self._store.write_table(f"{path}.json", table)
            self._remove_outdated()
        except OSError as error:
            say(f"{self._store.place(path)}: the snapshot could not be written: {error}")
        finally:
            file.unlink(missing_ok=True)

    def _remove_outdated(self) -> None:
        *earlier, _ = self._rounds()
        for old in earlier[:-1]:
            self._store.remove(f"{_snapshot(old)}.json")
            self._store.remove(f"{_snapshot(old)}.safetensors")
        for name in self._store.names("pseudo_gradients") if earlier else ():
            if name.isdecimal() and int(name) <= earlier[-1]:
                self._store.remove(f"pseudo_gradients/{name}")

    def newest(self, after: int) -> Snapshot | None:
        """Return the newest whole snapshot of a round later than one."""
        rounds, known = self._rounds(), None
        while rounds != known:  # one that went while it was looked for made room for a newer one
            for round_ in reversed(rounds):
                if round_ > after and (snapshot := self._whole(round_)):
                    return snapshot
            rounds, known = self._rounds(), rounds
        return None

    def _whole(self, round_: int) -> Snapshot | None:
        path = f"{_snapshot(round_)}.safetensors"
        table = self._store.read_table(f"{_snapshot(round_)}.json") or {}
        with suppress(FileNotFoundError):
            if file := self._store.get(path, self._scratch, str(table.get("sha256"))):
                digests = {int(number): digest for number, digest in table["digests"].items()}
                return Snapshot(round_, digests, _state_of(file), Work(**table["merged"]))
        if path not in self._said:
            self._said.add(path)
            say(f"{self._store.place(path)}: differs from its sha256, or is gone; left out")
        return None

    def _rounds(self) -> list[int]:
        names = [name.removesuffix(".json") for name in self._store.names("snapshots")]
        return [int(name) for name in names if name.isdecimal()]


def _snapshot(round_: int) -> str:
    return f"snapshots/{round_:06d}"


def _state_of(file: Path) -> OuterState:
    kinds: dict[str, Tensors] = {"params": {}, "momentum": {}}
    with open_tensors(file) as opened:
        for key in opened.keys():  # noqa: SIM118  # it has no iterator
            kind, name = key.split(":", 1)
            kinds[kind][name] = opened.get_tensor(key)
    return OuterState(**kinds)


@dataclass(slots=True)
class _Delivery:
    """A pseudo-gradient on its way, and its round as a thread sees it."""

    exchange: Exchange
    file: Path | None
    sent: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    num_present: int = 0
    record: RoundRecord | None = None


class SharedStore:
    """A store, used by the first process of a worker, which informs the others.

    Attributes:
        snapshots: of the first process.
        sent_bytes: by this worker, since this was made.
        received_bytes: likewise.
    """

    def __init__(
        self,
        config: WorkersConfig,
        ranks: Ranks,
        codec: Codec,
        shapes: Mapping[str, Sequence[int]],
        settings: Mapping[str, Any],
        wants_to_stop: Callable[[], bool],
    ) -> None:
        """Open the store, and compare the run's settings with the other workers'.

        Args:
            config: of the workers.
            ranks: the processes of this one.
            codec: of pseudo-gradients.
            shapes: of the weights, by name; on the first process.
            settings: that all workers must have alike.
            wants_to_stop: polled while this worker waits.

        Raises:
            UserError: the store is of another run, cannot be written to, or lets two processes
                create one file.
        """
        self._config, self._ranks, self._codec, self._shapes = config, ranks, codec, shapes
        self._wants_to_stop = wants_to_stop
        self._me = config.number
        self._deliveries: dict[int, _Delivery] = {}
        self._said: set[str] = set()
        self._asked_after: int | None = None
        self._instance = uuid.uuid4().hex
        self.sent_bytes = self.received_bytes = 0
        if ranks.is_first:
            self._store = Store(config.store)
            self._closing = ExitStack()
            self._scratch = self._closing.enter_context(scratch_folder("shared-store"))
            self.snapshots = Snapshots(self._store, self._scratch)
            self._enter_run(settings)

    def _enter_run(self, settings: Mapping[str, Any]) -> None:
        store, url = self._store, self._config.store
        try:
            store.create_table("run.json", settings)
            if store.create_table("run.json", settings):
                raise UserError(
                    f"{url}: two workers can create one file there, so no round would be sure; use "
                    "a folder, or a store with conditional writes"
                )
            known = store.read_table("run.json") or {}
            self._write_presence(None)
        except (OSError, NotImplementedError) as error:
            raise UserError(f"{url}: cannot be used as a shared store: {error}") from error
        _check_same(url, known, settings)

    def _write_presence(self, asks_after: int | None) -> None:
        table = {"instance": self._instance, "asks_after": asks_after}
        self._store.write_table(f"workers/{self._me}.json", table)

    def _check_presence(self) -> None:
        """Stop if another launch has taken this one's place."""
        known = self._store.read_table(f"workers/{self._me}.json")
        if known is not None and known.get("instance") != self._instance:
            raise UserError(
                f"{self._config.store}: another launch is worker {self._me} since this one "
                "began; give each its own workers.number"
            )

    # Sending

    def send(self, exchange: Exchange, parts: Mapping[str, Tensor] | None) -> None:
        """Write a pseudo-gradient to a file of this machine; a thread carries it on."""
        if not self._ranks.is_first:
            return
        self._check_presence()
        if before := self._deliveries.pop(exchange.round, None):
            before.over.set()  # the same round, with more steps
        file = None
        if parts is not None:
            file = self._scratch / f"{exchange.round:06d}-{exchange.report.extra}.safetensors"
            save_file({n: p.contiguous() for n, p in parts.items()}, file)
            exchange.report = replace(exchange.report, sha256=sha256_of_file(file))
            self.sent_bytes += file.stat().st_size
        delivery = self._deliveries[exchange.round] = _Delivery(exchange, file)
        threading.Thread(target=self._carry, args=(delivery,), daemon=True).start()

    def flush(self) -> None:
        """Wait until pseudo-gradients are in the store, or one cannot be brought there."""
        for delivery in self._deliveries.values():
            delivery.sent.wait(self._config.grace_seconds)

    def _carry(self, delivery: _Delivery) -> None:
        """Bring a pseudo-gradient to the store, and look until the record of its round is there."""
        round_, since, pause = delivery.exchange.round, 0.0, _FIRST_LOOK_SECONDS
        while not delivery.over.wait(pause if since else 0):
            try:
                if not delivery.sent.is_set():
                    self._deliver(delivery)
                    since = time.monotonic()
                delivery.record = self.record(round_)
                if delivery.record is None:
                    self._try_to_record(delivery, time.monotonic() - since)
                    delivery.record = self.record(round_)
                if delivery.record is not None:
                    delivery.over.set()
            except OSError as error:
                self._say_once(f"{self._config.store}: {error}; trying again")
                since = since or time.monotonic()
            pause = min(1.5 * pause, _MOST_BETWEEN_LOOKS_SECONDS)

    def _deliver(self, delivery: _Delivery) -> None:
        exchange = delivery.exchange
        path = _path(exchange.round, exchange.report)
        if delivery.file is not None:
            self._store.put(delivery.file, f"{path}.safetensors")
            self._store.write_table(f"{path}.json", exchange.report.to_table())
            delivery.file.unlink()
            delivery.file = None
        delivery.sent.set()

    # Records of rounds

    def _try_to_record(self, delivery: _Delivery, waited_seconds: float) -> None:
        """Create the record of a round if enough workers are there."""
        exchange, config = delivery.exchange, self._config
        before = self.record(exchange.round - 1) if exchange.round else None
        if exchange.round and before is None:
            return
        present = self._present(exchange)
        delivery.num_present = len(present)
        all_there = len(present) == len(exchange.plan.budgets)
        has_waited = waited_seconds >= config.grace_seconds
        if not all_there and (len(present) < config.min_workers or not has_waited):
            return
        members = tuple(present[number] for number in sorted(present))
        plan, missed = plan_after(
            before.plan if before else Plan.first(config.count, config.period_steps),
            exchange.round + 1 + config.rounds_ahead,
            members,
            self._asking(exchange.round),
            before.missed if before else {},
            period_steps=config.period_steps,
            by_speed=config.by_speed,
        )
        record = RoundRecord(
            round=exchange.round,
            fragments=exchange.fragments,
            members=members,
            missed=missed,
            plan=plan,
            is_last=exchange.is_last,
        )
        self._store.create_table(_record(exchange.round), record.to_table())

    def _present(self, exchange: Exchange) -> dict[int, WorkerReport]:
        """Return the newest whole report of each member of a round."""
        reports: dict[int, WorkerReport] = {}
        folder = f"pseudo_gradients/{exchange.round:06d}"
        for name in self._store.names(folder):
            if not name.endswith(".json"):
                continue
            report = _report_of(self._store.read_table(f"{folder}/{name}"))
            if report is None or name != f"{report.worker}-{report.extra}.json":
                self._leave_out(f"{folder}/{name}", "is not whole")
            elif report.worker not in exchange.plan.budgets:
                self._leave_out(f"{folder}/{name}", "is of no member")
            elif report.base != exchange.report.base:
                self._leave_out(f"{folder}/{name}", "starts from other outer parameters")
            elif report.extra >= getattr(reports.get(report.worker), "extra", 0):
                reports[report.worker] = report
        return {n: report for n, report in reports.items() if self._file(exchange.round, report)}

    def _file(self, round_: int, report: WorkerReport) -> Path | None:
        """Return a pseudo-gradient's file on this machine; None if it is not whole."""
        path = f"{_path(round_, report)}.safetensors"
        file = self._store.get(path, self._scratch, report.sha256)
        if file is None:
            self._leave_out(path, "differs from its sha256")
        return file

    def _leave_out(self, path: str, reason: str) -> None:
        self._say_once(f"{self._store.place(path)}: {reason}; left out")

    def _asking(self, round_: int) -> list[int]:
        """Return which workers ask to take part, and have seen one of the newest rounds."""
        asking, oldest = [], round_ - 2 - self._config.rounds_ahead
        for name in self._store.names("workers"):
            after = (self._store.read_table(f"workers/{name}") or {}).get("asks_after")
            number = name.removesuffix(".json")
            if number.isdecimal() and isinstance(after, int) and after >= oldest:
                asking.append(int(number))
        return asking

    def record(self, round_: int) -> RoundRecord | None:
        """Return the record of a round, if there is one; of the first process."""
        table = self._store.read_table(_record(round_))
        return RoundRecord.from_table(table) if table else None

    def wait_for(self, exchange: Exchange, wait: Wait) -> RoundRecord | None:
        """Wait for a record; the first process informs the others each second.

        Returns:
            None: a quorum is missing, or this worker is to stop.
        """
        began = time.monotonic()
        while True:
            looked = None
            if self._ranks.is_first:
                looked = self._look_for(exchange, wait, time.monotonic() - began)
            record, is_over = self._ranks.shared(looked)
            if record is not None or is_over:
                if self._ranks.is_first and record is not None:
                    del self._deliveries[exchange.round]
                return record if isinstance(record, RoundRecord) else None

    def _look_for(
        self, exchange: Exchange, wait: Wait, waited_seconds: float
    ) -> tuple[RoundRecord | None, bool]:
        """Return the record, if there is one, and whether not to wait for it any longer."""
        delivery, config = self._deliveries[exchange.round], self._config
        if wait is not Wait.NOT:
            delivery.over.wait(_MESSAGE_SECONDS)
        lacks_quorum = delivery.num_present < config.min_workers
        is_alone = waited_seconds > config.grace_seconds and lacks_quorum
        if is_alone and wait is Wait.FOR_EVER:
            self._say_once(f"round {exchange.round}: waiting for a quorum, with which the run ends")
        gives_up = is_alone and wait is Wait.FOR_A_QUORUM
        return delivery.record, wait is Wait.NOT or gives_up or self._wants_to_stop()

    def pseudo_gradients(
        self, record: RoundRecord, names: Sequence[str]
    ) -> Sequence[PseudoGradient]:
        """Return them, decoded when requested; nothing but on the first process.

        Raises:
            FileNotFoundError: one of them is gone.
        """
        if not self._ranks.is_first:
            return []
        return [self._pseudo_gradient(record.round, report, names) for report in record.members]

    def _pseudo_gradient(
        self, round_: int, report: WorkerReport, names: Sequence[str]
    ) -> PseudoGradient:
        file = self._file(round_, report)
        if file is None:
            raise FileNotFoundError(f"{self._store.place(_path(round_, report))}: is torn or gone")
        self.received_bytes += file.stat().st_size if report.worker != self._me else 0
        opened = open_tensors(file)
        parts: dict[str, list[str]] = {}
        for key in opened.keys():  # noqa: SIM118  # it has no iterator
            parts.setdefault(key.rsplit(":", 1)[0], []).append(key)

        def read(name: str) -> Tensor:
            encoded = {key: opened.get_tensor(key) for key in parts[name]}
            return decoded(self._codec, encoded, {name: self._shapes[name]})[name]

        return OnDemand(list(names), read)

    # Joining

    def newest(self) -> int:
        """Return the number of the newest round, -1 before the first; of the first process."""
        names = [name for name in self._store.names("rounds") if name.endswith(".json")]
        return max((int(name[:6]) for name in names if name[:6].isdecimal()), default=-1)

    def catch_up(
        self,
        outer: OuterParams,
        mean: Callable[[RoundRecord], tuple[Tensors, Tensor]],
        lacked: str,
    ) -> str:
        """Bring outer parameters to the newest round, by its steps or by a snapshot.

        Args:
            outer: of a process that keeps all weights.
            mean: returns the mean of the pseudo-gradients of a round, and how far they agree.
            lacked: what this returned before; only a snapshot is looked for then.

        Returns:
            The file that the store lacks to get there, such as a pseudo-gradient that was torn
            after its round; nothing if the outer parameters are there.
        """
        is_far = self.newest() - outer.newest > self._config.snapshot_rounds
        if (is_far or lacked) and not self._take_snapshot(outer) and lacked:
            return lacked
        while outer.newest < self.newest():
            number = outer.newest + 1
            try:
                record = self.record(number)
                if record is None:
                    raise FileNotFoundError(f"the record of round {number} is not whole")
                gradient, _ = mean(record)
                outer.step(record, gradient)
            except FileNotFoundError as error:
                if not self._take_snapshot(outer):
                    return str(error)
        return ""

    def _take_snapshot(self, outer: OuterParams) -> bool:
        """Take the newest snapshot, if there is a later one than these outer parameters."""
        snapshot = self.snapshots.newest(outer.newest)
        if snapshot is None:
            return False
        numbers = range(max(0, snapshot.round + 1 - outer.num_plans), snapshot.round + 1)
        outer.take(snapshot, [record for record in map(self.record, numbers) if record])
        return True

    def ask_to_join(self, newest: int) -> None:
        """Announce that this worker has seen a round and requests to take part."""
        if self._ranks.is_first and newest != self._asked_after:
            self._check_presence()
            self._write_presence(newest)
            self._asked_after = newest

    def forget(self) -> None:
        """Drop all deliveries: others have finished those rounds without this worker."""
        for delivery in self._deliveries.values():
            delivery.over.set()
        self._deliveries.clear()

    def close(self) -> None:
        """Remove temporary files of this machine."""
        self.forget()
        if self._ranks.is_first:
            self._closing.close()

    def _say_once(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            say(message)


def check_store(url: str, settings: Mapping[str, Any]) -> None:
    """Compare settings with the store's, if there is a run; others may be compared later.

    Raises:
        UserError: the store is of a run with other settings, or cannot be read.
    """
    try:
        known = Store(url).read_table("run.json")
    except OSError as error:
        raise UserError(f"{url}: cannot be used as a shared store: {error}") from error
    if known:
        _check_same(url, {name: known.get(name) for name in settings}, settings)


def _check_same(url: str, known: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    if names := differing(known, settings):
        name = names[0]
        raise UserError(
            f"{url}: is of a run with other settings: {name} is {known.get(name)} there and "
            f"{settings.get(name)} here; use those, or another store"
        )


def _path(round_: int, report: WorkerReport) -> str:
    return f"pseudo_gradients/{round_:06d}/{report.worker}-{report.extra}"


def _record(round_: int) -> str:
    return f"rounds/{round_:06d}.json"


def _report_of(table: Mapping[str, Any] | None) -> WorkerReport | None:
    try:
        return WorkerReport.from_table(table) if table is not None else None
    except ValidationError:
        return None
