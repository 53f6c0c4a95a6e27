"""What a process reads at once."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad


class Batch(NamedTuple):
    """B rows of T tokens, (B, T) each; `known` is uint8, six bits a token, all else int64.

    Attributes:
        bounds: (1, pieces + 1) int32: where pieces begin and end in the tokens of all rows, one
            behind the other; padding is a piece.
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
    """Return microbatches of one size, one behind the other, for a pipeline to divide again.

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
