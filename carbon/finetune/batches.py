"""Attention over sequences that lie one behind the other, for stock layers of transformers.

All but attention works token by token, so that rows of any lengths are read as one long row
without padding, and only queries, keys and values are laid out as rows. Padding stands on the
right, where a causal query does not look: no mask is needed, and the fast kernels of SDPA take it.
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


class Layout(NamedTuple):
    """Where the tokens of a flat batch stand in rows.

    Attributes:
        places: (tokens,) int64, row * longest + position of each token; None where all rows are of
            one length, so that the flat tokens are the rows.
        num_rows: sequences.
        longest: tokens of the longest.
    """

    places: Tensor | None
    num_rows: int
    longest: int

    def as_rows(self, flat: Tensor) -> Tensor:
        """Lay (tokens, ...) out as (rows, longest, ...), zeros where a row is shorter."""
        if self.places is not None:
            blank = flat.new_zeros(self.num_rows * self.longest, *flat.shape[1:])
            flat = blank.index_copy(0, self.places, flat)
        return flat.reshape(self.num_rows, self.longest, *flat.shape[1:])

    def as_flat(self, rows: Tensor) -> Tensor:
        """Undo `as_rows`."""
        flat = rows.flatten(0, 1)
        return flat if self.places is None else flat.index_select(0, self.places)

    def to(self, device: torch.device | str) -> "Layout":
        """Return it on another device."""
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
    layout: Layout,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend inside rows: query (1, heads, tokens, width) to (1, tokens, heads, width)."""
    del attention_mask, kwargs
    q, k, v = (layout.as_rows(x[0].transpose(0, 1)).transpose(1, 2) for x in (query, key, value))
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    found = scaled_dot_product_attention(
        q, k, v, dropout_p=dropout if module.training else 0.0, scale=scaling, is_causal=True
    )
    return layout.as_flat(found.transpose(1, 2))[None], None


def use_rows(network: Any) -> None:
    """Let a stock Llama attend by `attend`; it then takes the keyword `layout`."""
    AttentionInterface.register(NAME, attend)
    network.config._attn_implementation = NAME


def layout_of(lengths: Tensor) -> Layout:
    """Return where tokens of rows of these lengths stand: (rows,) int64."""
    longest = int(lengths.max())
    if bool((lengths == longest).all()):
        return Layout(None, len(lengths), longest)
    rows = torch.repeat_interleave(torch.arange(len(lengths)) * longest, lengths)
    return Layout(rows + positions_of(lengths), len(lengths), longest)


def positions_of(lengths: Tensor) -> Tensor:
    """Count the tokens of each row from 0: (tokens,) int64."""
    first = torch.repeat_interleave(lengths.cumsum(0) - lengths, lengths)
    return torch.arange(len(first)) - first


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
