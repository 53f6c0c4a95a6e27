"""Sequences as token batches: rows of any length one behind the other, and what is made of them."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carbon.adapt.attention import Layout, layout_of, positions_of
from carbon.genome import reverse_complement
from carbon.options import POOLS, Pool
from carbon.tokenizer import K, Vocabulary, encode


class Batch(NamedTuple):
    """Token rows one behind the other; tensors are on one device.

    Attributes:
        ids: (tokens,) int64, counted from the first row of the DNA vocabulary: see `first_row`.
        positions: (tokens,) int64, from 0 in every row.
        layout: where the tokens stand in rows.
        weights: (tokens,) float32, what each state counts for in the vector of its row.
        pairs: for a label of every base: (2, 6-mers), places among the tokens of a 6-mer as the
            forward row reads it, and as the reverse complement does.
        bases: for a label of every base: (bases,) places of the bases that are real among those of
            all 6-mers, six each.
    """

    ids: Tensor
    positions: Tensor
    layout: Layout
    weights: Tensor
    pairs: Tensor | None = None
    bases: Tensor | None = None

    def to(self, device: torch.device | str) -> "Batch":
        """Return it on another device."""
        return Batch(
            self.ids.to(device),
            self.positions.to(device),
            self.layout.to(device),
            self.weights.to(device),
            None if self.pairs is None else self.pairs.to(device),
            None if self.bases is None else self.bases.to(device),
        )


class _Row(NamedTuple):
    ids: NDArray[np.int64]
    weights: NDArray[np.float32]


MakeBatch = Callable[[Sequence[str]], Batch]
"""From sequences, each with a base at least, to what the network reads."""


def first_row(vocabulary: Vocabulary) -> int:
    """Return the first row of the embedding that DNA needs; those from it on hold no text."""
    return min(vocabulary.oov, vocabulary.dna_start, vocabulary.dna_end)


def dna_rows(vocabulary: Vocabulary) -> slice:
    """Return the rows of the embedding that DNA needs, tags excepted."""
    return slice(first_row(vocabulary), vocabulary.kmer_rows.stop)


def batches(vocabulary: Vocabulary, pool: Pool, *, per_base: bool = False) -> MakeBatch:
    """Return what makes batches for a vector a sequence, or for one a base."""
    if per_base:
        return lambda sequences: _of_bases(sequences, vocabulary)
    return lambda sequences: _joined([_row(s, vocabulary, pool) for s in sequences], vocabulary)


def tokens_of(length_bp: int, pool: Pool) -> int:
    """Return the tokens of a sequence, `<dna>` included."""
    return 1 - (-length_bp // K) + POOLS[pool].close


def room_bp(context_tokens: int, pool: Pool) -> int:
    """Return the bases of the longest sequence that a context holds."""
    return (context_tokens - 1 - POOLS[pool].close) * K


def cut(lengths: Sequence[int], most_tokens: int) -> Iterator[list[int]]:
    """Yield numbers of sequences that are read together, the shortest first.

    Args:
        lengths: tokens of each.
        most_tokens: of a batch, its rows as long as the longest; one sequence is always taken.
    """
    some: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda n: lengths[n]):
        if some and (len(some) + 1) * lengths[number] > most_tokens:
            yield some
            some = []
        some.append(number)
    if some:
        yield some


def _row(sequence: str, vocabulary: Vocabulary, pool: Pool) -> _Row:
    pooling = POOLS[pool]
    encoding = encode(sequence, vocabulary, close=pooling.close)
    if not pooling.last_alone:
        return _Row(encoding.ids, np.bitwise_count(encoding.known).astype(np.float32))
    weights = np.zeros(len(encoding.ids), dtype=np.float32)
    weights[-1] = 1
    return _Row(encoding.ids, weights)


def _joined(rows: Sequence[_Row], vocabulary: Vocabulary) -> Batch:
    lengths = torch.tensor([len(row.ids) for row in rows])
    ids = np.concatenate([row.ids for row in rows]) - first_row(vocabulary)
    return Batch(
        ids=torch.from_numpy(ids),
        positions=positions_of(lengths),
        layout=layout_of(lengths),
        weights=torch.from_numpy(np.concatenate([row.weights for row in rows])),
    )


def _of_bases(sequences: Sequence[str], vocabulary: Vocabulary) -> Batch:
    """Read both strands: forward rows first, then their reverse complements in the same order.

    A tail of one to five bases is read with A behind it. So T stands before the reverse complement,
    which is then cut between the same bases: 6-mer t of n lies across from n - 1 - t.
    """
    turned = ["T" * (-len(s) % K) + reverse_complement(s) for s in sequences]
    rows = [_row(s, vocabulary, "mean") for s in (*sequences, *turned)]
    batch = _joined(rows, vocabulary)
    ends = np.cumsum([len(row.ids) for row in rows])
    num_kmers = np.array([len(row.ids) - 1 for row in rows[: len(sequences)]])
    forward = [np.arange(end - n, end) for end, n in zip(ends, num_kmers, strict=False)]
    across = [
        np.arange(end - n, end)[::-1]
        for end, n in zip(ends[len(sequences) :], num_kmers, strict=True)
    ]
    starts = K * (np.cumsum(num_kmers) - num_kmers)
    bases = [start + np.arange(len(s)) for start, s in zip(starts, sequences, strict=True)]
    return batch._replace(
        pairs=torch.from_numpy(np.stack([np.concatenate(forward), np.concatenate(across)])),
        bases=torch.from_numpy(np.concatenate(bases)),
    )
