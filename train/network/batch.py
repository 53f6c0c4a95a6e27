"""What a process reads at once."""

from typing import NamedTuple

import torch
from torch import Tensor


class Batch(NamedTuple):
    """B rows of T tokens, (B, T) each; `known` is uint8, six bits a token, all else int64."""

    input_ids: Tensor
    position_ids: Tensor
    targets: Tensor
    known: Tensor

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device."""
        return Batch(*(part.to(device, non_blocking=True) for part in self))
