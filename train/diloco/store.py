"""Learners of launches of their own, which share storage and nothing else.

run.json                          settings of the run, by the first who comes
learners/2.json                   which launch is learner 2, and since when it asks to take part
rounds/000012/2-0.safetensors     its change of round 12, encoded; 2-1 if it went on alone
rounds/000012/2-0.json            the report on it, with the sha256; written after it
meetings/000012.json              who took part, and who takes which steps next; created once
anchors/000010.safetensors        anchor and momentum after a meeting; with a .json

Any worker that sees enough changes creates the record; storage lets only one of them do so.
All others follow it. No clocks must agree, and no port or server is needed.
"""

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from carbon.errors import UserError
from carbon.io.files import scratch_folder, sha256_of_file
from carbon.io.store import Store, open_tensors
from carbon.model.save import OnDemand
from carbon.progress import say
from train.config import LearnersConfig
from train.diloco.codecs import Codec, decoded
from train.diloco.outer_params import KeptAnchors
from train.diloco.rounds import Change, Flight, Meeting, Wait, WorkerReport, first_plan, planned
from train.distributed.mesh import Ranks

_FIRST_LOOK_SECONDS, _MOST_BETWEEN_LOOKS_SECONDS = 0.05, 2.0
_TURN_SECONDS = 1.0
"""Between two words of the first process to the others, which wait for it."""


@dataclass(slots=True)
class _Flying:
    """A flight, and the state of its meeting as seen by a thread."""

    flight: Flight
    file: Path | None
    sent: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    num_present: int = 0
    meeting: Meeting | None = None


