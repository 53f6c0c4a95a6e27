"""The course of a run: its steps, laid end to end, and what holds at each of them."""

import bisect
import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from carbon.corpus import SpanRows
from train.config import ShortRows, StageConfig, TrainConfig


@dataclass(frozen=True, slots=True)
class Span:
    """Steps over which rows have one length: a stage, or a part of one.

    Attributes:
        stage: what else holds.
        number: of the stage, from 0.
        first_step: of the run.
        step_in_stage: where the span begins in its stage.
        first_row: of the run.
        first_token: of the run.
    """

    stage: StageConfig
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


class Course:
    """A run's spans, in order."""

    def __init__(self, config: TrainConfig, ended: Mapping[int, int] | None = None) -> None:
        """Lay out the stages.

        Args:
            config: of the run.
            ended: steps of the stages that a signal has ended, by their number.
        """
        self.spans = tuple(_spans(config.stages, ended or {}))
        self._first_steps = [span.first_step for span in self.spans]
        last = self.spans[-1]
        self.total_steps = last.first_step + last.num_steps
        self.total_tokens = last.tokens_by(self.total_steps)

    def at(self, step: int) -> Span:
        """Return the span of step `step` (from 0) of the run; the last one's if it has ended."""
        return self.spans[bisect.bisect_right(self._first_steps, step) - 1]

    @property
    def rows(self) -> tuple[SpanRows, ...]:
        """What the order of samples follows from."""
        return tuple(
            SpanRows(span.num_steps * span.batch_rows, span.stage.mixture, span.context_tokens)
            for span in self.spans
        )


def _spans(stages: tuple[StageConfig, ...], ended: Mapping[int, int]) -> list[Span]:
    spans: list[Span] = []
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
            spans.append(Span(*place, part.context_tokens, rows))
            step += steps
            row += steps * rows
            token += steps * stage.batch_tokens
    return spans
