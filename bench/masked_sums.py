"""FNS as one would write it first: 24 masked sums over the probabilities of all 6-mers."""

import torch
from torch import Tensor

from carbon.tokenizer import NATIVE


class MaskedSums:
    """The loss of logits over the whole vocabulary, as the mean of all known bases."""

    def __init__(self, device: torch.device | str) -> None:
        """Make a mask for each of four bases at six places."""
        powers = 4 ** torch.arange(5, -1, -1, device=device)
        self._digits = torch.arange(4096, device=device)[:, None] // powers % 4
        self._masks = [(self._digits[:, j] == b).float() for j in range(6) for b in range(4)]

    def __call__(self, logits: Tensor, targets: Tensor, known: Tensor) -> Tensor:
        """Return nats per base.

        Args:
            logits: (rows, tokens, vocabulary).
            targets: (rows, tokens), numbers of 6-mers.
            known: (rows, tokens), six bits of a byte.
        """
        p = logits[..., NATIVE.kmer_rows].float().softmax(-1)
        sums = torch.stack([(p * mask).sum(-1) for mask in self._masks], -1)
        of_bases = sums.view(*targets.shape, 6, 4).gather(-1, self._digits[targets][..., None])
        nats = -of_bases[..., 0].clamp(min=1e-30).log()
        bits = torch.arange(6, dtype=torch.uint8, device=known.device)
        is_known = (known[..., None] >> bits & 1).float()
        return (nats * is_known).sum() / is_known.sum()
