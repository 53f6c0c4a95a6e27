"""What is made small: each loss a total over rows, divided in one place.

Every loss is computed for targets, (rows, columns) with NaN where unknown, which count nothing.
What `mean_loss` returns, averaged over processes, is the loss of all their rows; and the average of
its gradients, as DDP takes it, is the gradient of that. So numbers of processes, of rows on each
and of accumulated parts change nothing, but for the correlation, which is one of a whole batch.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

LEAST_FOR_CORRELATION = 3
"""Of two rows the correlation is always 1 or -1, and its gradient 0."""
_FLOOR = 1e-8  # of the product of two sums of squares, as published
_HUBER_SHARE = 0.2  # as published for DREAM 2022

Sum = Callable[[Tensor], Tensor]
Total = Callable[[Tensor, Tensor, Tensor, Sum], Tensor]
"""From logits (rows, outputs), targets (rows, columns), their weights and what sums over processes
to a weighted total."""


def mean_loss(
    name: str,
    logits: Tensor,
    targets: Tensor,
    weights: Tensor,
    total_weight: float | Tensor | None = None,
    *,
    alone: bool = False,
) -> Tensor:
    """Return a loss of which the mean over processes is that of all rows.

    Args:
        name: key of `LOSSES`.
        logits: (rows, outputs), of any floating type; computed in float32.
        targets: (rows, columns), NaN where unknown.
        weights: (rows, columns) of targets, 0 where unknown.
        total_weight: of all parts that are accumulated to one step, on all processes; of this part
            if none is given. 0 gives a loss of 0.
        alone: other processes have no part in it, and are not waited for.
    """
    summed, num_processes = (_same, 1) if alone else (_summed, _num_processes())
    total = LOSSES[name](logits.float(), targets.float(), weights.float(), summed)
    whole = summed(weights.sum().float().detach()) if total_weight is None else total_weight
    divisor = torch.as_tensor(whole, dtype=torch.float32, device=total.device)
    return total * (num_processes / divisor.clamp(min=torch.finfo(torch.float32).tiny))


def _same(values: Tensor) -> Tensor:
    return values


def _cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor, summed: Sum) -> Tensor:
    """Of one of many classes, an index in the one column."""
    known = torch.nan_to_num(targets[:, 0]).long()
    return weights[:, 0] @ F.cross_entropy(logits, known, reduction="none")


def _binary_cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor, summed: Sum) -> Tensor:
    """Of columns of 0 and 1, each by a logit of its own."""
    known = torch.nan_to_num(targets)
    return (weights * F.binary_cross_entropy_with_logits(logits, known, reduction="none")).sum()


def _squared(logits: Tensor, targets: Tensor, weights: Tensor, summed: Sum) -> Tensor:
    return (weights * (logits - _known(targets, logits)) ** 2).sum()


def _huber(logits: Tensor, targets: Tensor, weights: Tensor, summed: Sum) -> Tensor:
    """Return the total of Huber's loss (1964): half the square up to 1, then straight."""
    return (weights * F.huber_loss(logits, _known(targets, logits), reduction="none")).sum()


def _known(targets: Tensor, logits: Tensor) -> Tensor:
    """Return targets; where they are unknown, the logits, so that nothing pulls."""
    return torch.where(torch.isnan(targets), logits.detach(), targets)


def _correlation(logits: Tensor, targets: Tensor, weights: Tensor, summed: Sum) -> Tensor:
    """Return 1 - Pearson's r of the rows of all processes, columns' mean, times the weight here.

    Each column's r is made of sums over all processes, so that none needs as many rows as another.
    A column of fewer than three rows has its squared error instead. Published for DeepSTARR and
    DREAM 2022 in the Carbon report, D.4, there for the rows of one process and of all.
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
    """Of 1 - r, which knows no scale, with a fifth of Huber's loss, which does."""
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
"""Losses that are no sums over rows: the mean of those of two halves is another number."""


class _SumOverProcesses(torch.autograd.Function):
    """A sum over processes; the gradient, which each process has a part of, is summed as well."""

    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:
        return _over_processes(values)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return _over_processes(gradient)


def _summed(values: Tensor) -> Tensor:
    found: Tensor = _SumOverProcesses.apply(values)  # type: ignore[no-untyped-call]
    return found


def _over_processes(values: Tensor) -> Tensor:
    if _num_processes() == 1:
        return values
    values = values.clone()
    dist.all_reduce(values)
    return values


def _num_processes() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
