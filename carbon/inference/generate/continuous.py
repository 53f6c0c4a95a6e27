"""Generating by transformers' continuous batching: prompts of many lengths, none waits for another.

A row that ends leaves its place to the next prompt at once, and keys and values lie in pages
(https://huggingface.co/docs/transformers/continuous_batching). What it cannot do is left to our own
engine: whatever is not a plain draw of whole 6-mers. The first 6-mer behind a tail is drawn by our
own engine too, so that nothing is padded or cut.
"""

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

from carbon.errors import UserError
from carbon.inference.generate.constraints import Constraints
from carbon.inference.generate.generate import generate
from carbon.inference.generate.prompts import Task, continuations, samples_of
from carbon.inference.generate.speculative import Draft
from carbon.inference.options import ENGINES, Engine, check_choice
from carbon.inference.passages import stem_of
from carbon.inference.runner import ModelRunner
from carbon.tokenizer import ALL_KNOWN, K, Kmers, decode_kmers

_PAGE_TOKENS = 256
# On a CPU, where the engine has a mask of all tokens at once by all that are kept; a GPU gives
# what memory is free.
_MOST_PAGES, _MOST_TOKENS = 64, 2048


def generate_continuously(
    runner: ModelRunner,
    prompts: Sequence[str],
    task: Task,
    advance: Callable[[int], None] = lambda num_bases: None,
    samples: Sequence[int] | None = None,
) -> list[str]:
    """Return a continuation for each prompt, in order.

    Greedy text is that of `generate`, but for rounding. Sampled text has the same distribution and
    other random numbers, which are those of the whole call: the same prompts, task and seed give
    the same text, and what follows a prompt depends on the others.

    Raises:
        UserError: a prompt or tag is not possible, or the task is none for this engine.
    """
    continuations(prompts, task)  # raises what is wrong with prompts
    _check_task(task)
    begun = _begun(runner, prompts, task, samples or samples_of(prompts))
    ids = [
        stem_of((prompt + text)[: (len(prompt) + len(text)) // K * K], runner.vocabulary, task.tags)
        for prompt, text in zip(prompts, begun, strict=True)
    ]
    left_bp = [task.length_bp - len(text) for text in begun]
    advance(sum(map(len, begun)))
    drawn = _drawn(runner, [row.tolist() for row in ids], math.ceil(max(left_bp) / K), task)
    advance(sum(left_bp))
    return [
        first + text[:more_bp] for first, text, more_bp in zip(begun, drawn, left_bp, strict=True)
    ]


def generate_by(
    engine: Engine,
    runner: ModelRunner,
    prompts: Sequence[str],
    task: Task,
    draft: Draft | None = None,
    advance: Callable[[int], None] = lambda num_bases: None,
    samples: Sequence[int] | None = None,
) -> list[str]:
    """Return a continuation for each prompt, by the engine of that name.

    Raises:
        UserError: as of `generate` and `generate_continuously`, or there is no such engine.
    """
    check_choice("engine", engine, ENGINES)
    if engine == "own":
        return generate(runner, prompts, task, draft, advance, samples)
    if draft:
        raise UserError("a draft: not with engine 'continuous'; take 'own'")
    return generate_continuously(runner, prompts, task, advance, samples)


def _check_task(task: Task) -> None:
    rule = task.rule
    wrong = {
        "constraints": task.constraints not in (None, Constraints()),
        f"mode '{rule.mode}'": rule.mode != "token",
        "repetition_penalty": rule.repetition_penalty != 0,
    }
    for what, is_there in wrong.items():
        if is_there:
            raise UserError(f"{what}: not with engine 'continuous'; take 'own'")


def _begun(
    runner: ModelRunner, prompts: Sequence[str], task: Task, samples: Sequence[int]
) -> list[str]:
    """Return the bases that fill up the last 6-mer of each prompt, by our own engine."""
    found = [""] * len(prompts)
    alike: dict[int, list[int]] = defaultdict(list)
    for number, prompt in enumerate(prompts):
        if tail_bp := len(prompt) % K:
            alike[min(K - tail_bp, task.length_bp)].append(number)
    for length_bp, numbers in alike.items():
        some = [prompts[number] for number in numbers]
        few = replace(task, length_bp=length_bp)
        texts = generate(runner, some, few, samples=[samples[number] for number in numbers])
        for number, text in zip(numbers, texts, strict=True):
            found[number] = text
    return found


def _drawn(runner: ModelRunner, ids: list[list[int]], num_tokens: int, task: Task) -> list[str]:
    """Return what follows each row, so many 6-mers."""
    if num_tokens == 0:
        return [""] * len(ids)
    longest = max(map(len, ids)) + num_tokens
    if longest > runner.context_tokens:
        raise UserError(
            f"{longest} tokens, prompt and all, do not fit into the context of "
            f"{runner.context_tokens}: engine 'continuous' cannot go on behind it, and 'own' can"
        )
    network: Any = runner.network
    with _quiet(), torch.random.fork_rng():
        torch.manual_seed(task.seed)
        found = network.generate_batch(
            ids,
            generation_config=_generation_config(runner, num_tokens, task),
            continuous_batching_config=_batching_config(runner, ids, num_tokens),
            warmup=False,
        )
    outputs = sorted(found.values(), key=lambda output: int(output.request_id.rpartition("_")[2]))
    if len(outputs) < len(ids) or any(output.error for output in outputs):
        why = next((output.error for output in outputs if output.error), "it has ended early")
        raise RuntimeError(f"continuous batching has failed: {why}")
    return [_text(runner, output.generated_tokens) for output in outputs]


def _generation_config(runner: ModelRunner, num_tokens: int, task: Task) -> GenerationConfig:
    rule, rows = task.rule, runner.vocabulary.kmer_rows
    others = [*range(rows.start), *range(rows.stop, runner.vocabulary.size)]
    made: Any = GenerationConfig
    config: GenerationConfig = made(
        max_new_tokens=num_tokens,
        do_sample=rule.temperature > 0,
        temperature=rule.temperature or None,
        top_k=rule.top_k or 0,
        top_p=rule.top_p,
        min_p=rule.min_p,
        suppress_tokens=others,
        eos_token_id=-1,  # no 6-mer ends a text
        pad_token_id=runner.vocabulary.pad,
    )
    return config


def _batching_config(runner: ModelRunner, ids: list[list[int]], num_tokens: int) -> Any:
    if runner.device.type == "cuda":
        return ContinuousBatchingConfig()
    pages = [1 + -(-(len(row) + num_tokens) // _PAGE_TOKENS) for row in ids]
    return ContinuousBatchingConfig(
        num_blocks=min(sum(pages), max(_MOST_PAGES, *pages)), max_batch_tokens=_MOST_TOKENS
    )


def _text(runner: ModelRunner, ids: list[int]) -> str:
    kmers = np.array(ids, dtype=np.int64) - runner.vocabulary.first_kmer
    return decode_kmers(Kmers(kmers, np.full(len(kmers), ALL_KNOWN, dtype=np.uint8)))


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out the engine's own words: it names every prompt that an error concerns."""
    logger = logging.getLogger("ContinuousBatchingLogger")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)
