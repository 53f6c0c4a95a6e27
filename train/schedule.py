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
class Phase:
    """Steps over which rows have one length: a stage, or a part of one.

    Attributes:
        stage: what else holds.
        number: of the stage, from 0.
        first_step: of the run.
        step_in_stage: where the span begins in its stage.
        first_row: of the run.
        first_token: of the run.
    """

    stage: PhaseConfig
    number: int
    first_step: int
    step_in_stage: int
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
        return self.first_token + (step - self.first_step) * self.stage.batch_tokens


class Schedule:
    """A run's spans, in order."""

    def __init__(self, config: TrainConfig, ended: Mapping[int, int] | None = None) -> None:
        """Lay out the stages.

        Args:
            config: of the run.
            ended: steps of the stages that a signal has ended, by their number.
        """
        self.spans = tuple(_spans(config.phases, ended or {}))
        self._first_steps = [span.first_step for span in self.spans]
        last = self.spans[-1]
        self.total_steps = last.first_step + last.num_steps
        self.total_tokens = last.tokens_by(self.total_steps)

    def at(self, step: int) -> Phase:
        """Return the span of step `step` (from 0) of the run; the last one's if it has ended."""
        return self.spans[bisect.bisect_right(self._first_steps, step) - 1]

    @property
    def rows(self) -> tuple[SpanRows, ...]:
        """The rows of each phase, which determine the order of samples."""
        return tuple(
            SpanRows(span.num_steps * span.batch_rows, span.stage.mixture, span.context_tokens)
            for span in self.spans
        )


def _spans(stages: tuple[PhaseConfig, ...], ended: Mapping[int, int]) -> list[Phase]:
    spans: list[Phase] = []
    step = row = token = 0
    for number, stage in enumerate(stages):
        start, left = step, ended.get(number, stage.num_steps)
        rest = ShortRows(context_tokens=stage.context_tokens, steps=left)
        for part in itertools.chain(stage.length_warmup, [rest]):
            steps = min(part.steps, left)
            left -= steps
            if not steps:
                continue
            rows = stage.batch_tokens // part.context_tokens
            place = (stage, number, step, step - start, steps, row, token)
            spans.append(Phase(*place, part.context_tokens, rows))
            step += steps
            row += steps * rows
            token += steps * stage.batch_tokens
    return spans


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


def learning_rate(stage: PhaseConfig, step: int) -> float:
    """Return the learning rate of step `step` (from 0) of a stage.

    The final rate is that of the step after the last, which is not taken: four steps of decay
    from 1 to 0.1 have 1, 0.775, 0.55 and 0.325.
    """
    if step < stage.warmup_steps:
        return stage.learning_rate * (step + 1) / stage.warmup_steps
    return stage.final_learning_rate + (
        stage.learning_rate - stage.final_learning_rate
    ) * _share_left(stage, step)


def objective_at(stage: PhaseConfig, step: int) -> Objective:
    """Return the objective at step `step` (from 0) of a stage."""
    last = max(stage.num_steps - 1, 1)
    return OBJECTIVES[stage.objective].at(step, last, stage.fns_weight)


def _share_left(stage: PhaseConfig, step: int) -> float:
    """Return the share of the way from the final rate to the peak: 1 at first, 0 past the end."""
    schedule, num_steps = RATE_SCHEDULES[stage.schedule], stage.num_steps
    first = num_steps - stage.decay_steps if schedule.has_decay_steps else stage.warmup_steps
    return 1.0 if step < first else schedule.share(step, first, num_steps)
