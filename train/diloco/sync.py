"""Synchronisation between workers as the trainer sees it, and a run without any."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from train.runs.log import RunLog
from train.runs.record import Work
from train.saved import RunState


class OuterSync:
    """Which steps a run takes, and what happens between them; here all, and nothing.

    Attributes:
        order: the steps from where the run stands, another object when others follow; None: all.
        stopped: whether the run is to stop, in the middle of a round maybe.
    """

    order: Iterable[int] | None = None
    stopped = False

    def begin(self, state: RunState, log: RunLog, wants_to_stop: Callable[[], bool]) -> None:
        """Continue from a state, once the weights are loaded."""

    def after_step(self, state: RunState, tokens: int, seconds: float) -> None:
        """Follow a step, which was good if it has tokens; set the step that is next."""
        state.step += 1

    def steps_taken(self, state: RunState) -> int:
        """Return the steps of the run that these processes have taken: names of checkpoints."""
        return state.step

    def trained(self) -> Work | None:
        """Return the training of all workers in the outer parameters; None: there are none."""
        return None

    @contextmanager
    def outer_params_loaded(self) -> Iterator[None]:
        """Let the weights be the outer parameters for a while."""
        yield

    def close(self) -> None:
        """Release resources."""

    # State in checkpoints

    def expect(self, table: Mapping[str, Any]) -> None:
        """Take what `to_table` gave, and make room for the tensors."""

    def to_table(self) -> dict[str, Any]:
        """Return what JSON can hold of it, when it is fit to be saved."""
        return {}

    def tensors(self) -> dict[str, Tensor]:
        """Return its tensors by their names in a checkpoint."""
        return {}
