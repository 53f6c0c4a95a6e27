"""How a learning rate falls after the warm-up."""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class RateSchedule:
    """The way from the peak to the final rate.

    Attributes:
        share: f(step, warmup_steps, total_steps): share of the way that is left at a step from the
            end of the warm-up on, 1 at first.
        has_decay_steps: whether the rate falls over the last `decay_steps` of the stage only; its
            level steps count as warm-up then.
    """

    share: Callable[[int, int, int], float]
    has_decay_steps: bool = False

    @property
    def falls(self) -> bool:
        """Whether the last rate differs from the peak."""
        return self.share(1, 0, 1) < 1.0


def _constant(step: int, warmup_steps: int, total_steps: int) -> float:
    del step, warmup_steps, total_steps
    return 1.0


def _linear(step: int, warmup_steps: int, total_steps: int) -> float:
    return 1 - (step - warmup_steps) / max(total_steps - warmup_steps, 1)


def _cosine(step: int, warmup_steps: int, total_steps: int) -> float:
    done = (step - warmup_steps) / max(total_steps - warmup_steps, 1)
    return (1 + math.cos(math.pi * done)) / 2


RATE_SCHEDULES = {
    "constant": RateSchedule(share=_constant),
    "linear": RateSchedule(share=_linear),
    "cosine": RateSchedule(share=_cosine),
    "wsd": RateSchedule(share=_linear, has_decay_steps=True),
}
