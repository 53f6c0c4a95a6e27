"""A vector a sequence."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carbon.inference.checks import check_finite, check_layer
from carbon.inference.options import POOLS, Pool, Pooling, check_choice
from carbon.inference.runner import ModelRunner
from carbon.inference.score import blocks, overlapping_windows, window_room_bp
from carbon.tokenizer import K, Vocabulary, encode

Float32s = NDArray[np.float32]

_ROWS_AT_ONCE = 512  # batched by length together


class _Row(NamedTuple):
    """Tokens to read for a sequence, and what each state counts for: (tokens,) both."""

    sequence: int
    ids: NDArray[np.int64]
    weights: Float32s


def embed_sequences(
    reader: ModelRunner,
    sequences: Iterable[str],
    pool: Pool,
    layer: int | None,
    tags: tuple[str, ...],
) -> Iterator[Float32s]:
    """Return the embedding of each sequence, (width,) float32, in order and as they are asked for.

    Raises:
        UserError: the pool, layer or a tag is not possible.
    """
    check_choice("pool", pool, POOLS)
    pooling = POOLS[pool]
    if layer is not None:
        check_layer(reader.network, layer)
    room_bp = window_room_bp(reader, tags, close=pooling.close)
    return _embedded(reader, sequences, pooling, layer, tags, room_bp)


def _embedded(
    reader: ModelRunner,
    sequences: Iterable[str],
    pooling: Pooling,
    layer: int | None,
    tags: tuple[str, ...],
    room_bp: int,
) -> Iterator[Float32s]:
    width = reader.network.config.hidden_size
    read = _read_end if pooling.last_alone else _read_whole
    num_done = 0
    for block in blocks(sequences):
        sums = np.zeros((len(block), width))
        weights = np.zeros((len(block), 1))
        rows = (
            _Row(number, *row)
            for number, sequence in enumerate(block)
            if sequence
            for row in read(sequence, reader.vocabulary, tags, pooling.close, room_bp)
        )
        while group := list(islice(rows, _ROWS_AT_ONCE)):
            states = reader.states([row.ids for row in group], layer)
            pooled = {n: _weighted_sum(state, group[n].weights) for n, state in states}
            for n, row in enumerate(group):  # windows of a sequence are added in their order
                sums[row.sequence] += pooled[n]
                weights[row.sequence] += row.weights.sum()
        with np.errstate(invalid="ignore"):
            vectors = (sums / weights).astype(np.float32)  # 0 / 0 where nothing counts
        for number, (total, vector) in enumerate(zip(sums, vectors, strict=True), num_done + 1):
            check_finite(total, f"sequence {number}", number)
            yield vector
        num_done += len(block)


def _read_whole(
    sequence: str, vocabulary: Vocabulary, tags: tuple[str, ...], close: bool, room_bp: int
) -> Iterator[tuple[NDArray[np.int64], Float32s]]:
    """Yield windows that overlap by half; a token counts in the first that holds it.

    It counts for as many bases as are known of it.
    """
    for start, counted_from in overlapping_windows(len(sequence), room_bp):
        encoding = encode(sequence[start : start + room_bp], vocabulary, tags=tags, close=close)
        weights = np.bitwise_count(encoding.known).astype(np.float32)
        weights[: encoding.num_prefix + (counted_from - start) // K] = 0
        yield encoding.ids, weights


def _read_end(
    sequence: str, vocabulary: Vocabulary, tags: tuple[str, ...], close: bool, room_bp: int
) -> Iterator[tuple[NDArray[np.int64], Float32s]]:
    """Yield the last 6-mers that fit, in the offset of the whole; only the last token counts."""
    start = max(0, -(-(len(sequence) - room_bp) // K) * K)
    ids = encode(sequence[start:], vocabulary, tags=tags, close=close).ids
    weights = np.zeros(len(ids), dtype=np.float32)
    weights[-1] = 1
    yield ids, weights


@torch.inference_mode()
def _weighted_sum(states: Tensor, weights: Float32s) -> Float32s:
    columns = torch.from_numpy(weights).to(states.device)[:, None]
    found: Float32s = (states.float() * columns).sum(dim=0).cpu().numpy()
    return found
