"""Dropout before adapters, of 16 bits a draw on a CPU.

Seven modules a layer have one. Torch's takes longer there than the matrices of a small model.
"""

from typing import Any

import torch
from torch import Tensor, nn

_STEPS = 2**16


class Dropout(nn.Module):
    """Zeros for a share of the numbers, in training; the others grow, so that the mean stays.

    Of the share the nearest multiple of 2^-16 is taken. On a GPU it is torch's own.
    """

    def __init__(self, share: float) -> None:
        """Take the share, from 0 to less than 1."""
        super().__init__()
        self._share = share
        self._steps = round(share * _STEPS)

    def forward(self, values: Tensor) -> Tensor:
        """Return values of the same shape and type."""
        if not self.training:
            return values
        if values.device.type != "cpu":
            return nn.functional.dropout(values, self._share)
        words = torch.empty(-(-values.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        draws = words.view(torch.int16)[: values.numel()].view(values.shape)
        dropped = draws < self._steps - _STEPS // 2
        found: Tensor = _Masked.apply(values, dropped, _STEPS / (_STEPS - self._steps))  # type: ignore[no-untyped-call]
        return found


class _Masked(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, values: Tensor, dropped: Tensor, scale: float) -> Tensor:
        context.save_for_backward(dropped)
        context.scale = scale
        return values.masked_fill(dropped, 0).mul_(scale)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (dropped,) = context.saved_tensors
        return gradient.masked_fill(dropped, 0).mul_(context.scale), None, None
