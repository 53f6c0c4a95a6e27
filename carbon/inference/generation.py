"""Sampling DNA from a model, six bases a step."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carbon.errors import UserError
from carbon.genome import IUPAC_DNA
from carbon.losses import marginals
from carbon.model import LoadedModel, kmer_logits
from carbon.tokenizer import KMER_DIGITS, K, Kmers, decode_kmers, encode, encode_kmers, known_bases

_BATCH_SEQUENCES = 64
_PLACES = 4 ** np.arange(K - 1, -1, -1)


@dataclass(frozen=True, slots=True)
class SamplingRule:
    """How one step is drawn from the distribution of the next 6-mer."""

    temperature: float
    top_k: int | None
    top_p: float | None
    mode: Literal["token", "base"]

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 100:
            raise UserError(f"temperature {self.temperature}: give 0 (greedy) to 100")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"top_k {self.top_k}: give 1 or more")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UserError(f"top_p {self.top_p}: give a probability above 0, at most 1")


def generate(
    model: LoadedModel,
    prompts: Sequence[str],
    length_bp: int,
    rule: SamplingRule,
    seed: int,
    tags: tuple[str, ...],
) -> list[str]:
    """Return a continuation of `length_bp` bases for each prompt, in order."""
    if seed < 0:
        raise UserError(f"seed {seed}: give 0 or more")
    if length_bp < 1:
        raise UserError(f"length {length_bp}: give at least one base")
    for n, prompt in enumerate(prompts, start=1):
        if wrong := set(prompt.upper()) - set(IUPAC_DNA):
            raise UserError(
                f"prompt {n}: {min(wrong)!r} is not a DNA letter (ACGT, N, IUPAC codes)"
            )
    streams = [np.random.Generator(np.random.Philox(key=[seed, n])) for n in range(len(prompts))]
    # Prompts with the same number of 6-mers need no padding, so a batch equals its parts.
    by_length: dict[int, list[int]] = defaultdict(list)
    for n, prompt in enumerate(prompts):
        by_length[len(prompt) // K].append(n)
    results = [""] * len(prompts)
    for same_length in by_length.values():
        for at in range(0, len(same_length), _BATCH_SEQUENCES):
            batch = same_length[at : at + _BATCH_SEQUENCES]
            texts = _continue_batch(
                model,
                [prompts[n] for n in batch],
                length_bp,
                rule,
                [streams[n] for n in batch],
                tags,
            )
            for n, text in zip(batch, texts, strict=True):
                results[n] = text
    return results


@torch.inference_mode()
def _continue_batch(
    model: LoadedModel,
    prompts: list[str],
    length_bp: int,
    rule: SamplingRule,
    streams: list[np.random.Generator],
    tags: tuple[str, ...],
) -> list[str]:
    vocabulary = model.vocabulary
    whole_bp = len(prompts[0]) // K * K
    prefix = vocabulary.prefix(tags)
    history = np.array([encode(p[:whole_bp], vocabulary, tags=tags).ids for p in prompts])
    tails = [prompt[whole_bp:] for prompt in prompts]
    longest_tail = max(map(len, tails))
    drawn: list[NDArray[np.int64]] = []
    reader = _Reader(model, len(prefix))
    for step in range(-(-(longest_tail + length_bp) // K)):
        logits = reader.next_logits(history)
        if step == 0:
            logits = _condition_on_tails(logits, tails)
        kmers = _draw(logits, rule, streams)
        drawn.append(kmers)
        history = np.concatenate([history, kmers[:, None] + vocabulary.first_kmer], axis=1)
    indices = np.stack(drawn, axis=1)
    all_known = np.full(indices.shape[1], 2**K - 1, dtype=np.uint8)
    texts = [decode_kmers(Kmers(row, all_known)) for row in indices]
    return [
        text[len(tail) : len(tail) + length_bp] for text, tail in zip(texts, tails, strict=True)
    ]


class _Reader:
    """Runs the network over a growing history, keeping keys and values of what it has read.

    When the context is full it starts again from the prefix and the last half of the context.
    """

    def __init__(self, model: LoadedModel, prefix_tokens: int) -> None:
        self._model = model
        self._prefix_tokens = prefix_tokens
        self._context = model.network.config.max_position_embeddings
        self._cache: Any = None
        self._num_read = 0
        self._num_cached = 0

    def next_logits(self, history: NDArray[np.int64]) -> Tensor:
        """Return fp32 logits over the next 6-mer for every row of `history` (N, tokens)."""
        network, vocabulary = self._model
        fresh = history[:, self._num_read :]
        if self._cache is None or self._num_cached + fresh.shape[1] > self._context:
            fresh, self._cache, self._num_cached = self._recent(history), None, 0
        ids = torch.from_numpy(np.ascontiguousarray(fresh)).to(network.device)
        output = network.model(input_ids=ids, past_key_values=self._cache, use_cache=True)
        self._cache = output.past_key_values
        self._num_cached += fresh.shape[1]
        self._num_read = history.shape[1]
        return kmer_logits(network, output[0][:, -1], vocabulary).float()

    def _recent(self, history: NDArray[np.int64]) -> NDArray[np.int64]:
        if history.shape[1] <= self._context:
            return history
        prefix = history[:, : self._prefix_tokens]
        return np.concatenate([prefix, history[:, -(self._context // 2) :]], axis=1)


def _condition_on_tails(logits: Tensor, tails: list[str]) -> Tensor:
    """Take away all mass from 6-mers that do not begin with the known bases of the tail."""
    allowed = np.ones(logits.shape, dtype=bool)
    for row, tail in zip(allowed, tails, strict=True):
        if tail:
            kmers = encode_kmers(tail)
            digits, known = KMER_DIGITS[kmers.indices[0]], known_bases(kmers.known)[0]
            row &= ((digits == KMER_DIGITS) | ~known).all(axis=1)
    return logits.masked_fill(~torch.from_numpy(allowed).to(logits.device), -torch.inf)


def _draw(
    logits: Tensor, rule: SamplingRule, streams: list[np.random.Generator]
) -> NDArray[np.int64]:
    """Draw one 6-mer a row, whole or as six independent bases."""
    if rule.mode == "token":
        uniform = np.array([[stream.random()] for stream in streams])
        return _choose(logits.cpu().numpy()[:, None, :], rule, uniform)[:, 0]
    log_marginals = marginals(logits).cpu().numpy()
    uniform = np.array([stream.random(K) for stream in streams])
    kmers: NDArray[np.int64] = _choose(log_marginals, rule, uniform) @ _PLACES
    return kmers


def _choose(
    scores: NDArray[np.float32], rule: SamplingRule, uniform: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Choose along the last axis: (N, M, choices) and uniform numbers (N, M) to (N, M)."""
    if rule.temperature == 0:
        greedy: NDArray[np.int64] = np.argmax(scores, axis=-1)
        return greedy
    z = scores.astype(np.float64) / rule.temperature
    probability = np.exp(z - z.max(axis=-1, keepdims=True))
    order = np.argsort(-probability, axis=-1, kind="stable")
    ranked = np.take_along_axis(probability, order, axis=-1)
    if rule.top_k is not None:
        ranked[..., rule.top_k :] = 0.0
    if rule.top_p is not None:
        ranked /= ranked.sum(axis=-1, keepdims=True)
        before = np.cumsum(ranked, axis=-1) - ranked
        ranked[before >= rule.top_p] = 0.0
    cumulative = np.cumsum(ranked, axis=-1)
    reached = cumulative > uniform[..., None] * cumulative[..., -1:]
    rank = reached.argmax(axis=-1)
    chosen: NDArray[np.int64] = np.take_along_axis(order, rank[..., None], axis=-1)[..., 0]
    return chosen
