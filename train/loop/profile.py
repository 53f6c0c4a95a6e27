"""The profiler switch: a trace of some steps, for Perfetto or chrome://tracing."""

from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from train.config import TrainConfig
from train.network.ranks import Ranks


class StepProfiler:
    """Traces the steps that `compute.profile_steps` names, of this process."""

    def __init__(self, config: TrainConfig, ranks: Ranks) -> None:
        """Prepare; nothing is traced before the first of the steps."""
        self._steps = config.compute.profile_steps
        self._path = Path(config.output) / "profile" / f"rank-{ranks.rank}.json"
        self._running: profile | None = None

    def step(self, done: int) -> None:
        """Say that so many steps are done; begins and ends the trace where it should."""
        if not self._steps:
            return
        first, last = self._steps
        if done == first - 1 and self._running is None:
            activities = [ProfilerActivity.CPU]
            if torch.cuda.is_available():
                activities.append(ProfilerActivity.CUDA)
            self._running = profile(activities=activities, with_flops=True)
            self._running.start()
        if done == last and self._running is not None:
            self._running.stop()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._running.export_chrome_trace(str(self._path))
            self._running = None
