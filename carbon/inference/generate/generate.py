"""Generating DNA: prompts in batches, and one prompt as a stream."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carbon.inference.checks import check_finite, check_string
from carbon.inference.generate.decode import Decoder
from carbon.inference.generate.prompts import Continuation, Drawn, Task, conditioned, continuations
from carbon.inference.generate.sampling import draw
from carbon.inference.generate.speculative import Draft, speculative_rounds
from carbon.inference.runner import ModelRunner
from carbon.losses import chain_conditionals
from carbon.tokenizer import BASES, KMER_DIGITS, K

_MOST_ROWS = 64
# By device: 6-mers that are drawn on it before the host looks. A CPU has nothing to wait for.
_AHEAD = {"cuda": 16}


@dataclass(frozen=True, slots=True)
class Step:
    """What one step added to a sequence: up to six bases.

    The probabilities are the model's own, at temperature 1 and before any cut, penalty or
    constraint: each is p(base | all bases before it).

    Attributes:
        bases: one to six letters.
        probabilities: (bases,) float32, of the bases that were drawn.
        alternatives: (bases, 4) float32, of A, T, C and G at every place, in this order.
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
) -> list[str]:
    """Return a continuation for each prompt, in order.

    Those of like lengths are drawn together, as many as memory holds. `advance` hears of new bases,
    and of fewer than none where a batch that memory did not hold begins again. `samples` says which
    sample of its prompt each is, where the prompts are some of a longer list.

    Raises:
        UserError: a prompt, tag or constraint is not possible.
    """
    rows = continuations(prompts, task, samples)
    waiting = sorted(rows, key=lambda row: -len(row.prompt))
    while waiting:
        held = min(waiting[0].whole_kmers, runner.context_tokens)
        batch = waiting[: min(_MOST_ROWS, max(1, runner.batch_tokens // held))]
        if _all_drawn(runner, batch, held, task.tags, draft, advance):
            del waiting[: len(batch)]
    return [row.text for row in rows]


def _all_drawn(
    runner: ModelRunner,
    rows: list[Continuation],
    row_tokens: int,
    tags: tuple[str, ...],
    draft: Draft | None,
    advance: Callable[[int], None],
) -> bool:
    """Draw a batch and return True; if memory does not hold it, undo all and let batches be half.

    The rows have the random numbers again that they began with, so that the same is drawn.
    """
    beginnings = [row.random.bit_generator.state for row in rows]
    num_bases = 0
    try:
        for drawn in _drawn(runner, rows, tags, draft):
            num_new = drawn.new.stop - drawn.new.start
            num_bases += num_new
            advance(num_new)
    except RuntimeError as error:
        runner.halve(error, len(rows), row_tokens)
        advance(-num_bases)
        for row, beginning in zip(rows, beginnings, strict=True):
            row.pop(len(row.kmers))
            row.random.bit_generator.state = beginning
        return False
    return True


def stream(
    runner: ModelRunner, prompt: str, task: Task, draft: Draft | None = None
) -> Iterator[Step]:
    """Yield one prompt's continuation step by step: the bases that `generate` gives.

    Raises:
        UserError: the prompt, a tag or constraint is not possible.
    """
    check_string("prompt", prompt)
    runner.vocabulary.prefix(task.tags)
    rows = continuations([prompt], task)
    return (_step(drawn) for drawn in _drawn(runner, rows, task.tags, draft))


def _step(drawn: Drawn) -> Step:
    kmer = torch.tensor([drawn.kmer], device=drawn.logits.device)
    known = torch.ones(1, K, dtype=torch.bool, device=drawn.logits.device)
    log_p = chain_conditionals(drawn.logits[None], kmer, known)[0, drawn.new]
    alternatives = log_p.exp().cpu().numpy()
    digits = KMER_DIGITS[drawn.kmer, drawn.new]
    probabilities = alternatives[np.arange(len(digits)), digits]
    return Step("".join(BASES[d] for d in digits), probabilities, alternatives)


def _drawn(
    runner: ModelRunner, rows: list[Continuation], tags: tuple[str, ...], draft: Draft | None
) -> Iterator[Drawn]:
    """Draw side by side until all rows are done."""
    decoder = Decoder(
        runner, [row.prompt for row in rows], tags, max(row.whole_kmers for row in rows)
    )
    for drawn in (
        speculative_rounds(decoder, draft, rows, tags) if draft else _rounds(decoder, rows)
    ):
        yield from drawn


def _rounds(decoder: Decoder, rows: list[Continuation]) -> Iterator[list[Drawn]]:
    """Draw a 6-mer of each row a round."""
    fresh: list[list[int]] = [[] for _ in rows]
    while rows:
        logits = decoder.read(fresh)[:, 0]
        rule = rows[0].task.rule
        penalised, allowed = conditioned(rows, logits)
        uniform = np.stack([row.random.random(K) for row in rows])
        kmers = draw(penalised, rule, uniform, allowed).tolist()
        yield _pushed(rows, kmers, logits)
        if count := _num_ahead(decoder, rows, logits.device):
            ahead = _drawn_ahead(decoder, rows, kmers, count)
            for kmers, logits in ahead:
                yield _pushed(rows, kmers, logits)
        going = [n for n, row in enumerate(rows) if row.tokens_left]
        if len(going) < len(rows):
            decoder.keep(going)
        fresh = [[kmers[n]] for n in going]
        rows = [rows[n] for n in going]


def _pushed(rows: list[Continuation], kmers: list[int], logits: Tensor) -> list[Drawn]:
    return [
        Drawn(row, kmer, row.push(kmer), behind)
        for row, kmer, behind in zip(rows, kmers, logits, strict=True)
    ]


def _num_ahead(decoder: Decoder, rows: list[Continuation], device: torch.device) -> int:
    """Return how many 6-mers a row can be drawn with no word from the host in between."""
    task = rows[0].task
    if task.constraints or task.rule.repetition_penalty:
        return 0
    most = min(min(row.tokens_left, decoder.room(n)) for n, row in enumerate(rows))
    return min(most, _AHEAD.get(device.type, 0))


@torch.inference_mode()
def _drawn_ahead(
    decoder: Decoder, rows: list[Continuation], kmers: list[int], count: int
) -> list[tuple[list[int], Tensor]]:
    """Read the last 6-mers and draw so many more a row; the device is waited for at the end."""
    uniform = np.stack([row.random.random((count, K)) for row in rows], axis=1)
    last, numbers = decoder.sent(np.array(kmers)), decoder.sent(uniform)
    read, logits = [], []
    for given in numbers:
        read.append(last)
        behind, last = decoder.draw_next(last, given, rows[0].task.rule)
        logits.append(behind)
    totals = torch.stack(logits).sum(dim=2).cpu().numpy()
    for row, of_row in zip(rows, totals.T, strict=True):
        check_finite(of_row, f"prompt {row.number}", row.number)
    decoder.note(torch.stack(read, dim=1).tolist())
    drawn: list[list[int]] = torch.stack([*read[1:], last]).tolist()
    return list(zip(drawn, logits, strict=True))
