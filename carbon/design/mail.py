"""A mailbox of weights and samples, between whoever learns and whoever draws.

run.json                             settings of the run, by the learner
weights/000012.safetensors           the adapter after 12 steps
samples/000012/1-000003.safetensors  a group that worker 1 drew with it, and measured
over.json                            there is nothing more to draw

Beside each safetensors stands a table with its sha256, which is written after it. Nothing that is
read can run: files are safetensors and JSON. Where storage does not answer, reading and writing are
tried again for some minutes.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from safetensors.torch import save_file
from torch import Tensor

from carbon.console import say
from carbon.errors import UserError
from carbon.files import sha256_of_file
from carbon.store import Store, again, empty, open_tensors, scratch_folder

Tensors = dict[str, Tensor]
T = TypeVar("T")

_RUN, _OVER = "run.json", "over.json"
_KEPT_WEIGHTS = 2  # someone may be reading the older


class Letter(NamedTuple):
    """A group of samples, measured.

    Attributes:
        round: steps that were done when the weights were published that drew it.
        ids: (samples, tokens).
        log_probs: (samples, tokens) of these under the weights that drew them.
        values: (samples, oracles).
    """

    round: int
    ids: Tensor
    log_probs: Tensor
    values: Tensor


class Pause:
    """Pauses between two looks into a mailbox, that grow from 0.05 to 2 seconds."""

    _seconds = 0.05

    def wait(self) -> None:
        """Wait, and longer the next time."""
        time.sleep(self._seconds)
        self._seconds = min(1.5 * self._seconds, 2.0)


class Mailbox:
    """A folder or bucket that the learner and its workers share."""

    def __init__(self, url: str) -> None:
        """Open it.

        Raises:
            UserError: it cannot be opened.
        """
        self.url, self._store, self._scratch = url, Store(url), scratch_folder()

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Make it the mailbox of a run.

        Raises:
            UserError: it is that of another, or cannot be written to.
        """
        try:
            is_new = self._store.create_table(_RUN, settings)
        except (OSError, NotImplementedError) as error:
            raise UserError(f"{self.url}: cannot be used as a mailbox: {error}") from error
        if not is_new:
            raise UserError(f"{self.url}: is the mailbox of another run; name an empty one")

    def join(self, settings: Mapping[str, Any]) -> None:
        """Wait for the run, and hold its settings against one's own.

        Raises:
            UserError: they differ.
        """
        known = self._waited_for(lambda: self._store.read_table(_RUN), "the run to begin")
        names = sorted({*known, *settings})
        if other := [name for name in names if known.get(name) != settings.get(name)]:
            raise UserError(f"{self.url}: the run differs in: {', '.join(other)}; give the same")

    def publish(self, round_: int, weights: Tensors) -> None:
        """Offer the weights after so many steps."""
        self._put(f"weights/{round_:06d}", weights)
        for name in self._rounds("weights")[:-_KEPT_WEIGHTS]:
            self._remove(f"weights/{name:06d}")

    def newest(self, known: int | None) -> tuple[int, Tensors] | None:
        """Return the newest weights; None if they are known, or none are there."""
        rounds = self._rounds("weights")
        if not rounds or rounds[-1] == known:
            return None
        weights = self._get(f"weights/{rounds[-1]:06d}")
        return (rounds[-1], weights) if weights is not None else None

    def send(self, letter: Letter, worker: int, number: int) -> None:
        """Offer a group."""
        tensors = {"ids": letter.ids, "log_probs": letter.log_probs, "values": letter.values}
        self._put(f"samples/{letter.round:06d}/{worker}-{number:06d}", tensors)

    def take(self, least_round: int) -> Letter:
        """Return a group of the newest weights that any is there of, and take it away.

        Waits until there is one that was drawn with weights of `least_round` or newer.
        """

        def look() -> Letter | None:
            for round_ in reversed(self._rounds("samples")):
                if round_ >= least_round:
                    for path in self._groups(round_):
                        tensors = self._get(path)
                        self._remove(path)
                        if tensors is not None:
                            return Letter(round_, **tensors)
            return None

        return self._waited_for(look, "samples of workers")

    def drop(self, least_round: int) -> int:
        """Remove the groups of older weights; return how many."""
        rounds = [round_ for round_ in self._rounds("samples") if round_ < least_round]
        old = [path for round_ in rounds for path in self._groups(round_)]
        for path in old:
            self._remove(path)
        return len(old)

    def num_waiting(self, least_round: int) -> int:
        """Return how many groups of these weights or newer nobody has taken."""
        rounds = (round_ for round_ in self._rounds("samples") if round_ >= least_round)
        return sum(len(self._groups(round_)) for round_ in rounds)

    def end(self) -> None:
        """Tell workers that there is nothing more to draw."""
        again(self.url, lambda: self._store.write_table(_OVER, {}))

    def is_over(self) -> bool:
        """Tell whether the run is over."""
        return self._store.read_table(_OVER) is not None

    def close(self) -> None:
        """Let go of what is on this machine."""
        empty(self._scratch)

    def _rounds(self, folder: str) -> list[int]:
        """Return the numbers that stand in a folder: of samples, or of weights with a table."""
        names = [name.removesuffix(".json") for name in self._store.names(folder)]
        return sorted(int(name) for name in names if name.isdecimal())

    def _groups(self, round_: int) -> list[str]:
        folder = f"samples/{round_:06d}"
        names = [name for name in self._store.names(folder) if name.endswith(".json")]
        return [f"{folder}/{name.removesuffix('.json')}" for name in names]

    def _remove(self, path: str) -> None:
        """Remove tensors, the table first: what has none is not there."""
        for name in (f"{path}.json", f"{path}.safetensors"):
            again(self.url, partial(self._store.remove, name))

    def _put(self, path: str, tensors: Tensors) -> None:
        file = self._scratch / "sent.safetensors"
        save_file({name: each.contiguous() for name, each in tensors.items()}, file)
        told = {"sha256": sha256_of_file(file)}
        again(self.url, lambda: self._store.put(file, f"{path}.safetensors"))
        again(self.url, lambda: self._store.write_table(f"{path}.json", told))

    def _get(self, path: str) -> Tensors | None:
        """Return what is whole; None if it is gone, or is not what its table says."""
        table = self._store.read_table(f"{path}.json") or {}
        file = self._store.get(f"{path}.safetensors", self._scratch, str(table.get("sha256")))
        if file is None:
            return None
        try:
            with open_tensors(file) as opened:
                return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        except FileNotFoundError:  # removed since: a local file is read where it lies
            return None
        finally:
            if file.parent == self._scratch:
                file.unlink()

    def _waited_for(self, look: Callable[[], T | None], what: str) -> T:
        pause, began, has_said = Pause(), time.monotonic(), False
        while (found := look()) is None:
            pause.wait()
            if not has_said and time.monotonic() - began > 30:
                has_said = True
                say(f"{self.url}: waiting for {what}")
        return found
