"""Trackers of metrics next to `metrics.jsonl`: none, TensorBoard or Trackio.

Both write into the run folder and need no network:

    <run>/tensorboard/   tensorboard --logdir <run>/tensorboard
    <run>/trackio/       TRACKIO_DIR=<run>/trackio trackio show

Trackio reads its own environment variables: a `TRACKIO_DIR` that is set stays unchanged, and a user
who sets `TRACKIO_SPACE_ID` or `TRACKIO_SERVER_URL` sends the metrics there.
"""

import json
import math
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from carbon.errors import UserError

_FLUSH_SECONDS = 10


class Tracker(ABC):
    """Takes the numbers of each step.

    After a resume or a rollback a step may come a second time. A step that is lower than the last
    one starts again: later values are withdrawn or set apart, so that no curve runs
    back over itself.
    """

    def __init__(self, run_folder: Path, config: Mapping[str, Any]) -> None:
        """Prepare; a missing package raises ImportError."""
        self._run_folder = run_folder
        self._config = config
        self._last_step: int | None = None

    def log(self, step: int, values: Mapping[str, object]) -> None:
        """Log the finite numbers among `values`; text, None and the step itself are left out."""
        numbers = {
            name: float(value)
            for name, value in values.items()
            if isinstance(value, int | float) and math.isfinite(value) and name != "step"
        }
        if not numbers:
            return
        if self._last_step is None or step < self._last_step:
            self.close()
            self._begin(step)
        self._write(step, numbers)
        self._last_step = step

    def close(self) -> None:
        """Flush and close."""
        if self._last_step is not None:
            self._end()
        self._last_step = None

    @abstractmethod
    def _begin(self, first_step: int) -> None:
        """Open what steps from `first_step` on are written to."""

    @abstractmethod
    def _write(self, step: int, numbers: dict[str, float]) -> None: ...

    @abstractmethod
    def _end(self) -> None: ...


class _NoTracker(Tracker):
    def _begin(self, first_step: int) -> None:
        pass

    def _write(self, step: int, numbers: dict[str, float]) -> None:
        pass

    def _end(self) -> None:
        pass


class _TensorBoard(Tracker):
    """A file of events each time; `purge_step` hides what earlier files have from there on."""

    def __init__(self, run_folder: Path, config: Mapping[str, Any]) -> None:
        super().__init__(run_folder, config)
        self._writer_class: Any = import_module("torch.utils.tensorboard").SummaryWriter

    def _begin(self, first_step: int) -> None:
        self._writer = self._writer_class(
            str(self._run_folder / "tensorboard"), purge_step=first_step, flush_secs=_FLUSH_SECONDS
        )
        for name, value in self._config.items():
            text = value if isinstance(value, str) else json.dumps(value, indent=1)
            self._writer.add_text(name, f"```\n{text}\n```", first_step)

    def _write(self, step: int, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def _end(self) -> None:
        self._writer.close()


class _Trackio(Tracker):
    """A Trackio run each time, named by its first step, all in the group of the run folder.

    Trackio never deletes values, so repeated steps appear in two of its runs.
    """

    def __init__(self, run_folder: Path, config: Mapping[str, Any]) -> None:
        super().__init__(run_folder, config)
        # Trackio reads this when it is first imported, and not again in the same process.
        os.environ.setdefault("TRACKIO_DIR", str((run_folder / "trackio").resolve()))
        self._trackio: Any = import_module("trackio")
        self._name = run_folder.resolve().name

    def _begin(self, first_step: int) -> None:
        with redirect_stdout(sys.stderr):  # it talks, and stdout is for results
            self._trackio.init(
                project="carbon",
                name=f"{self._name} from step {first_step}",
                group=self._name,
                config=dict(self._config),
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def _write(self, step: int, numbers: dict[str, float]) -> None:
        self._trackio.log(numbers, step=step)

    def _end(self) -> None:
        with redirect_stdout(sys.stderr):
            self._trackio.finish()


@dataclass(frozen=True, slots=True)
class TrackerKind:
    """What takes the numbers, and the package that it needs, if it needs one."""

    tracker: type[Tracker]
    package: str = ""


TRACKERS = {
    "none": TrackerKind(_NoTracker),
    "tensorboard": TrackerKind(_TensorBoard, package="tensorboard"),
    "trackio": TrackerKind(_Trackio, package="trackio"),
}


def open_tracker(name: str, run_folder: Path, config: Mapping[str, Any]) -> Tracker:
    """Return the tracker of that name; nothing is written before the first step is logged.

    Args:
        name: of `TRACKERS`.
        run_folder: where trackers write.
        config: of the run, as plain values; shown with the curves.

    Raises:
        UserError: its package is not installed.
    """
    kind = TRACKERS[name]
    try:
        return kind.tracker(run_folder, config)
    except ImportError:
        raise UserError(
            f"tracker = '{name}': the package is not installed; `pip install {kind.package}`"
        ) from None
