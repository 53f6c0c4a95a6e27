"""Fill a gap: draw candidates after the left context, and rank them with the right context."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from carbon.errors import UserError
from carbon.genome.alphabet import as_dna, checked_sequence
from carbon.inference.checks import check_finite, check_string
from carbon.inference.generate.generate import generate
from carbon.inference.generate.prompts import Task, check_amount
from carbon.inference.generate.speculative import Draft
from carbon.inference.passages import Passage, continuation_of, prefix_of
from carbon.inference.runner import ModelRunner
from carbon.tokenizer import K


class Filling(NamedTuple):
    """A candidate for a gap, with natural logarithms of likelihoods under the model.

    Attributes:
        bases: the bases of the gap.
        gap_log_likelihood: log p(bases | left).
        right_log_likelihood: log p(right | left, bases), over known bases.
    """

    bases: str
    gap_log_likelihood: float
    right_log_likelihood: float

    @property
    def score(self) -> float:
        """Return log p(bases, right | left), by which candidates are ranked."""
        return self.gap_log_likelihood + self.right_log_likelihood


def infill(
    runner: ModelRunner,
    left: str,
    task: Task,
    num_candidates: int,
    draft: Draft | None = None,
    advance: Callable[[int], None] = lambda num_bases: None,
) -> list[Filling]:
    """Draw candidates after `left`; return the distinct ones ranked, the best first.

    `advance` is called with the number of new bases.

    Raises:
        UserError: nothing can be drawn, or gap and right context exceed the model's context.
    """
    check_string("left", left)
    check_string("right", task.right)
    if num_candidates < 1:
        raise UserError(f"{num_candidates} candidates: give 1 or more")
    check_amount(num_candidates, task.length_bp)
    left = as_dna(left)
    task = replace(task, right=checked_sequence(task.right, "right context"))
    room = _room_for_left(runner, left, task)
    drawn = generate(runner, [left] * num_candidates, task, draft, advance)
    fillings = _measured(runner, left, list(dict.fromkeys(drawn)), task, room)
    return sorted(fillings, key=lambda filling: -filling.score)


def _room_for_left(runner: ModelRunner, left: str, task: Task) -> int:
    """Return how many 6-mers of the left context fit next to the gap and the right context.

    Raises:
        UserError: gap and right context do not fit.
    """
    num_prefix = len(runner.six_mers.prefix(task.tags))
    after_bp = len(left) % K + task.length_bp + len(task.right)
    room = runner.context_tokens - num_prefix + 1 - -(-after_bp // K)
    if room < 0:
        raise UserError(
            f"a gap of {task.length_bp} bases and {len(task.right)} to its right do not fit into "
            f"the model's context of {runner.context_tokens} tokens; give fewer"
        )
    return room


def _measured(
    runner: ModelRunner, left: str, candidates: list[str], task: Task, room: int
) -> list[Filling]:
    """Return the candidates with the log-likelihoods of gap and right context."""
    whole_bp = len(left) // K * K
    tail = left[whole_bp:]
    # Left context that does not fit is cut at its start.
    prefix = prefix_of(left[max(0, whole_bp - K * room) : whole_bp], runner.six_mers, task.tags)
    continuations = [
        continuation_of(tail + bases + task.right, runner.six_mers) for bases in candidates
    ]
    (measured,) = runner.likelihoods([Passage(prefix, tuple(continuations))], "chain")
    gap = slice(len(tail), len(tail) + task.length_bp)
    fillings = []
    check_finite(np.concatenate(measured).sum(dtype=np.float64), "the gap")
    for bases, steps in zip(candidates, measured, strict=True):
        values = steps.reshape(-1).astype(np.float64)
        fillings.append(Filling(bases, float(values[gap].sum()), float(values[gap.stop :].sum())))
    return fillings
