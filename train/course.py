"""The course of a run: its steps, laid end to end, and what holds at each of them."""

import bisect
import itertools
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

    def __init__(self, config: TrainConfig) -> None:
        """Lay out the stages."""
        self.spans = tuple(_spans(config.stages))
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


def _spans(stages: tuple[StageConfig, ...]) -> list[Span]:
    spans: list[Span] = []
    step = row = token = 0
    for number, stage in enumerate(stages):
        warmup = sum(part.steps for part in stage.length_warmup)
        rest = ShortRows(context_tokens=stage.context_tokens, steps=stage.num_steps - warmup)
        start = step
        for part in itertools.chain(stage.length_warmup, [rest]):
            rows = stage.batch_tokens // part.context_tokens
            place = (stage, number, step, step - start, part.steps, row, token)
            spans.append(Span(*place, part.context_tokens, rows))
            step += part.steps
            row += part.steps * rows
            token += part.steps * stage.batch_tokens
    return spans
