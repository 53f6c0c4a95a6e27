"""Attention over sequences that lie one behind the other, for stock layers of transformers.

All but attention works token by token, so that rows of any lengths are read as one long row
without padding, and only queries, keys and values are laid out as rows. Padding stands on the
right, where a causal query does not look: no mask is needed, and the fast kernels of SDPA take it.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

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
