"""Batches of token rows without padding, and attention over them for stock transformers layers.

Sequences of a batch are packed into one row. Only attention depends on the rows: queries, keys and
values are unpacked into rows padded on the right, where a causal query does not look, so no mask is
needed and SDPA uses its fast kernels.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from carbon.genome import reverse_complement
from carbon.inference.options import POOLS, Pool
from carbon.tokenizer import K, Vocabulary, encode

NAME = "carbon_rows"


class RowLayout(NamedTuple):
    """Positions of packed tokens in rows.

    Attributes:
        places: (tokens,) int64, row * longest + position of each token; None if all rows have the
            same length.
        num_rows: number of sequences.
        longest: tokens of the longest sequence.
    """

    places: Tensor | None
    num_rows: int
    longest: int

    def as_rows(self, flat: Tensor) -> Tensor:
        """Unpack (tokens, ...) into (rows, longest, ...), with zeros after shorter rows."""
        if self.places is not None:
            blank = flat.new_zeros(self.num_rows * self.longest, *flat.shape[1:])
            flat = blank.index_copy(0, self.places, flat)
        return flat.reshape(self.num_rows, self.longest, *flat.shape[1:])

    def as_flat(self, rows: Tensor) -> Tensor:
        """Undo `as_rows`."""
        flat = rows.flatten(0, 1)
        return flat if self.places is None else flat.index_select(0, self.places)

    def to(self, device: torch.device | str) -> "RowLayout":
        """Return the layout on another device."""
        return self if self.places is None else self._replace(places=self.places.to(device))


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    dropout: float = 0.0,
    scaling: float | None = None,
    *,
    layout: RowLayout,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend within rows: query (1, heads, tokens, width) to (1, tokens, heads, width)."""
    del attention_mask, kwargs
    q, k, v = (layout.as_rows(x[0].transpose(0, 1)).transpose(1, 2) for x in (query, key, value))
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    attended = scaled_dot_product_attention(
        q, k, v, dropout_p=dropout if module.training else 0.0, scale=scaling, is_causal=True
    )
    return layout.as_flat(attended.transpose(1, 2))[None], None


def use_rows(network: Any) -> None:
    """Make a stock Llama attend with `attend`; it then takes the keyword `layout`."""
    AttentionInterface.register(NAME, attend)
    network.config._attn_implementation = NAME


def layout_of(lengths: Tensor) -> RowLayout:
    """Return the layout of rows of these lengths, (rows,) int64."""
    longest = int(lengths.max())
    if bool((lengths == longest).all()):
        return RowLayout(None, len(lengths), longest)
    rows = torch.repeat_interleave(torch.arange(len(lengths)) * longest, lengths)
    return RowLayout(rows + positions_of(lengths), len(lengths), longest)


def positions_of(lengths: Tensor) -> Tensor:
    """Return the position of each token in its row, from 0: (tokens,) int64."""
    first = torch.repeat_interleave(lengths.cumsum(0) - lengths, lengths)
    return torch.arange(len(first)) - first


class Batch(NamedTuple):
    """Packed token rows; all tensors are on one device.

    Attributes:
        ids: (tokens,) int64, counted from the first row of the DNA vocabulary: see `first_row`.
        positions: (tokens,) int64, from 0 in every row.
        layout: positions of the tokens in rows.
        weights: (tokens,) float32, weight of each state in the vector of its row.
        pairs: for a label of every base: (2, 6-mers), token index of each 6-mer in the forward row,
            and in the reverse complement.
        bases: for a label of every base: (bases,), index of each real base among six per 6-mer.
    """

    ids: Tensor
    positions: Tensor
    layout: RowLayout
    weights: Tensor
    pairs: Tensor | None = None
    bases: Tensor | None = None

    def to(self, device: torch.device | str) -> "Batch":
        """Return the batch on another device."""
        return Batch(
            self.ids.to(device),
            self.positions.to(device),
            self.layout.to(device),
            self.weights.to(device),
            None if self.pairs is None else self.pairs.to(device),
            None if self.bases is None else self.bases.to(device),
        )


class _TokenRow(NamedTuple):
    ids: NDArray[np.int64]
    weights: NDArray[np.float32]


MakeBatch = Callable[[Sequence[str]], Batch]
"""Makes a batch of sequences, at least one base each."""


def first_row(vocabulary: Vocabulary) -> int:
    """Return the first embedding row that DNA needs; text tokens come before it."""
    return min(vocabulary.oov, vocabulary.dna_start, vocabulary.dna_end)


def dna_rows(vocabulary: Vocabulary) -> slice:
    """Return the embedding rows that DNA needs, without tags."""
    return slice(first_row(vocabulary), vocabulary.kmer_rows.stop)


def batches(vocabulary: Vocabulary, pool: Pool, *, per_base: bool = False) -> MakeBatch:
    """Return a function that makes batches, for one vector per sequence or one per base."""
    if per_base:
        return lambda sequences: _of_bases(sequences, vocabulary)
    return lambda sequences: _joined([_row(s, vocabulary, pool) for s in sequences], vocabulary)


def tokens_of(length_bp: int, pool: Pool) -> int:
    """Return the tokens of a sequence, `<dna>` included."""
    return 1 - (-length_bp // K) + POOLS[pool].close


def room_bp(context_tokens: int, pool: Pool) -> int:
    """Return the bases of the longest sequence that fits a context."""
    return (context_tokens - 1 - POOLS[pool].close) * K


def _row(sequence: str, vocabulary: Vocabulary, pool: Pool) -> _TokenRow:
    pooling = POOLS[pool]
    encoding = encode(sequence, vocabulary, close=pooling.close)
    if not pooling.last_alone:
        return _TokenRow(encoding.ids, np.bitwise_count(encoding.known).astype(np.float32))
    weights = np.zeros(len(encoding.ids), dtype=np.float32)
    weights[-1] = 1
    return _TokenRow(encoding.ids, weights)


def _joined(rows: Sequence[_TokenRow], vocabulary: Vocabulary) -> Batch:
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

    A tail of one to five bases is padded with A. The reverse complement is padded with T in front,
    so that both have the same 6-mer boundaries: 6-mer t of n is the complement of n - 1 - t.
    """
    turned = ["T" * (-len(s) % K) + reverse_complement(s) for s in sequences]
    rows = [_row(s, vocabulary, "mean") for s in (*sequences, *turned)]
    batch = _joined(rows, vocabulary)
    ends = np.cumsum([len(row.ids) for row in rows])
    num_kmers = np.array([len(row.ids) - 1 for row in rows[: len(sequences)]])
    forward = [np.arange(end - n, end) for end, n in zip(ends, num_kmers, strict=False)]
    reverse = [
        np.arange(end - n, end)[::-1]
        for end, n in zip(ends[len(sequences) :], num_kmers, strict=True)
    ]
    starts = K * (np.cumsum(num_kmers) - num_kmers)
    bases = [start + np.arange(len(s)) for start, s in zip(starts, sequences, strict=True)]
    return batch._replace(
        pairs=torch.from_numpy(np.stack([np.concatenate(forward), np.concatenate(reverse)])),
        bases=torch.from_numpy(np.concatenate(bases)),
    )
