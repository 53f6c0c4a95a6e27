"""Outer parameters: the weights that all workers share, and their history."""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from carbon.io.files import sha256_of_file
from carbon.io.store import Store, open_tensors
from carbon.progress import say
from train.config import LearnersConfig
from train.diloco.codecs import CODECS
from train.diloco.outer import OuterState, OuterStep, Tensors, fragments
from train.diloco.rounds import Meeting, Plan, first_plan, plan_of
from train.diloco.weights import Weights
from train.runs.record import Work

_START = -1
"""The number of the meeting before the first."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A copy of the anchor.

    Attributes:
        round: the meeting after which it was kept.
        digests: of the newest meetings, that one among them.
        state: of the outer optimizer.
        merged: training of all learners whose changes are in it, added up over fragments.
    """

    round: int
    digests: Mapping[int, str]
    state: OuterState
    merged: Work


class KeptAnchors:
    """The two newest copies of anchor and momentum; changes older than both are removed."""

    def __init__(self, store: Store, scratch: Path) -> None:
        """Look after them.

        Args:
            store: of the mailbox.
            scratch: folder of this machine.
        """
        self._store, self._scratch = store, scratch
        self._said: set[str] = set()

    def keep(self, kept: Kept) -> None:
        """Write a copy of the anchor after a meeting, once; if that fails, an older has to do."""
        round_, state = kept.round, kept.state
        kinds = {"anchor": state.anchor, "momentum": state.momentum, "pending": state.pending}
        tensors = {f"{kind}:{n}": t for kind, held in kinds.items() for n, t in held.items()}
        file, path = self._scratch / f"anchor-{round_}.safetensors", _path(round_)
        try:
            if round_ in self._rounds():
                return
            save_file(tensors, file)
            table = {
                "sha256": sha256_of_file(file),
                "digests": kept.digests,
                "steps": state.steps,
                "merged": asdict(kept.merged),
            }
            self._store.put(file, f"{path}.safetensors")
            self._store.write_table(f"{path}.json", table)
            *earlier, _ = self._rounds()
            for old in earlier[:-1]:
                self._store.remove(f"{_path(old)}.json")
                self._store.remove(f"{_path(old)}.safetensors")
            if earlier:
                self._remove_changes_until(earlier[-1])
        except OSError as error:
            say(f"{self._store.place(path)}: the anchor could not be kept: {error}")
        finally:
            file.unlink(missing_ok=True)

    def newest(self, after: int) -> Kept | None:
        """Return the newest whole one of a meeting later than one."""
        rounds, known = self._rounds(), None
        while rounds != known:  # what went while it was looked for made room for a newer one
            for round_ in reversed(rounds):
                if round_ > after and (found := self._whole(round_)):
                    return found
            rounds, known = self._rounds(), rounds
        return None

    def _whole(self, round_: int) -> Kept | None:
        path = f"{_path(round_)}.safetensors"
        table = self._store.read_table(f"{_path(round_)}.json") or {}
        with suppress(FileNotFoundError):
            if file := self._store.get(path, self._scratch, str(table.get("sha256"))):
                digests = {int(number): digest for number, digest in table["digests"].items()}
                state = _state_of(file, table["steps"])
                return Kept(round_, digests, state, Work(**table["merged"]))
        if path not in self._said:
            self._said.add(path)
            say(f"{self._store.place(path)}: is not what its sha256 says, or is gone; left out")
        return None

    def _rounds(self) -> list[int]:
        names = [name.removesuffix(".json") for name in self._store.names("anchors")]
        return [int(name) for name in names if name.isdecimal()]

    def _remove_changes_until(self, round_: int) -> None:
        for name in self._store.names("rounds"):
            if name.isdecimal() and int(name) <= round_:
                self._store.remove(f"rounds/{name}")


def _path(round_: int) -> str:
    return f"anchors/{round_:06d}"


def _state_of(file: Path, steps: Mapping[str, int]) -> OuterState:
    parts: dict[str, dict[str, Tensor]] = {"anchor": {}, "momentum": {}, "pending": {}}
    with open_tensors(file) as opened:
        for key in opened.keys():  # noqa: SIM118  # it has no iterator
            kind, name = key.split(":", 1)
            parts[kind][name] = opened.get_tensor(key)
    return OuterState(**parts, steps=dict(steps))


