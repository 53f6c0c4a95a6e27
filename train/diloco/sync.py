"""What the trainer asks about meetings, and the answers of a run that has none."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from torch import Tensor

from train.checkpoint import AlsoSaved
from train.runs.log import RunLog
from train.runs.record import Work
from train.saved import RunState


class OuterSync(AlsoSaved, Protocol):
    """Which steps a run takes, and what happens between them.

    Attributes:
        order: the steps from where the run stands, another object when others follow; None: all.
        stopped: whether the run is to stop, in the middle of a meeting maybe.
    """

    order: Iterable[int] | None
    stopped: bool

    def begin(self, state: RunState, log: RunLog, wants_to_stop: Callable[[], bool]) -> None:
        """Go on from a state, when the weights are there."""

    def taken(self, state: RunState, tokens: int, seconds: float) -> None:
        """Do what follows a step, which was good if it has tokens; say which is next."""

    def trained(self) -> Work | None:
        """Return the training of all learners that is in the anchor; None: there are none."""

    def anchored(self) -> Any:
        """Return a context in which the weights are those that all have in common."""

    def close(self) -> None:
        """Leave nothing behind."""


class NoSync:
    """A run that takes all steps, one after the other, and meets nobody."""

    order: Iterable[int] | None = None
    stopped = False

    def begin(self, state: RunState, log: RunLog, wants_to_stop: Callable[[], bool]) -> None:
        """Go on from its step."""

    def taken(self, state: RunState, tokens: int, seconds: float) -> None:
        """Go on to the step behind it."""
        state.step += 1

    def steps_taken(self, state: RunState) -> int:
        """Return the steps of the run: all are its own."""
        return state.step

    def expect(self, table: Mapping[str, Any]) -> None:
        """Expect nothing."""

    def to_table(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def tensors(self) -> dict[str, Tensor]:
        """Return nothing."""
        return {}

    def trained(self) -> None:
        """Return nothing: the steps of the run are its training."""

    @contextmanager
    def anchored(self) -> Iterator[None]:
        """Leave the weights as they are."""
        yield

    def close(self) -> None:
        """Do nothing."""
