"""Trackers of metrics next to `metrics.jsonl`, through `accelerate.tracking`.

TensorBoard and Trackio write into the run folder and need no network. Weights & Biases sends the
metrics to its server, unless `WANDB_MODE=offline` is set:

    <run>/tensorboard/   tensorboard --logdir <run>/tensorboard
    <run>/trackio/       TRACKIO_DIR=<run>/trackio trackio show
    <run>/wandb/         wandb sync <run>/wandb/offline-*

Trackio and Weights & Biases read their own environment variables: a `TRACKIO_DIR` that is set stays
unchanged, and a user who sets `TRACKIO_SPACE_ID` or `TRACKIO_SERVER_URL` sends the metrics there.
"""

import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from carbon.errors import UserError

_PROJECT = "carbon"
Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TrackerKind:
    """A class of `accelerate.tracking`; without a name, no tracker.

    Attributes:
        class_name: its name.
        package: package that it needs.
        arguments: from run folder, first step and settings of the run to its arguments.
    """

    class_name: str = ""
    package: str = ""
    arguments: Callable[[Path, int, Settings], dict[str, Any]] = lambda run, step, config: {}


def _tensorboard(run: Path, first_step: int, config: Settings) -> dict[str, Any]:
    """Return a file of events; `purge_step` hides later steps of earlier files."""
    return {
        "run_name": "tensorboard",
        "logging_dir": str(run),
        "purge_step": first_step,
    }


def _named(run: Path, first_step: int, config: Settings) -> dict[str, Any]:
    """Return a run of the tracker named by its first step, in the group of the run folder."""
    name = run.resolve().name
    return {
        "run_name": _PROJECT,
        "name": f"{name} from step {first_step}",
        "group": name,
        "config": dict(config),
    }


def _trackio(run: Path, first_step: int, config: Settings) -> dict[str, Any]:
    quiet = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
    return _named(run, first_step, config) | quiet


def _wandb(run: Path, first_step: int, config: Settings) -> dict[str, Any]:
    return _named(run, first_step, config) | {"dir": str(run)}


TRACKERS = {
    "none": TrackerKind(),
    "tensorboard": TrackerKind("TensorBoardTracker", "tensorboard", _tensorboard),
    "trackio": TrackerKind("TrackioTracker", "trackio", _trackio),
    "wandb": TrackerKind("WandBTracker", "wandb", _wandb),
}


class Tracker:
    """Takes the numbers of each step.

    After a resume or a rollback a step may come a second time. A step that is lower than the last
    one starts again: TensorBoard hides later values, the others begin another run, so that no curve
    runs back over itself.
    """

    def __init__(self, kind: TrackerKind, run_folder: Path, config: Settings) -> None:
        """Prepare; a missing package raises ImportError."""
        self._kind, self._run_folder, self._config = kind, run_folder, config
        self._last_step: int | None = None
        if kind.class_name:
            # Trackio reads this when it is first imported, and not again in the same process.
            os.environ.setdefault("TRACKIO_DIR", str((run_folder / "trackio").resolve()))
            self._package = import_module(kind.package)
            self._class = getattr(_accelerate_tracking(), kind.class_name)

    def log(self, step: int, values: Mapping[str, object]) -> None:
        """Log the finite numbers among `values`; text, None and the step itself are left out."""
        numbers = {
            name: float(value)
            for name, value in values.items()
            if isinstance(value, int | float) and math.isfinite(value) and name != "step"
        }
        if not numbers or not self._kind.class_name:
            return
        if self._last_step is None or step < self._last_step:
            self.close()
            self._begin(step)
        self._tracker.log(numbers, step=step)
        self._last_step = step

    def _begin(self, first_step: int) -> None:
        """Open what steps from `first_step` on are written to.

        Raises:
            UserError: the tracker does not start, for example because nobody is logged in.
        """
        arguments = self._kind.arguments(self._run_folder, first_step, self._config)
        self._tracker = self._class(**arguments)
        self._tracker.main_process_only = False  # only processes that log make a tracker
        with redirect_stdout(sys.stderr):  # stdout is for results
            try:
                self._tracker.start()
            except Exception as wrong:  # each package has its own exceptions
                reason = str(wrong).partition("\n")[0] or type(wrong).__name__
                raise UserError(
                    f"tracker '{self._kind.package}' does not start ({reason}); log in to it, or "
                    'set tracker = "none"'
                ) from wrong
        if "config" not in arguments:
            for name, value in self._config.items():
                text = value if isinstance(value, str) else json.dumps(value, indent=1)
                self._tracker.tracker.add_text(name, f"```\n{text}\n```", first_step)

    def close(self) -> None:
        """Flush and close; Trackio ends a run at exit again unless the package itself ends it."""
        if self._last_step is not None:
            with redirect_stdout(sys.stderr):
                getattr(self._package, "finish", self._tracker.finish)()
        self._last_step = None


def _accelerate_tracking() -> Any:
    """Return the module, with the state that its loggers need.

    The state sets the number of threads of processes on CPUs; the run keeps its own.
    """
    import torch
    from accelerate import PartialState, tracking

    num_threads = torch.get_num_threads()
    PartialState()
    torch.set_num_threads(num_threads)
    return tracking


def open_tracker(name: str, run_folder: Path, config: Settings) -> Tracker:
    """Return the tracker of that name; nothing is written before the first step is logged.

    Args:
        name: key of `TRACKERS`.
        run_folder: folder that trackers write to.
        config: settings of the run, as plain values; shown with the curves.

    Raises:
        UserError: a package of it is not installed.
    """
    kind = TRACKERS[name]
    try:
        return Tracker(kind, run_folder, config)
    except ImportError as error:
        package = "accelerate" if "accelerate" in str(error) else kind.package
        raise _missing(name, package) from None


def check_installed(name: str) -> None:
    """Raise UserError if a package of the tracker of that name is not installed."""
    kind = TRACKERS[name]
    for package in ("accelerate", kind.package) if kind.class_name else ():
        if find_spec(package) is None:
            raise _missing(name, package)


def _missing(name: str, package: str) -> UserError:
    return UserError(f"tracker = '{name}': the package is not installed; `pip install {package}`")
