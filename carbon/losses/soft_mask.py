"""Soft-masked (lower-case) bases that weigh less in the loss, as repeats do in GPN and Evo 2.

With n known bases of a token, w the weight of a base, m its bit of knowledge, and wbar the mean
weight of the six bases of a token, sums running over all tokens of a global batch:

    FNS = sum of (sum_j w_j m_j (-log S_j) / n)  /  sum of (sum_j w_j m_j / n)
    CE  = sum of wbar (-log p(y))                /  sum of wbar       tokens with six known bases

A mixed objective divides each of its terms by the term's own sum; the term over all 6-mers is
weighted as CE. The losses are sums that are divided once by a number of tokens, so the factors here
hold that number over the divisor of a term. Divisors follow from whole numbers, which add up to the
same in any division of a batch.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from carbon.losses.objectives import Objective

_SIXTIETHS = 60  # the least number that 1 to 6 known bases divide


class LossFactors(NamedTuple):
    """Factors of the terms of N tokens, next to the weights of an objective.

    Attributes:
        token: (N,) fp64, of log p(y) and of the mean over all 6-mers.
        bases: (N, 6) fp64, of log S_j.
    """

    token: Tensor
    bases: Tensor


def bits_of_bases(packed: Tensor, first: int = 0) -> Tensor:
    """Return six bits of each token, from the bit `first` on: (N, 6) bool of any shape of N."""
    bits = torch.arange(first, first + 6, device=packed.device, dtype=packed.dtype)
    return (packed.flatten()[:, None] >> bits & 1).bool()


def soft_mask_counts(known: Tensor, masked: Tensor) -> Tensor:
    """Return the counts that decide the divisors, over N tokens: (4,) int64, additive.

    Args:
        known: (N, 6) bool, known bases.
        masked: (N, 6) bool, soft-masked bases, known or not.

    Returns:
        Tokens with six known bases, soft-masked bases in them, tokens with a known base, and the
        sum of the soft-masked shares of their known bases in sixtieths.
    """
    num_known, num_masked = known.sum(dim=1), (known & masked).sum(dim=1)
    whole = num_known == 6
    shares = _SIXTIETHS * num_masked // num_known.clamp(min=1)
    sums = whole.sum(), (num_masked * whole).sum(), (num_known > 0).sum(), shares.sum()
    return torch.stack(sums)


@dataclass(frozen=True, slots=True)
class SoftMask:
    """The weight of soft-masked bases, and the counts of the global batch that it is for.

    Attributes:
        weight: above 0, and at most 1, the weight of other bases.
        counts: (4,) int64, `soft_mask_counts`, summed over microbatches and processes.
    """

    weight: float
    counts: Tensor

    def factors(self, known: Tensor, masked: Tensor, objective: Objective) -> LossFactors:
        """Return the factors of tokens of the batch, for losses divided by `count_tokens`.

        Args:
            known: (N, 6) bool, known bases.
            masked: (N, 6) bool, soft-masked bases, known or not.
            objective: objective to minimise.
        """
        whole, masked_in_whole, any_known, sixtieths = self.counts.double().unbind()
        less = 1 - self.weight
        divisor = any_known if objective.bases > 0 else whole
        of_token = divisor / (whole - less * masked_in_whole / 6)
        of_bases = divisor / (any_known - less * sixtieths / _SIXTIETHS)
        weights = 1 - less * (known & masked).double()
        # A batch without such a token divides by 0; the losses count none of its terms.
        of_token, of_bases = (each.nan_to_num(posinf=0.0) for each in (of_token, of_bases))
        return LossFactors(of_token * weights.mean(dim=1), of_bases * weights)
