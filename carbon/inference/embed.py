"""Embed sequences, one vector each, and write the vectors as Parquet or .npz."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.batching import in_blocks
from carbon.errors import UserError
from carbon.inference.checks import check_finite, check_layer, checked_names
from carbon.inference.options import POOLS, EmbedOptions, Pool, Pooling, check_choice
from carbon.inference.passages import prefix_of
from carbon.inference.score import blocks, overlapping_windows, window_room_bp
from carbon.tokenizer import KmerVocabulary, Vocabulary, six_mers

if TYPE_CHECKING:  # the driver writes vectors without torch
    from torch import Tensor

    from carbon.inference.runner import ModelRunner

Float32s = NDArray[np.float32]

_ROWS_PER_GROUP = 512  # sorted into batches by length together


class _EmbeddingRow(NamedTuple):
    """One row of a batch: token ids, int64 (tokens,), and pooling weights, float32 (tokens,)."""

    sequence: int
    ids: NDArray[np.int64]
    weights: Float32s


def embed_sequences(
    runner: "ModelRunner", sequences: Iterable[str], options: EmbedOptions
) -> Iterator[Float32s]:
    """Return an iterator over the embedding of each sequence, (width,) float32, in order.

    Raises:
        UserError: the pool, layer or a tag is invalid.
    """
    check_pool(runner.vocabulary, options.pool)
    pooling, tags = POOLS[options.pool], checked_names("tags", options.tags)
    if options.layer is not None:
        check_layer(runner.network, options.layer)
    room_bp = window_room_bp(runner, tags, close=pooling.close)
    return _embedded(runner, sequences, pooling, options.layer, tags, room_bp)


def _embedded(
    runner: "ModelRunner",
    sequences: Iterable[str],
    pooling: Pooling,
    layer: int | None,
    tags: tuple[str, ...],
    room_bp: int,
) -> Iterator[Float32s]:
    width = runner.network.config.hidden_size
    rows_of = _end_rows if pooling.last_alone else _whole_rows
    num_done = 0
    for block in blocks(sequences):
        sums = np.zeros((len(block), width))
        weights = np.zeros((len(block), 1))
        rows = (
            _EmbeddingRow(number, *row)
            for number, sequence in enumerate(block)
            if sequence
            for row in rows_of(sequence, runner.vocabulary, tags, pooling.close, room_bp)
        )
        for group in in_blocks(rows, _ROWS_PER_GROUP):
            states = runner.states([row.ids for row in group], layer)
            pooled = {n: _weighted_sum(state, group[n].weights) for n, state in states}
            for n, row in enumerate(group):  # windows of a sequence are summed in order
                sums[row.sequence] += pooled[n]
                weights[row.sequence] += row.weights.sum()
        with np.errstate(invalid="ignore"):
            vectors = (sums / weights).astype(np.float32)  # 0 / 0 without any known base
        for number, (total, vector) in enumerate(zip(sums, vectors, strict=True), num_done + 1):
            check_finite(total, f"sequence {number}", number)
            yield vector
        num_done += len(block)


def _whole_rows(
    sequence: str, vocabulary: KmerVocabulary, tags: tuple[str, ...], close: bool, room_bp: int
) -> Iterator[tuple[NDArray[np.int64], Float32s]]:
    """Yield windows that overlap by half; a token counts only in the first window that holds it.

    The weight of a token is its number of known bases.
    """
    prefix, suffix = prefix_of("", vocabulary, tags), _closing(vocabulary, close)
    for start, counted_from in overlapping_windows(len(sequence), room_bp, vocabulary.k):
        tokens = vocabulary.tokens(sequence[start : start + room_bp])
        counts = np.bitwise_count(tokens.known).astype(np.float32)
        counts[: (counted_from - start) // vocabulary.k] = 0
        weights = np.pad(counts, (len(prefix), len(suffix)))
        yield np.concatenate([prefix, tokens.ids, suffix]), weights


def _end_rows(
    sequence: str, vocabulary: KmerVocabulary, tags: tuple[str, ...], close: bool, room_bp: int
) -> Iterator[tuple[NDArray[np.int64], Float32s]]:
    """Yield the last k-mers that fit, on the sequence's k-mer grid; only the last token counts."""
    start = max(0, -(-(len(sequence) - room_bp) // vocabulary.k) * vocabulary.k)
    prefix, suffix = prefix_of("", vocabulary, tags), _closing(vocabulary, close)
    ids = np.concatenate([prefix, vocabulary.tokens(sequence[start:]).ids, suffix])
    weights = np.zeros(len(ids), dtype=np.float32)
    weights[-1] = 1
    yield ids, weights


def _closing(vocabulary: KmerVocabulary, close: bool) -> NDArray[np.int64]:
    return np.array([six_mers(vocabulary).dna_end] if close else [], dtype=np.int64)


def check_pool(vocabulary: KmerVocabulary, pool: Pool) -> None:
    """Raise UserError unless a pool is known, and its last token exists."""
    check_choice("pool", pool, POOLS)
    if POOLS[pool].close and not isinstance(vocabulary, Vocabulary):
        raise UserError(
            f"pool '{pool}': is the state of </dna>, which only Carbon's models have; give mean or "
            "last"
        )


def _weighted_sum(states: "Tensor", weights: Float32s) -> Float32s:
    import torch

    columns = torch.from_numpy(weights).to(states.device)[:, None]
    pooled: Float32s = (states.float() * columns).sum(dim=0).cpu().numpy()
    return pooled
