"""How far the changes of learners agree: what one looks at to see whether meetings help."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from train.learners.outer import Tensors, dot, merged
from train.learners.transport import Change


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of a meeting, over all weights that met.

    Attributes:
        norms: of each member's change.
        cosines: between each member's change and the mean; 0 where one of them is zero.
        mean_norm: of the mean.
    """

    norms: list[float]
    cosines: list[float]
    mean_norm: float

    @classmethod
    def of(cls, sums: Tensor) -> "Agreement":
        """Return it from the sums that `mean_of` gives, added up over processes."""
        squares, products = sums[0, :-1].tolist(), sums[1, :-1].tolist()
        norms, mean_norm = [math.sqrt(square) for square in squares], math.sqrt(float(sums[0, -1]))
        pairs = zip(products, norms, strict=True)
        cosines = [dot / (norm * mean_norm) if norm * mean_norm else 0.0 for dot, norm in pairs]
        return cls(norms, cosines, mean_norm)


def mean_of(
    changes: Sequence[Change],
    weights: Sequence[float],
    names: Sequence[str],
    counted: Collection[str],
) -> tuple[Tensors, Tensor]:
    """Return the weighted mean of changes, and the sums of squares and products beside it.

    A tensor of each is read at a time.

    Args:
        changes: of the members, in their order.
        weights: of each.
        names: of the tensors.
        counted: those of them that the sums are over.

    Returns:
        The mean by name, and sums (2, members + 1) fp64: squares of each member's change and of the
        mean; and products of each with the mean.
    """
    mean: Tensors = {}
    sums = torch.zeros(2, len(weights) + 1, dtype=torch.float64)
    for name in names:
        ones = [{name: change[name]} for change in changes]
        of_all = merged(ones, weights)
        mean |= of_all
        if name in counted:
            for i, one in enumerate([*ones, of_all]):
                sums[0, i] += dot(one, one)
                sums[1, i] += dot(one, of_all)
    return mean, sums
