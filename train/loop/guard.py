"""Which steps are bad, and what ends a stage: functions of what all processes know alike."""

import math
import statistics
from collections.abc import Sequence

from train.choices.stage_ends import STAGE_ENDS
from train.config import GuardConfig, StageConfig
from train.run_folder.state import RunState


def reason_against(
    guard: GuardConfig, history: Sequence[Sequence[float]], loss: float, norm: float
) -> str:
    """Return why a step is not to change the weights, nothing if it may.

    Args:
        guard: what counts as a spike.
        history: loss and gradient norm of the good steps before it, of the same stage.
        loss: nats per token of the step.
        norm: of its gradient, before clipping.
    """
    for name, value in (("loss", loss), ("gradient norm", norm)):
        if not math.isfinite(value):
            return f"the {name} is {value}"
    recent = history[-guard.window_steps :]
    if not guard.spike_factor or len(recent) < guard.window_steps:
        return ""
    for name, value, before in zip(
        ("loss", "gradient norm"), (loss, norm), zip(*recent, strict=True), strict=True
    ):
        median = statistics.median(before)
        if value > guard.spike_factor * median:
            return f"the {name} is {value:.4g}, {value / median:.1f} times the median before it"
    return ""


def remember(
    state: RunState, guard: GuardConfig, stage: StageConfig, loss: float, norm: float
) -> None:
    """Add a good step to what is looked back on: the guard's window, or for a signal all."""
    state.history.append([loss, norm])
    if not STAGE_ENDS[stage.until].needs_all_norms:
        del state.history[: -guard.window_steps]


def signal_to_end(stage: StageConfig, state: RunState) -> str:
    """Return what says that the stage is to end before its tokens, nothing if it goes on."""
    end = STAGE_ENDS[stage.until]
    norms = [norm for _, norm in state.history[stage.warmup_steps :]]
    return end.reason if end.is_seen(norms, state.gaps) else ""
