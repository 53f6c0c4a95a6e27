"""Generate DNA: many prompts in batches, or one prompt as a stream."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carbon.inference.checks import check_finite, check_string
from carbon.inference.generate.decode import Decoder
from carbon.inference.generate.prompts import (
    DrawnKmer,
    GeneratedRow,
    Task,
    rows_for_prompts,
)
from carbon.inference.generate.sampling import conditioned, draw
from carbon.inference.generate.speculative import Draft, speculative_rounds
from carbon.inference.runner import ModelRunner
from carbon.losses import chain_conditionals
from carbon.tokenizer import BASES, KMER_DIGITS, K

_MOST_ROWS = 64  # of a batch
# By device: 6-mers drawn before the host synchronises. A CPU does not need it.
_AHEAD = {"cuda": 16}


@dataclass(frozen=True, slots=True)
class Step:
    """Up to six bases that one step adds to a sequence.

    Probabilities are the model's own, at temperature 1 and before any cut, penalty or constraint:
    each is p(base | all bases before it).

    Attributes:
        bases: one to six letters.
        probabilities: (bases,) float32, of the drawn bases.
        alternatives: (bases, 4) float32, of A, T, C and G at each position, in this order.
    """

    bases: str
    probabilities: NDArray[np.float32]
    alternatives: NDArray[np.float32]


def generate(
    runner: ModelRunner,
    prompts: Sequence[str],
    task: Task,
    draft: Draft | None = None,
    advance: Callable[[int], None] = lambda num_bases: None,
    samples: Sequence[int] | None = None,
    watch: Callable[[GeneratedRow], None] = lambda row: None,
) -> list[str]:
    """Return a continuation for each prompt, in order.

    Prompts of similar length are batched, as many as fit into memory. `advance` is called with the
    number of new bases, and with a negative number if a batch runs out of memory and restarts.
    `samples` gives the sample number of each prompt if the prompts are part of a longer list.
    `watch` is called with a row after each of its 6-mers; a batch that restarts draws the same
    6-mers again.

    Raises:
        UserError: a prompt, tag or constraint is invalid.
    """
    rows = rows_for_prompts(prompts, task, samples)
    order = sorted(range(len(rows)), key=lambda n: -len(rows[n].prompt))
    row_tokens = {n: min(rows[n].whole_kmers, runner.context_tokens) for n in order}

    def run(batch: list[int]) -> None:
        _draw_batch(runner, [rows[n] for n in batch], task.tags, draft, advance, watch)

    for _ in runner.in_batches(row_tokens, run, most_rows=_MOST_ROWS):
        pass
    return [row.text for row in rows]


def _draw_batch(
    runner: ModelRunner,
    rows: list[GeneratedRow],
    tags: tuple[str, ...],
    draft: Draft | None,
    advance: Callable[[int], None],
    watch: Callable[[GeneratedRow], None],
) -> None:
    """Draw a batch; undo it if an error occurs.

    Undoing also restores the random numbers of the rows, so that the same text is drawn.
    """
    beginnings = [row.random.bit_generator.state for row in rows]
    num_bases = 0
    try:
        for drawn in _draw(runner, rows, tags, draft):
            num_new = drawn.new.stop - drawn.new.start
            num_bases += num_new
            advance(num_new)
            watch(drawn.row)
    except RuntimeError:
        advance(-num_bases)
        for row, beginning in zip(rows, beginnings, strict=True):
            row.pop(len(row.kmers))
            row.random.bit_generator.state = beginning
        raise


def stream(
    runner: ModelRunner, prompt: str, task: Task, draft: Draft | None = None
) -> Iterator[Step]:
    """Yield one prompt's continuation step by step, the same bases as from `generate`.

    Raises:
        UserError: the prompt, a tag or a constraint is invalid.
    """
    check_string("prompt", prompt)
    runner.six_mers.prefix(task.tags)
    rows = rows_for_prompts([prompt], task)
    return (_step(drawn) for drawn in _draw(runner, rows, task.tags, draft))


def _step(drawn: DrawnKmer) -> Step:
    kmer = torch.tensor([drawn.kmer], device=drawn.logits.device)
    known = torch.ones(1, K, dtype=torch.bool, device=drawn.logits.device)
    log_p = chain_conditionals(drawn.logits[None], kmer, known)[0, drawn.new]
    alternatives = log_p.exp().cpu().numpy()
    digits = KMER_DIGITS[drawn.kmer, drawn.new]
    probabilities = alternatives[np.arange(len(digits)), digits]
    return Step("".join(BASES[d] for d in digits), probabilities, alternatives)


def _draw(
    runner: ModelRunner, rows: list[GeneratedRow], tags: tuple[str, ...], draft: Draft | None
) -> Iterator[DrawnKmer]:
    """Draw all rows side by side until they are complete."""
    decoder = Decoder(
        runner, [row.prompt for row in rows], tags, max(row.whole_kmers for row in rows)
    )
    for drawn in (
        speculative_rounds(decoder, draft, rows, tags) if draft else _rounds(decoder, rows)
    ):
        yield from drawn


def _rounds(decoder: Decoder, rows: list[GeneratedRow]) -> Iterator[list[DrawnKmer]]:
    """Draw one 6-mer of each row a round."""
    fresh: list[list[int]] = [[] for _ in rows]
    while rows:
        logits = decoder.extend(fresh)[:, 0]
        rule = rows[0].task.rule
        penalised, allowed = conditioned(rows, logits)
        uniform = decoder.to_device(np.stack([row.random.random(K) for row in rows]))
        kmers = draw(penalised, rule, uniform, allowed).tolist()
        yield _pushed(rows, kmers, logits)
        if count := _num_ahead(decoder, rows, logits.device):
            ahead = _draw_ahead(decoder, rows, kmers, count)
            for kmers, logits in ahead:
                yield _pushed(rows, kmers, logits)
        unfinished = [n for n, row in enumerate(rows) if row.tokens_left]
        if len(unfinished) < len(rows):
            decoder.keep_rows(unfinished)
        fresh = [[kmers[n]] for n in unfinished]
        rows = [rows[n] for n in unfinished]


def _pushed(rows: list[GeneratedRow], kmers: list[int], logits: Tensor) -> list[DrawnKmer]:
    return [
        DrawnKmer(row, kmer, row.push(kmer), row_logits)
        for row, kmer, row_logits in zip(rows, kmers, logits, strict=True)
    ]


def _num_ahead(decoder: Decoder, rows: list[GeneratedRow], device: torch.device) -> int:
    """Return how many 6-mers a row can be drawn without the host."""
    task = rows[0].task
    if task.constraints or task.rule.repetition_penalty:
        return 0
    most = min(min(row.tokens_left, decoder.room(n)) for n, row in enumerate(rows))
    return min(most, _AHEAD.get(device.type, 0))


@torch.inference_mode()
def _draw_ahead(
    decoder: Decoder, rows: list[GeneratedRow], kmers: list[int], count: int
) -> list[tuple[list[int], Tensor]]:
    """Append the last 6-mers and draw `count` more a row; synchronise at the end."""
    uniform = np.stack([row.random.random((count, K)) for row in rows], axis=1)
    last, numbers = decoder.to_device(np.array(kmers)), decoder.to_device(uniform)
    appended, logits = [], []
    for numbers_of_step in numbers:
        appended.append(last)
        next_logits, last = decoder.draw_next(last, numbers_of_step, rows[0].task.rule)
        logits.append(next_logits)
    totals = torch.stack(logits).sum(dim=2).cpu().numpy()
    for row, row_totals in zip(rows, totals.T, strict=True):
        check_finite(row_totals, f"prompt {row.number}", row.number)
    decoder.append_tokens(torch.stack(appended, dim=1).tolist())
    drawn: list[list[int]] = torch.stack([*appended[1:], last]).tolist()
    return list(zip(drawn, logits, strict=True))
