"""Generate with transformers' continuous batching, for many prompts of different lengths.

A row that ends is replaced immediately by the next prompt, and keys and values are stored in pages
(https://huggingface.co/docs/transformers/continuous_batching). The engine samples whole 6-mers
only; everything else is left to our own engine. That engine also draws the first 6-mer after a
tail, so that prompts are neither padded nor cut.
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
from carbon.inference.generate.generate import generate
from carbon.inference.generate.prompts import Task, rows_for_prompts, samples_of
from carbon.inference.generate.speculative import Draft
from carbon.inference.options import ENGINES, Constraints, Engine, check_choice
from carbon.inference.passages import prefix_of
from carbon.inference.runner import ModelRunner
from carbon.tokenizer import ALL_KNOWN, K, Kmers, decode_kmers

_PAGE_TOKENS = 256
# For a CPU, where the engine builds a mask of all new by all cached tokens; on a GPU the free
# memory decides.
_MOST_PAGES, _MOST_TOKENS = 64, 2048


def generate_continuously(
    runner: ModelRunner,
    prompts: Sequence[str],
    task: Task,
    advance: Callable[[int], None] = lambda num_bases: None,
    samples: Sequence[int] | None = None,
) -> list[str]:
    """Return a continuation for each prompt, in order.

    Greedy text equals the text of `generate`, up to rounding. Sampled text has the same
    distribution. Its random numbers belong to the whole call: the same prompts, task and seed give
    the same text, and the continuation of a prompt depends on the others.

    Raises:
        UserError: a prompt or tag is invalid, or this engine does not support the task.
    """
    prompts = [row.prompt for row in rows_for_prompts(prompts, task)]
    _check_task(task)
    starts = _first_bases(runner, prompts, task, samples or samples_of(prompts))
    ids = [
        prefix_of((prompt + text)[: (len(prompt) + len(text)) // K * K], runner.six_mers, task.tags)
        for prompt, text in zip(prompts, starts, strict=True)
    ]
    left_bp = [task.length_bp - len(text) for text in starts]
    advance(sum(map(len, starts)))
    texts = _generate_batch(
        runner, [row.tolist() for row in ids], math.ceil(max(left_bp) / K), task
    )
    advance(sum(left_bp))
    return [
        first + text[:more_bp] for first, text, more_bp in zip(starts, texts, left_bp, strict=True)
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
    """Return a continuation for each prompt, from the named engine.

    Raises:
        UserError: as for `generate` and `generate_continuously`, or the engine is unknown.
    """
    check_choice("engine", engine, ENGINES)
    if engine == "own":
        return generate(runner, prompts, task, draft, advance, samples)
    if draft:
        raise UserError("a draft: not with engine 'continuous'; use 'own'")
    return generate_continuously(runner, prompts, task, advance, samples)


def _check_task(task: Task) -> None:
    rule = task.rule
    wrong = {
        "constraints": task.constraints not in (None, Constraints()),
        f"mode '{rule.mode}'": rule.mode != "token",
        "repetition_penalty": rule.repetition_penalty != 0,
    }
    for option, is_set in wrong.items():
        if is_set:
            raise UserError(f"{option}: not with engine 'continuous'; use 'own'")


def _first_bases(
    runner: ModelRunner, prompts: Sequence[str], task: Task, samples: Sequence[int]
) -> list[str]:
    """Return the bases that complete the last 6-mer of each prompt, from our own engine."""
    starts = [""] * len(prompts)
    same_length: dict[int, list[int]] = defaultdict(list)
    for number, prompt in enumerate(prompts):
        if tail_bp := len(prompt) % K:
            same_length[min(K - tail_bp, task.length_bp)].append(number)
    for length_bp, numbers in same_length.items():
        short_task = replace(task, length_bp=length_bp)
        texts = generate(
            runner, [prompts[n] for n in numbers], short_task, samples=[samples[n] for n in numbers]
        )
        for number, text in zip(numbers, texts, strict=True):
            starts[number] = text
    return starts


def _generate_batch(
    runner: ModelRunner, ids: list[list[int]], num_tokens: int, task: Task
) -> list[str]:
    """Return the text after each row, `num_tokens` 6-mers long."""
    if num_tokens == 0:
        return [""] * len(ids)
    longest = max(map(len, ids)) + num_tokens
    if longest > runner.context_tokens:
        raise UserError(
            f"{longest} tokens, prompt and all, do not fit into the context of "
            f"{runner.context_tokens}: engine 'continuous' cannot exceed it; use 'own'"
        )
    network: Any = runner.network
    with _quiet(), torch.random.fork_rng():
        torch.manual_seed(task.seed)
        results = network.generate_batch(
            ids,
            generation_config=_generation_config(runner, num_tokens, task),
            continuous_batching_config=_batching_config(runner, ids, num_tokens),
            warmup=False,
        )
    outputs = sorted(results.values(), key=lambda output: int(output.request_id.rpartition("_")[2]))
    if len(outputs) < len(ids) or any(output.error for output in outputs):
        reason = next((output.error for output in outputs if output.error), "it ended early")
        raise RuntimeError(f"continuous batching failed: {reason}")
    return [_text(runner, output.generated_tokens) for output in outputs]


def _generation_config(runner: ModelRunner, num_tokens: int, task: Task) -> GenerationConfig:
    rule, rows = task.rule, runner.six_mers.kmer_rows
    others = [*range(rows.start), *range(rows.stop, runner.six_mers.size)]
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
        pad_token_id=runner.six_mers.pad,
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
    kmers = np.array(ids, dtype=np.int64) - runner.six_mers.first_kmer
    return decode_kmers(Kmers(kmers, np.full(len(kmers), ALL_KNOWN, dtype=np.uint8)))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the engine's log messages: they name every prompt that an error concerns."""
    logger = logging.getLogger("ContinuousBatchingLogger")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)
