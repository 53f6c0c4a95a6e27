"""Rows of embedding and head that a run leaves as they are."""

from collections.abc import Collection

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

from train.network.parts import LlamaPart
from train.network.pipeline import local

_ENDS = ("model.embed_tokens.weight", "lm_head.weight")


class HeldRows:
    """Rows of embedding and head that no row of the corpus names: they stay bit for bit.

    They have no gradient but where a row of text stands in for a tag; weight decay would shrink
    them all the same.
    """

    def __init__(self, parts: list[LlamaPart], rows: Collection[int]) -> None:
        """Note the rows as they are."""
        self._held = []
        for part in parts:
            for name, parameter in part.named_parameters():
                if parameter.requires_grad and name in _ENDS and rows:
                    mine = _rows_here(parameter, rows)
                    self._held.append((parameter, mine, local(parameter)[mine].clone()))

    @torch.no_grad()
    def clear_gradients(self) -> None:
        """Let them have no part in the gradient's norm."""
        for parameter, mine, _ in self._held:
            if parameter.grad is not None:
                local(parameter.grad).index_fill_(0, mine, 0)

    @torch.no_grad()
    def restore(self) -> None:
        """Undo what the optimizer did to them."""
        for parameter, mine, values in self._held:
            local(parameter).index_copy_(0, mine, values)


def _rows_here(parameter: nn.Parameter, rows: Collection[int]) -> torch.Tensor:
    """Return which rows of this process's shard are held, by their numbers: (held,) int64.

    A mask would have to be counted anew in every step, for which the device is waited for.
    """
    mask = torch.zeros(len(parameter), 1, dtype=torch.bool, device=parameter.device)
    mask[list(rows)] = True
    if isinstance(parameter, DTensor):
        mesh, placements = parameter.device_mesh, parameter.placements
        mask = distribute_tensor(mask, mesh, placements, src_data_rank=None)
    return local(mask)[:, 0].nonzero()[:, 0]
