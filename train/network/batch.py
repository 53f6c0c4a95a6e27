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
        longest: tokens of the longest piece.
    """

    input_ids: Tensor
    position_ids: Tensor
    targets: Tensor
    known: Tensor
    bounds: Tensor
    longest: int

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device."""
        names = [name for name in self._fields if name != "longest"]
        there = {name: getattr(self, name).to(device, non_blocking=True) for name in names}
        return self._replace(**there)


def packed_batch(input_ids: Tensor, position_ids: Tensor, targets: Tensor, known: Tensor) -> Batch:
    """Return rows with the bounds of their pieces, counted on the CPU that they are on."""
    starts = (position_ids.flatten() == 0).nonzero()[:, 0]
    bounds = pad(starts, (0, 1), value=position_ids.numel()).int()
    return Batch(input_ids, position_ids, targets, known, bounds[None], int(bounds.diff().max()))


def stacked(batch: Sequence[Batch]) -> dict[str, Any]:
    """Return microbatches of one size, one behind the other, for a pipeline to divide again.

    Bounds are of one length then; pieces that are added have no tokens.
    """
    names = ("position_ids", "targets", "known")
    tensors = {name: torch.cat([getattr(one, name) for one in batch]) for name in names}
    width = max(one.bounds.shape[1] for one in batch)
    bounds = [
        pad(b, (0, width - b.shape[1]), value=int(one.position_ids.numel()))
        for one in batch
        for b in [one.bounds]
    ]
    return tensors | {"bounds": torch.cat(bounds), "longest": max(one.longest for one in batch)}
