"""Microbatches of packed rows, and rows that several processes share (context parallelism)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed._functional_collectives import all_gather_tensor_autograd
from torch.nn.functional import pad


class Batch(NamedTuple):
    """B rows of T tokens, (B, T) each; `known` is as in `TokenRow`, all else int64.

    Attributes:
        bounds: (1, pieces + 1) int32: where pieces begin and end in the tokens of all rows, one
            after the other; padding is a segment.
        key_bounds: the same in the keys that attention asks.
        longest: tokens of the longest piece.
    """

    input_ids: Tensor
    position_ids: Tensor
    targets: Tensor
    known: Tensor
    bounds: Tensor
    key_bounds: Tensor
    longest: int

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device."""
        names = [name for name in self._fields if name != "longest"]
        there = {name: getattr(self, name).to(device, non_blocking=True) for name in names}
        return self._replace(**there)


def packed_batch(input_ids: Tensor, position_ids: Tensor, targets: Tensor, known: Tensor) -> Batch:
    """Return rows with the bounds of their pieces, counted on the CPU that they are on."""
    starts = (position_ids.flatten() == 0).nonzero()[:, 0]
    bounds = pad(starts, (0, 1), value=position_ids.numel()).int()[None]
    longest = int(bounds.diff().max())
    # Two tensors: one that is both has Dynamo break the graph at flash-attention.
    return Batch(input_ids, position_ids, targets, known, bounds, bounds.clone(), longest)


def stacked(batch: Sequence[Batch]) -> dict[str, Any]:
    """Concatenate microbatches of one size, for a pipeline to divide again.

    Bounds are of one length then; pieces that are added have no tokens.
    """
    names = ("position_ids", "targets", "known")
    tensors = {name: torch.cat([getattr(one, name) for one in batch]) for name in names}
    for name in ("bounds", "key_bounds"):
        tensors[name] = _of_one_length([getattr(one, name) for one in batch])
    return tensors | {"longest": max(one.longest for one in batch)}


def _of_one_length(bounds: Sequence[Tensor]) -> Tensor:
    width = max(one.shape[1] for one in bounds)
    filled = [torch.cat([b, b[:, -1:].expand(1, width - b.shape[1])], dim=1) for b in bounds]
    return torch.cat(filled)


Attend = Callable[..., tuple[Tensor, None]]
"""From a module, queries, keys, values (B, heads, tokens, width) and a mask, as in transformers."""


@dataclass(frozen=True, slots=True)
class ContextShard:
    """A process's place among the `size` that share rows."""

    rank: int = 0
    size: int = 1

    def places(self, row_tokens: int, device: torch.device | None = None) -> Tensor:
        """Return which tokens of a row the process has: (row_tokens / size,) int64."""
        slices = torch.arange(row_tokens, device=device).tensor_split(2 * self.size)
        return torch.cat([slices[self.rank], slices[-1 - self.rank]])

    def gathered_places(self, row_tokens: int, device: torch.device | None = None) -> Tensor:
        """Return the tokens of a row in the order of the processes that have them."""
        ranks = range(self.size)
        return torch.cat([ContextShard(r, self.size).places(row_tokens, device) for r in ranks])

    def asked_keys(self, rows: int, row_tokens: int, device: torch.device) -> Tensor:
        """Return which of the gathered keys `shared` counts: from each row's head to a slice's end.

        Args:
            rows: of the batch.
            row_tokens: of a whole row.
            device: of the result.

        Returns:
            (rows x (row_tokens + a slice),) int64, in the gathered tokens of all rows.
        """
        order = self.gathered_places(row_tokens, device).argsort()
        of_row = torch.cat([order[:end] for _, end in self._slices(row_tokens)])
        firsts = torch.arange(rows, device=device) * row_tokens
        return (firsts[:, None] + of_row).flatten()

    def shared(self, batch: Batch) -> Batch:
        """Return the process's tokens of whole rows, with recounted bounds.

        Each slice asks the keys of its row from the head to its own end, piece by piece; of pieces
        that lie before it, it asks nothing. Kernels align queries with the last keys of a piece.
        """
        if self.size == 1:
            return batch
        rows, row_tokens = batch.input_ids.shape
        starts, ends = batch.bounds[0, :-1], batch.bounds[0, 1:]
        queries, keys = [], []
        for row in range(rows):
            head = row * row_tokens
            for first, last in self._slices(row_tokens):
                inside = (starts >= head) & (starts < head + last)
                start, end = starts[inside], ends[inside].clamp(max=head + last)
                keys.append(end - start)
                queries.append((end - start.clamp(min=head + first)).clamp(min=0))
        places = self.places(row_tokens)
        names = ("input_ids", "position_ids", "targets", "known")
        mine = {name: getattr(batch, name)[:, places] for name in names}
        bounds, key_bounds = (_bounds(torch.cat(counts)) for counts in (queries, keys))
        longest = int(torch.cat(keys).max())
        return batch._replace(**mine, bounds=bounds, key_bounds=key_bounds, longest=longest)

    def _slices(self, row_tokens: int) -> list[tuple[int, int]]:
        """Return where the two slices begin and end."""
        of_slice = row_tokens // (2 * self.size)
        numbers = (self.rank, 2 * self.size - 1 - self.rank)
        return [(n * of_slice, (n + 1) * of_slice) for n in numbers]


def attend_to_row(
    attend: Attend,
    group: dist.ProcessGroup,
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend to keys and values of all processes of a group, in the order of their ranks."""
    both = torch.cat([key, value], dim=1)
    whole = all_gather_tensor_autograd(both.contiguous(), gather_dim=2, group=group)
    return attend(module, query, *whole.chunk(2, dim=1), attention_mask, **kwargs)


def _bounds(counts: Tensor) -> Tensor:
    """Return the bounds of segments of these lengths: (1, pieces + 1) int32."""
    return pad(counts.cumsum(0), (1, 0)).int()[None]