class OuterParams:
    """The shared weights that this process keeps, and the newest plans.

    Attributes:
        landed: the newest meeting that is in it.
        is_over: whether that was the last of the run.
        state: of the outer optimizer.
        residuals: unsent parts of this worker's changes, for codecs with error feedback.
        digests: of the newest meetings, each with all before it.
        plans: of the rounds that a learner may be in.
        num_plans: how many those are.
        merged: training of all learners whose changes are in it, added up over fragments.
    """

    def __init__(self, config: LearnersConfig, weights: Weights) -> None:
        """Prepare; `begin` or `expect` follows.

        Raises:
            ConfigError: there are more fragments than weights.
        """
        self._config, self._weights = config, weights
        self._fragments = fragments(weights.sizes, config.fragments)
        self.names = [name for names in self._fragments for name in names]
        self.landed, self.is_over = _START, False
        self.state = OuterState({}, {}, {}, {})
        self.residuals: Tensors = {}
        self.digests: dict[int, str] = {}
        self.plans = [first_plan(config.count, config.period_steps)]
        self.num_plans = config.rounds_ahead + 2
        self.merged = Work()

    def begin(self) -> None:
        """Let the anchor be the weights as they are."""
        self._make_room()
        self.digests = {_START: self._digest(self.names, "")}

    def _make_room(self) -> None:
        anchor = self._weights.read(self.names)

        def zeros(are_wanted: bool) -> Tensors:
            return {n: t.new_zeros(t.shape) for n, t in anchor.items()} if are_wanted else {}

        has_momentum, is_delayed = self._config.momentum > 0, self._config.momentum_every > 1
        pending = zeros(has_momentum and is_delayed)
        self.state = OuterState(anchor, zeros(has_momentum), pending, {})
        self.residuals = zeros(CODECS[self._config.codec].feedback is not None)

    def names_of(self, numbers: Sequence[int]) -> list[str]:
        """Return the weights of fragments."""
        return [name for number in numbers for name in self._fragments[number]]

    def held(self, numbers: Sequence[int]) -> list[str]:
        """Return the names that this process keeps."""
        return [name for name in self.names_of(numbers) if name in self.state.anchor]

    def plan(self, round_: int) -> Plan:
        """Return the newest plan that is of a round or of one before it."""
        return next(plan for plan in reversed(self.plans) if plan.round <= round_)

    def base(self, round_: int) -> str:
        """Return the digest of the last meeting that all members of a round have applied."""
        return self.digests[max(_START, round_ - max(1, self._config.rounds_ahead))]

    def step(self, meeting: Meeting, change: Tensors) -> None:
        """Take the outer step of a meeting."""
        config = self._config
        is_warm = meeting.round >= config.momentum_warmup_rounds
        every = config.momentum_every if is_warm else 1
        OuterStep(config.learning_rate, config.momentum, every).step(self.state, change)
        names = self.names_of(meeting.fragments)
        self.digests[meeting.round] = self._digest(names, self.digests[self.landed])
        self.digests = dict(list(self.digests.items())[-self.num_plans :])
        self.plans = [*self.plans, meeting.plan][-self.num_plans :]
        self.landed, self.is_over = meeting.round, meeting.is_last
        # A change that counts nothing brings no training into the anchor.
        self.merged = sum((told.work for told in meeting.members if told.tokens), self.merged)

    def trained(self) -> Work:
        """Return the training that is in the anchor: of fragments, their mean."""
        return self.merged.times(1 / self._config.fragments)

    def kept(self) -> Kept:
        """Return a copy that shares its tensors."""
        return Kept(self.landed, dict(self.digests), self.state, self.merged)

    def take(self, kept: Kept, meetings: Sequence[Meeting]) -> None:
        """Go to a later anchor that was kept, whose last meetings are these, itself among them."""
        self.landed, self.digests, self.state = kept.round, dict(kept.digests), kept.state
        self.merged = kept.merged
        first = first_plan(self._config.count, self._config.period_steps)
        self.plans = [first, *(meeting.plan for meeting in meetings)]
        self.is_over = any(meeting.is_last for meeting in meetings)

    def _digest(self, names: Sequence[str], before: str) -> str:
        """Return the sha256 of the previous digest and of these weights, with their momentum."""
        found = hashlib.sha256(before.encode())
        for name in names:
            for tensors in (self.state.anchor, self.state.momentum):
                if name in tensors:
                    found.update(tensors[name].contiguous().numpy().data)
        return found.hexdigest()

    def known(self) -> tuple[Any, ...]:
        """Return the state for processes that keep no weights."""
        return self.landed, self.is_over, self.plans, self.digests, self.merged

    def learn(self, known: tuple[Any, ...]) -> None:
        """Take what `known` gave on another process."""
        self.landed, self.is_over, self.plans, self.digests, self.merged = known

    def to_table(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        held = (self.held([number]) for number in range(len(self._fragments)))
        return {
            "landed": self.landed,
            "is_over": self.is_over,
            "plans": [asdict(plan) for plan in self.plans],
            "digests": {str(number): digest for number, digest in self.digests.items()},
            "merged": asdict(self.merged),
            "trained": asdict(self.trained()),
            "outer_steps": [self.state.steps.get(names[0], 0) if names else 0 for names in held],
        }

    def expect(self, table: Mapping[str, Any]) -> None:
        """Take what `to_table` gave, and make room for the tensors."""
        self._make_room()
        self.landed, self.is_over = table["landed"], table["is_over"]
        self.merged = Work(**table["merged"])
        self.plans = [plan_of(plan) for plan in table["plans"]]
        self.digests = {int(number): digest for number, digest in table["digests"].items()}
        for number, steps in enumerate(table["outer_steps"]):
            self.state.steps |= dict.fromkeys(self.held([number]), steps)

    def tensors(self) -> dict[str, Tensors]:
        """Return its tensors in a checkpoint, by kind."""
        return {
            "anchor": self.state.anchor,
            "momentum": self.state.momentum,
            "pending": self.state.pending,
            "residual": self.residuals,
        }


def as_saved(kinds: Mapping[str, Tensors], weights: Weights) -> dict[str, Tensor]:
    """Return tensors by their names in a checkpoint."""
    return {
        f"learner.{kind}.{name}": weights.as_saved(name, tensor)
        for kind, tensors in kinds.items()
        for name, tensor in tensors.items()
    }
