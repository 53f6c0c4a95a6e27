"""How a learning rate comes down after the warm-up."""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class RateSchedule:
    """The way from the peak to the final rate.

    Attributes:
        curve: share of the way that is left, by the share of the falling steps that are done.
        has_decay_steps: it falls over the last `decay_steps` of the stage alone, else over all that
            follow the warm-up.
    """

    curve: Callable[[float], float]
    has_decay_steps: bool = False

    @property
    def falls(self) -> bool:
        """Whether the final rate is another than the peak."""
        return self.curve(1.0) < 1.0


def _level(done: float) -> float:
    del done
    return 1.0


def _line(done: float) -> float:
    return 1 - done


def _half_a_cosine(done: float) -> float:
    return (1 + math.cos(math.pi * done)) / 2


RATE_SCHEDULES = {
    "constant": RateSchedule(curve=_level),
    "linear": RateSchedule(curve=_line),
    "cosine": RateSchedule(curve=_half_a_cosine),
    "wsd": RateSchedule(curve=_line, has_decay_steps=True),
}
