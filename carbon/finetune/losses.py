"""Training losses as sums over rows, normalised once by the total weight.

Targets are (rows, columns), NaN where unknown; unknown targets do not count. The mean of
`mean_loss` over processes is the loss of all their rows, and the mean of its gradients, as DDP
computes it, is the gradient of that loss. The numbers of processes, rows per process and
microbatches therefore do not change a loss, except the correlation, which depends on the whole
batch.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.nn.functional import all_reduce
from torch.nn import functional as F

LEAST_FOR_CORRELATION = 3
"""With two rows the correlation is always 1 or -1, and its gradient 0."""
_FLOOR = 1e-8  # minimum product of two sums of squares, as published
_HUBER_SHARE = 0.2  # as published for DREAM 2022

Sum = Callable[[Tensor], Tensor]
Total = Callable[[Tensor, Tensor, Tensor, Sum], Tensor]
"""Maps logits, targets, their weights and a sum over processes to a weighted total."""


def mean_loss(
    name: str,
    logits: Tensor,
    targets: Tensor,
    weights: Tensor,
    total_weight: float | Tensor | None = None,
    *,
    alone: bool = False,
) -> Tensor:
    """Return a loss whose mean over processes is the loss of all rows.

    Args:
        name: key of `LOSSES`.
        logits: (rows, outputs), any floating type; the loss is computed in float32.
        targets: (rows, columns), NaN where unknown.
        weights: (rows, columns), weights of the targets, 0 where unknown.
        total_weight: sum over all microbatches of a step on all processes; of this microbatch if
            None. 0 gives a loss of 0.
        alone: compute the loss of this process without waiting for others.
    """
    summed, num_processes = (_same, 1) if alone else (_summed, _num_processes())
    total = LOSSES[name](logits.float(), targets.float(), weights.float(), summed)
    all_weight = summed(weights.sum().float().detach()) if total_weight is None else total_weight
    divisor = torch.as_tensor(all_weight, dtype=torch.float32, device=total.device)
    return total * (num_processes / divisor.clamp(min=torch.finfo(torch.float32).tiny))


def _same(values: Tensor) -> Tensor:
    return values


def _cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor, summed: Sum) -> Tensor:
    """Return the total cross-entropy of class indices in the only column."""
    known = torch.nan_to_num(targets[:, 0]).long()
    return weights[:, 0] @ F.cross_entropy(logits, known, reduction="none")


def _binary_cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor, summed: Sum) -> Tensor:
    """Return the total of columns of 0 and 1, each with its own logit."""
    known = torch.nan_to_num(targets)
    return (weights * F.binary_cross_entropy_with_logits(logits, known, reduction="none")).sum()


def _squared(logits: Tensor, targets: Tensor, weights: Tensor, summed: Sum) -> Tensor:
    return (weights * (logits - _known(targets, logits)) ** 2).sum()


def _huber(logits: Tensor, targets: Tensor, weights: Tensor, summed: Sum) -> Tensor:
    """Return the total of Huber's loss (1964): half the square up to 1, then linear."""
    return (weights * F.huber_loss(logits, _known(targets, logits), reduction="none")).sum()


def _known(targets: Tensor, logits: Tensor) -> Tensor:
    """Return targets, replaced by the logits where unknown, so that their gradient is 0."""
    return torch.where(torch.isnan(targets), logits.detach(), targets)


def _correlation(logits: Tensor, targets: Tensor, weights: Tensor, summed: Sum) -> Tensor:
    """Return 1 - Pearson's r over the rows of all processes, mean over columns, times the weight
    here.

    Each column's r is computed from sums over all processes, so that processes may differ in their
    number of rows. A column with fewer than three rows has its squared error instead. Published for
    DeepSTARR and DREAM 2022 in the Carbon report, D.4, for the rows of one process and of all.
    """
    of_column = _correlation_by_column(logits, targets, (weights > 0).float(), summed)
    return of_column.mean() * weights.sum()


def _correlation_by_column(logits: Tensor, targets: Tensor, known: Tensor, summed: Sum) -> Tensor:
    values = _known(targets, logits)
    sums = torch.stack([known.sum(0), (known * logits).sum(0), (known * values).sum(0)])
    number, *of = summed(sums)
    number = number.detach()
    x, y = (a - total / number.clamp(min=1) for a, total in zip((logits, values), of, strict=True))
    error = logits - values
    products = [(known * a * b).sum(0) for a, b in ((x, x), (y, y), (x, y), (error, error))]
    xx, yy, xy, squared = summed(torch.stack(products))
    r = xy / (xx * yy).clamp(min=_FLOOR).sqrt()
    return torch.where(number < LEAST_FOR_CORRELATION, squared / number.clamp(min=1), 1 - r)


def _correlation_and_huber(logits: Tensor, targets: Tensor, weights: Tensor, summed: Sum) -> Tensor:
    """Return 1 - r, which is scale-free, plus a fifth of Huber's loss, which sets the scale."""
    both = [of(logits, targets, weights, summed) for of in (_correlation, _huber)]
    return both[0] + _HUBER_SHARE * both[1]


LOSSES: dict[str, Total] = {
    "cross_entropy": _cross_entropy,
    "binary_cross_entropy": _binary_cross_entropy,
    "mse": _squared,
    "huber": _huber,
    "correlation": _correlation,
    "correlation_huber": _correlation_and_huber,
}


OF_A_WHOLE_BATCH = frozenset({"correlation", "correlation_huber"})
"""Losses that are not sums over rows: the mean over two halves differs from the whole."""


def _summed(values: Tensor) -> Tensor:
    """Return a sum over processes whose gradient is summed over processes too."""
    total: Tensor = values if _num_processes() == 1 else all_reduce(values)
    return total


def _num_processes() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
