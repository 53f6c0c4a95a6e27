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
                    mask = _mask_like(parameter, rows)
                    self._held.append((parameter, mask, local(parameter)[mask].clone()))

    @torch.no_grad()
    def clear_gradients(self) -> None:
        """Let them have no part in the gradient's norm."""
        for parameter, mask, _ in self._held:
            if parameter.grad is not None:
                local(parameter.grad)[mask] = 0

    @torch.no_grad()
    def restore(self) -> None:
        """Undo what the optimizer did to them."""
        for parameter, mask, values in self._held:
            local(parameter)[mask] = values


def _mask_like(parameter: nn.Parameter, rows: Collection[int]) -> torch.Tensor:
    """Return which rows of this process's shard are held: (rows of the shard,) bool."""
    mask = torch.zeros(len(parameter), 1, dtype=torch.bool, device=parameter.device)
    mask[list(rows)] = True
    if isinstance(parameter, DTensor):
        mesh, placements = parameter.device_mesh, parameter.placements
        mask = distribute_tensor(mask, mesh, placements, src_data_rank=None)
    return local(mask)[:, 0]
