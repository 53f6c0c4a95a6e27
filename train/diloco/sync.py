"""Synchronisation between workers as the trainer sees it, and a run without any."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from train.checkpoint import AlsoSaved
from train.config import TrainConfig
from train.diloco.group import check_alike
from train.diloco.weights import ShardWeights, Weights, WholeWeights
from train.distributed.mesh import Ranks
from train.distributed.stage import DecoderStage
from train.runs.log import RunLog
from train.runs.record import Work
from train.saved import RunState


class OuterSync(AlsoSaved):
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

    def trained(self) -> Work | None:
        """Return the training of all workers in the outer parameters; None: there are none."""
        return None

    @contextmanager
    def outer_params_loaded(self) -> Iterator[None]:
        """Let the weights be the outer parameters for a while."""
        yield

    def close(self) -> None:
        """Release resources."""


class Worker(OuterSync):
    """One of the workers of a run."""

    def __init__(
        self,
        config: TrainConfig,
        ranks: Ranks,
        parts: list[DecoderStage],
        total_steps: int,
        settings: Mapping[str, Any],
    ) -> None:
        """Prepare; `begin` joins the others.

        Args:
            config: of the run.
            ranks: the processes of this worker.
            parts: of the network, of this process.
            total_steps: of the run.
            settings: that all workers of the run must have alike.

        Raises:
            UserError: another worker of the launch has another recipe.
        """
        self._config, self._ranks = config.workers, ranks
        self._total_steps, self._settings = total_steps, settings
        if not self._config.store:
            check_alike(settings, ranks)
        kind = WholeWeights if self._config.store else ShardWeights
        self._weights: Weights = kind(parts, ranks)
