"""Phases laid end to end, and what changes with the step: learning rate and objective."""

import bisect
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from carbon.corpus import SpanRows
from carbon.losses.objectives import OBJECTIVES, Objective
from train.config import PhaseConfig, ShortRows, TrainConfig


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive steps of a phase whose rows have one length; a length warm-up has several.

    Attributes:
        phase: the phase of the recipe.
        number: of the phase, from 0.
        first_step: of the run.
        step_in_phase: where the span begins in its phase.
        first_row: of the run.
        first_token: of the run.
    """

    phase: PhaseConfig
    number: int
    first_step: int
    step_in_phase: int
    num_steps: int
    first_row: int
    first_token: int
    context_tokens: int
    batch_rows: int

    def rows_of_step(self, step: int) -> range:
        """Return the rows of the run that global batch `step` of the run consists of."""
        first = self.first_row + (step - self.first_step) * self.batch_rows
        return range(first, first + self.batch_rows)

    def tokens_by(self, step: int) -> int:
        """Return how many tokens the run has read before step `step`."""
        return self.first_token + (step - self.first_step) * self.phase.batch_tokens


class Schedule:
    """A run's spans, in order."""

    def __init__(self, config: TrainConfig, ended: Mapping[int, int] | None = None) -> None:
        """Lay out the phases.

        Args:
            config: of the run.
            ended: steps of the phases that a signal has ended, by their number.
        """
        self.spans = tuple(_spans(config.phases, ended or {}))
        self._first_steps = [span.first_step for span in self.spans]
        last = self.spans[-1]
        self.total_steps = last.first_step + last.num_steps
        self.total_tokens = last.tokens_by(self.total_steps)

    def at(self, step: int) -> Span:
        """Return the span of step `step` (from 0) of the run; the last one's if it has ended."""
        return self.spans[bisect.bisect_right(self._first_steps, step) - 1]

    @property
    def rows(self) -> tuple[SpanRows, ...]:
        """The rows of each phase, which determine the order of samples."""
        return tuple(
            SpanRows(span.num_steps * span.batch_rows, span.phase.mixture, span.context_tokens)
            for span in self.spans
        )


def _spans(phases: tuple[PhaseConfig, ...], ended: Mapping[int, int]) -> list[Span]:
    spans: list[Span] = []
    step = row = token = 0
    for number, phase in enumerate(phases):
        start, left = step, ended.get(number, phase.num_steps)
        rest = ShortRows(context_tokens=phase.context_tokens, steps=left)
        for part in itertools.chain(phase.length_warmup, [rest]):
            steps = min(part.steps, left)
            left -= steps
            if not steps:
                continue
            rows = phase.batch_tokens // part.context_tokens
            place = (phase, number, step, step - start, steps, row, token)
            spans.append(Span(*place, part.context_tokens, rows))
            step += steps
            row += steps * rows
            token += steps * phase.batch_tokens
    return spans


@dataclass(frozen=True, kw_only=True, slots=True)
class RateSchedule:
    """The way from the peak to the final rate.

    Attributes:
        share: f(step, warmup_steps, total_steps): share of the way that is left at a step from the
            end of the warm-up on, 1 at first.
        has_decay_steps: whether the rate falls over the last `decay_steps` of the phase only; its
            level steps count as warm-up then.
    """

    share: Callable[[int, int, int], float]
    has_decay_steps: bool = False

    @property
    def falls(self) -> bool:
        """Whether the last rate differs from the peak."""
        return self.share(1, 0, 1) < 1.0


def _linear(step: int, warmup_steps: int, total_steps: int) -> float:
    return 1 - (step - warmup_steps) / max(total_steps - warmup_steps, 1)


def _cosine(step: int, warmup_steps: int, total_steps: int) -> float:
    done = (step - warmup_steps) / max(total_steps - warmup_steps, 1)
    return (1 + math.cos(math.pi * done)) / 2


RATE_SCHEDULES = {
    "constant": RateSchedule(share=lambda step, warmup_steps, total_steps: 1.0),
    "linear": RateSchedule(share=_linear),
    "cosine": RateSchedule(share=_cosine),
    "wsd": RateSchedule(share=_linear, has_decay_steps=True),
}


def learning_rate(phase: PhaseConfig, step: int) -> float:
    """Return the learning rate of step `step` (from 0) of a phase.

    The final rate is that of the step after the last, which is not taken: four steps of decay
    from 1 to 0.1 have 1, 0.775, 0.55 and 0.325.
    """
    if step < phase.warmup_steps:
        return phase.learning_rate * (step + 1) / phase.warmup_steps
    return phase.final_learning_rate + (
        phase.learning_rate - phase.final_learning_rate
    ) * _share_left(phase, step)


def objective_at(phase: PhaseConfig, step: int) -> Objective:
    """Return the objective at step `step` (from 0) of a phase."""
    last = max(phase.num_steps - 1, 1)
    return OBJECTIVES[phase.objective].at(step, last, phase.fns_weight)


def _share_left(phase: PhaseConfig, step: int) -> float:
    """Return the share of the way from the final rate to the peak: 1 at first, 0 past the end."""
    schedule, num_steps = RATE_SCHEDULES[phase.schedule], phase.num_steps
    first = num_steps - phase.decay_steps if schedule.has_decay_steps else phase.warmup_steps
    return 1.0 if step < first else schedule.share(step, first, num_steps)
