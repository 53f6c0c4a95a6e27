"""Synchronisation as the trainer sees it, and a run without any."""

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
        """Continue from a state, once the weights are loaded."""

    def taken(self, state: RunState, tokens: int, seconds: float) -> None:
        """Do what follows a step, which was good if it has tokens; say which is next."""

    def trained(self) -> Work | None:
        """Return the training of all learners that is in the anchor; None: there are none."""

    def anchored(self) -> Any:
        """Return a context in which the weights are the outer parameters."""

    def close(self) -> None:
        """Release resources."""


class NoSync:
    """A run that takes all steps in order and synchronises with no other."""

    order: Iterable[int] | None = None
    stopped = False

    def begin(self, state: RunState, log: RunLog, wants_to_stop: Callable[[], bool]) -> None:
        """Continue from the state's step."""

    def taken(self, state: RunState, tokens: int, seconds: float) -> None:
        """Advance to the next step."""
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
