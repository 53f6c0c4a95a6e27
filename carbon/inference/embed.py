"""Embed sequences, one vector each, and write the vectors as Parquet or .npz."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.batching import in_blocks
from carbon.inference.checks import check_finite, check_layer, checked_names
from carbon.inference.options import POOLS, EmbedOptions, Pooling, check_choice
from carbon.inference.score import blocks, overlapping_windows, window_room_bp
from carbon.tokenizer import K, Vocabulary, encode

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
    check_choice("pool", options.pool, POOLS)
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
    sequence: str, vocabulary: Vocabulary, tags: tuple[str, ...], close: bool, room_bp: int
) -> Iterator[tuple[NDArray[np.int64], Float32s]]:
    """Yield windows that overlap by half; a token counts only in the first window that holds it.

    The weight of a token is its number of known bases.
    """
    for start, counted_from in overlapping_windows(len(sequence), room_bp):
        encoding = encode(sequence[start : start + room_bp], vocabulary, tags=tags, close=close)
        weights = np.bitwise_count(encoding.known).astype(np.float32)
        weights[: encoding.num_prefix + (counted_from - start) // K] = 0
        yield encoding.ids, weights


def _end_rows(
    sequence: str, vocabulary: Vocabulary, tags: tuple[str, ...], close: bool, room_bp: int
) -> Iterator[tuple[NDArray[np.int64], Float32s]]:
    """Yield the last 6-mers that fit, on the sequence's 6-mer grid; only the last token counts."""
    start = max(0, -(-(len(sequence) - room_bp) // K) * K)
    ids = encode(sequence[start:], vocabulary, tags=tags, close=close).ids
    weights = np.zeros(len(ids), dtype=np.float32)
    weights[-1] = 1
    yield ids, weights


def _weighted_sum(states: "Tensor", weights: Float32s) -> Float32s:
    import torch

    columns = torch.from_numpy(weights).to(states.device)[:, None]
    pooled: Float32s = (states.float() * columns).sum(dim=0).cpu().numpy()
    return pooled
