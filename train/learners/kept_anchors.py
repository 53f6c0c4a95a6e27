"""Anchors in a mailbox, with which a learner can begin that comes late."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from carbon.io.files import sha256_of_file
from carbon.io.store import Store, open_tensors
from carbon.progress import say
from train.learners.outer import OuterState
from train.run_folder.work import Work


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