class SharedStore:
    """A store, used by the first process of a worker, which informs the others.

    Attributes:
        url: where it is.
        anchor_every: meetings between two anchors that are kept.
        anchors: that are kept in it; of the first process.
        sent_bytes: by this learner, since this was made.
        received_bytes: likewise.
    """

    def __init__(
        self,
        config: LearnersConfig,
        ranks: Ranks,
        codec: Codec,
        shapes: Mapping[str, Sequence[int]],
        settings: Mapping[str, Any],
        wants_to_stop: Callable[[], bool],
    ) -> None:
        """Open the store, and compare the run's settings with the other workers'.

        Args:
            config: of the learners.
            ranks: the processes of this one.
            codec: of changes.
            shapes: of the weights, by name; on the first process.
            settings: that all learners must have alike.
            wants_to_stop: asked while this learner waits.

        Raises:
            UserError: the mailbox is of another run, cannot be written to, or cannot create a file
                for one of many alone.
        """
        self._config, self._ranks, self._codec, self._shapes = config, ranks, codec, shapes
        self.url, self.anchor_every = config.mailbox, config.anchor_every
        self._wants_to_stop = wants_to_stop
        self._me = config.number
        self._flying: dict[int, _Flying] = {}
        self._said: set[str] = set()
        self._asked_after: int | None = None
        self._instance = uuid.uuid4().hex
        self.sent_bytes = self.received_bytes = 0
        if ranks.is_first:
            self._store = Store(config.mailbox)
            self._closing = ExitStack()
            self._scratch = self._closing.enter_context(scratch_folder("mailbox"))
            self.anchors = KeptAnchors(self._store, self._scratch)
            self._enter_run(settings)

    def _enter_run(self, settings: Mapping[str, Any]) -> None:
        store, where = self._store, self._config.mailbox
        try:
            store.create_table("run.json", settings)
            if store.create_table("run.json", settings):
                raise UserError(
                    f"{where}: two can create one file there, so no meeting would be sure; use a "
                    "folder, or a store with conditional writes"
                )
            known = store.read_table("run.json") or {}
            self._write_presence(None)
        except (OSError, NotImplementedError) as error:
            raise UserError(f"{where}: cannot be used as a mailbox: {error}") from error
        differing = [n for n in sorted({*known, *settings}) if known.get(n) != settings.get(n)]
        if differing:
            name = differing[0]
            raise UserError(
                f"{where}: is of a run with other settings: {name} is {known.get(name)} there and "
                f"{settings.get(name)} here; use those, or another mailbox"
            )

    def _write_presence(self, asks_after: int | None) -> None:
        table = {"instance": self._instance, "asks_after": asks_after}
        self._store.write_table(f"learners/{self._me}.json", table)

    def _check_presence(self) -> None:
        """Stop if another launch has taken this one's place."""
        known = self._store.read_table(f"learners/{self._me}.json")
        if known is not None and known.get("instance") != self._instance:
            raise UserError(
                f"{self._config.mailbox}: another launch is learner {self._me} since this one "
                "began; give each its own learners.number"
            )

    # Sending

    def send(self, flight: Flight, parts: Mapping[str, Tensor] | None) -> None:
        """Write a change to a file of this machine; a thread carries it on."""
        if not self._ranks.is_first:
            return
        self._check_presence()
        if before := self._flying.pop(flight.round, None):
            before.over.set()  # the same round, with more steps
        file = None
        if parts is not None:
            file = self._scratch / f"{_name(flight)}.safetensors"
            save_file({n: p.contiguous() for n, p in parts.items()}, file)
            flight.told = replace(flight.told, sha256=sha256_of_file(file))
            self.sent_bytes += file.stat().st_size
        flying = _Flying(flight, file)
        self._flying[flight.round] = flying
        threading.Thread(target=self._carry, args=(flying,), daemon=True).start()

    def flush(self) -> None:
        """Wait until changes are in the store, or one cannot be brought there."""
        for flying in self._flying.values():
            flying.sent.wait(self._config.grace_seconds)

    def _carry(self, flying: _Flying) -> None:
        """Bring a change to the store, and look for its meeting until it is there."""
        since, pause = 0.0, _FIRST_LOOK_SECONDS
        while not flying.over.wait(pause if since else 0):
            try:
                if not flying.sent.is_set():
                    self._deliver(flying)
                    since = time.monotonic()
                flying.meeting = self.record(flying.flight.round)
                if flying.meeting is None:
                    self._try_to_meet(flying, time.monotonic() - since)
                    flying.meeting = self.record(flying.flight.round)
                if flying.meeting is not None:
                    flying.over.set()
            except OSError as error:
                self._say_once(f"{self._config.mailbox}: {error}; trying again")
                since = since or time.monotonic()
            pause = min(1.5 * pause, _MOST_BETWEEN_LOOKS_SECONDS)

    def _deliver(self, flying: _Flying) -> None:
        flight = flying.flight
        path = _path(flight.round, flight.told)
        if flying.file is not None:
            self._store.put(flying.file, f"{path}.safetensors")
            self._store.write_table(f"{path}.json", asdict(flight.told))
            flying.file.unlink()
            flying.file = None
        flying.sent.set()

    # Meeting

    def _try_to_meet(self, flying: _Flying, waited_seconds: float) -> None:
        """Create the record of a meeting if enough are there."""
        flight = flying.flight
        before = self.record(flight.round - 1) if flight.round else None
        if flight.round and before is None:
            return
        present = self._present(flight)
        flying.num_present = len(present)
        all_there = len(present) == len(flight.plan.budgets)
        has_waited = waited_seconds >= self._config.grace_seconds
        if not all_there and (len(present) < self._config.least or not has_waited):
            return
        members = [present[number] for number in sorted(present)]
        config = self._config
        plan_before = before.plan if before else first_plan(config.count, config.period_steps)
        next_round = flight.round + 1 + config.rounds_ahead
        plan, missed = planned(
            plan_before,
            next_round,
            members,
            self._asking(flight.round),
            before.missed if before else {},
            period_steps=config.period_steps,
            by_speed=config.by_speed,
        )
        meeting = Meeting(
            round=flight.round,
            fragments=flight.fragments,
            members=tuple(members),
            missed=missed,
            plan=plan,
            is_last=flight.is_last,
        )
        self._store.create_table(_record(flight.round), meeting.to_table())

    def _present(self, flight: Flight) -> dict[int, WorkerReport]:
        """Return the newest whole report of each member of a round."""
        found: dict[int, WorkerReport] = {}
        folder = f"rounds/{flight.round:06d}"
        for name in self._store.names(folder):
            if not name.endswith(".json"):
                continue
            told = _told_of(self._store.read_table(f"{folder}/{name}"))
            if told is None or name != f"{told.learner}-{told.extra}.json":
                self._say_once(f"{self._store.place(folder)}/{name}: is not whole; left out")
            elif told.learner not in flight.plan.budgets:
                self._say_once(f"{self._store.place(folder)}/{name}: is of no member; left out")
            elif told.base != flight.told.base:
                self._say_once(
                    f"{self._store.place(folder)}/{name}: is from another anchor; left out"
                )
            elif told.extra >= getattr(found.get(told.learner), "extra", 0):
                found[told.learner] = told
        return {n: told for n, told in found.items() if self._file(flight.round, told)}

    def _file(self, round_: int, told: WorkerReport) -> Path | None:
        """Return a change's file on this machine; None, with a word, if it is not whole."""
        path = f"{_path(round_, told)}.safetensors"
        file = self._store.get(path, self._scratch, told.sha256)
        if file is None:
            self._say_once(f"{self._store.place(path)}: is not what its sha256 says; left out")
        return file

    def _asking(self, round_: int) -> list[int]:
        """Return who asks to take part, and has seen one of the newest meetings."""
        found = []
        for name in self._store.names("learners"):
            table = self._store.read_table(f"learners/{name}") or {}
            after = table.get("asks_after")
            number = name.removesuffix(".json")
            least = round_ - 2 - self._config.rounds_ahead
            if number.isdecimal() and isinstance(after, int) and after >= least:
                found.append(int(number))
        return found

    def record(self, round_: int) -> Meeting | None:
        """Return the record of a meeting, if there is one; of the first process."""
        table = self._store.read_table(_record(round_))
        return Meeting.from_table(table) if table else None

    def meeting(self, flight: Flight, wait: Wait) -> Meeting | None:
        """Wait for the meeting; the others wait for the first process, which says so each second.

        Returns:
            None: it has not taken place, for want of a quorum, or this learner is to stop.
        """
        began = time.monotonic()
        while True:
            found = None
            if self._ranks.is_first:
                found = self._looked_for(flight, wait, time.monotonic() - began)
            meeting, is_over = self._ranks.shared(found)
            if meeting is not None or is_over:
                if self._ranks.is_first and meeting is not None:
                    del self._flying[flight.round]
                return meeting if isinstance(meeting, Meeting) else None

    def _looked_for(
        self, flight: Flight, wait: Wait, waited_seconds: float
    ) -> tuple[Meeting | None, bool]:
        """Return the meeting, if it has taken place, and whether not to wait for it any longer."""
        flying = self._flying[flight.round]
        if wait is not Wait.NOT:
            flying.over.wait(_TURN_SECONDS)
        is_alone = waited_seconds > self._config.grace_seconds and (
            flying.num_present < self._config.least
        )
        if is_alone and wait is Wait.FOR_EVER:
            self._say_once(f"round {flight.round}: waiting for a quorum, with which the run ends")
        gives_up = is_alone and wait is Wait.FOR_A_QUORUM
        return flying.meeting, wait is Wait.NOT or gives_up or self._wants_to_stop()

    def changes(self, meeting: Meeting, names: Sequence[str]) -> list[Change]:
        """Return the changes, decoded when asked for; nothing but on the first process.

        Raises:
            FileNotFoundError: one of them is gone.
        """
        if not self._ranks.is_first:
            return []
        return [self._change(meeting.round, told, names) for told in meeting.members]

    def _change(self, round_: int, told: WorkerReport, names: Sequence[str]) -> Change:
        file = self._file(round_, told)
        if file is None:
            raise FileNotFoundError(f"{self._store.place(_path(round_, told))}: is torn or gone")
        self.received_bytes += file.stat().st_size if told.learner != self._me else 0
        opened = open_tensors(file)
        parts: dict[str, list[str]] = {}
        for key in opened.keys():  # noqa: SIM118  # it has no iterator
            parts.setdefault(key.rsplit(":", 1)[0], []).append(key)

        def read(name: str) -> Tensor:
            found = {key: opened.get_tensor(key) for key in parts[name]}
            return decoded(self._codec, found, {name: self._shapes[name]})[name]

        return OnDemand(list(names), read)

    # Joining

    def newest(self) -> int:
        """Return the round of the newest meeting, -1 before the first; of the first process."""
        found = [name for name in self._store.names("meetings") if name.endswith(".json")]
        return max((int(name[:6]) for name in found if name[:6].isdecimal()), default=-1)

    def ask_to_join(self, newest: int) -> None:
        """Announce that this worker has seen a meeting and requests to take part."""
        if self._ranks.is_first and newest != self._asked_after:
            self._check_presence()
            self._write_presence(newest)
            self._asked_after = newest

    def forget(self) -> None:
        """Let go of all flights: others have met without this learner."""
        for flying in self._flying.values():
            flying.over.set()
        self._flying.clear()

    def close(self) -> None:
        """Remove temporary files of this machine."""
        self.forget()
        if self._ranks.is_first:
            self._closing.close()

    def _say_once(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            say(message)


def _name(flight: Flight) -> str:
    return f"{flight.round:06d}-{flight.told.extra}"


def _path(round_: int, told: WorkerReport) -> str:
    return f"rounds/{round_:06d}/{told.learner}-{told.extra}"


def _record(round_: int) -> str:
    return f"meetings/{round_:06d}.json"


def _told_of(table: Mapping[str, Any] | None) -> WorkerReport | None:
    try:
        return WorkerReport(**table) if table is not None else None
    except TypeError:
        return None
