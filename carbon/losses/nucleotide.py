"""Cross-entropy and Factorized Nucleotide Supervision over the 4,096 6-mers.

Legend: N tokens, V = 4,096 6-mers, z logits, p = softmax(z), y the true 6-mer, S_j the sum of p
over the 6-mers that agree with y at base j.

One differentiable function, `log_likelihoods`, gives log p(y) and the six log S_j; the objectives
are sums of these, so that CE, FNS and any blend share a code path. The gradient is written out:

    d log p(y) / dz_v = [v = y] - p_v          d log S_j / dz_v = p_v [v_j = y_j] / S_j - p_v

FNS is equations 7 and 8 of the Carbon technical report, with the mask of known bases added. Sums
of probabilities and logarithms are fp32 whatever the logits are.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

_HALF = 64  # a 6-mer is (high, low): v = 64 * high + low, three bases each
_SMALLEST_SUM = 1e-30  # below this a sum of fp32 exponentials has lost its digits


class LogLikelihoods(NamedTuple):
    """Of N tokens, in nats: `token` (N,) is log p(y), `bases` (N, 6) is log S_j."""

    token: Tensor
    bases: Tensor


class LossSum(NamedTuple):
    """Summed loss in nats and how many tokens it covers; divided once, over all ranks.

    Attributes:
        total_nats: scalar, differentiable.
        num_tokens: scalar int64, tokens that carry at least one trained base.
    """

    total_nats: Tensor
    num_tokens: Tensor


def log_likelihoods(logits: Tensor, kmers: Tensor) -> LogLikelihoods:
    """Return log p(y) and log S_j, exact for any logits and differentiable.

    Args:
        logits: (N, 4096), any float type.
        kmers: (N,) int64, the true 6-mers; where a base is unknown its entry is to be ignored.
    """
    token, bases = _LogLikelihoods.apply(logits, kmers)  # type: ignore[no-untyped-call]
    return LogLikelihoods(token, bases)


def nucleotide_loss(likelihoods: LogLikelihoods, known: Tensor, fns_weight: float) -> LossSum:
    """Return `(1 - w) CE + w FNS` summed over tokens.

    CE is -log p(y) where all six bases are known; FNS is the mean of -log S_j over the known bases
    of a token. Tokens of which a weight of one leaves nothing to train are not counted.

    Args:
        likelihoods: of N tokens.
        known: (N, 6) bool, bases to train.
        fns_weight: w, from 0 (CE) to 1 (FNS).
    """
    num_known = known.sum(dim=1)
    whole = num_known == known.shape[1]
    fns = -(likelihoods.bases * known).sum(dim=1) / num_known.clamp(min=1)
    ce = torch.where(whole, -likelihoods.token, 0.0)
    counted = num_known > 0 if fns_weight > 0 else whole
    per_token = (1 - fns_weight) * ce + fns_weight * fns
    return LossSum(torch.where(counted, per_token, 0.0).sum(), counted.sum())


def marginals(logits: Tensor) -> Tensor:
    """Return log P_j(b), the distribution of each base of the next 6-mer: (N, 4096) -> (N, 6, 4).

    Bases are in the order ATCG.
    """
    log_p = torch.log_softmax(logits.float(), dim=-1).view(-1, 4, 4, 4, 4, 4, 4)
    rows = [log_p.logsumexp(dim=[d for d in range(1, 7) if d != j]) for j in range(1, 7)]
    return torch.stack(rows, dim=1)


def chain(logits: Tensor, kmers: Tensor, known: Tensor) -> Tensor:
    """Return log p(b_j | known bases before j) of the true bases: (N, 6), zero where unknown.

    It is the mass of the 6-mers that agree with the known bases up to j over the mass of those that
    agree up to j - 1; an unknown base is summed over. The sum of a row is the log-likelihood of the
    token's known bases, and log p(y) where all six are known.

    Args:
        logits: (N, 4096).
        kmers: (N,) int64, the true 6-mers.
        known: (N, 6) bool.
    """
    remaining = torch.log_softmax(logits.float(), dim=-1)
    mass = torch.zeros(len(logits), device=logits.device)
    steps = []
    for j in range(6):
        remaining = remaining.view(len(logits), 4, remaining.shape[1] // 4)
        digit = (kmers // 4 ** (5 - j)) % 4
        chosen = remaining.gather(1, digit.view(-1, 1, 1).expand(-1, 1, remaining.shape[2]))[:, 0]
        if bool(known[:, j].all()):
            remaining = chosen
        else:
            remaining = torch.where(known[:, j, None], chosen, remaining.logsumexp(dim=1))
        narrowed = remaining.logsumexp(dim=1)
        steps.append(torch.where(known[:, j], narrowed - mass, 0.0))
        mass = narrowed
    return torch.stack(steps, dim=1)


def _digits_of_half() -> Tensor:
    """Return (64, 3): the three digits of every half of a 6-mer."""
    return torch.arange(_HALF)[:, None] // torch.tensor([16, 4, 1]) % 4


def _agreement(kmers: Tensor) -> tuple[Tensor, Tensor]:
    """Return (N, 3, 64) twice: which high and low halves share each base of the true 6-mer."""
    digits = _digits_of_half().to(kmers.device)
    table = (digits[:, None, :] == digits[None, :, :]).permute(0, 2, 1)  # (true, base, half)
    return table[kmers // _HALF], table[kmers % _HALF]


class _LogLikelihoods(torch.autograd.Function):
    """log p(y) and log S_j through the sums of rows and columns of a 64 x 64 view of p."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, kmers: Tensor) -> tuple[Tensor, Tensor]:
        z = logits.float()
        top = z.amax(dim=1, keepdim=True)
        p = torch.sub(z, top).exp_()
        total = p.sum(dim=1, keepdim=True)
        token = z.gather(1, kmers[:, None])[:, 0] - top[:, 0] - total.log()[:, 0]
        p /= total
        sums = _sums_of_agreeing(p, kmers)
        bases = sums.log()
        hard = (sums < _SMALLEST_SUM).any(dim=1).nonzero()[:, 0]
        if len(hard):
            bases[hard] = _log_sums(z[hard], kmers[hard])
        ctx.save_for_backward(p, kmers, sums, hard, logits[hard])
        ctx.dtype = logits.dtype
        return token, bases

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        grad_token, grad_bases = gradients
        p, kmers, sums, hard, hard_logits = ctx.saved_tensors
        high, low = _agreement(kmers)
        weights = (grad_bases / sums.clamp(min=_SMALLEST_SUM))[:, None, :]
        by_high = weights[:, :, :3] @ high.to(p.dtype)
        by_low = weights[:, :, 3:] @ low.to(p.dtype)
        by_high -= (grad_token + grad_bases.sum(dim=1))[:, None, None]
        grad = (by_high.transpose(1, 2) + by_low).view_as(p).mul_(p)
        grad.scatter_add_(1, kmers[:, None], grad_token[:, None])
        if len(hard):
            grad[hard] = _hard_gradient(
                hard_logits.float(), kmers[hard], grad_token[hard], grad_bases[hard]
            )
        return grad.to(ctx.dtype), None


def _sums_of_agreeing(p: Tensor, kmers: Tensor) -> Tensor:
    """Return S_j (N, 6) from the sums of rows (first three bases) and columns (last three)."""
    square = p.view(-1, _HALF, _HALF)
    high, low = _agreement(kmers)
    rows = (high.to(p.dtype) @ square.sum(dim=2)[:, :, None])[:, :, 0]
    columns = (low.to(p.dtype) @ square.sum(dim=1)[:, :, None])[:, :, 0]
    return torch.cat([rows, columns], dim=1)


def _agreeing(kmers: Tensor) -> Tensor:
    """Return (N, 6, 4096) bool: which 6-mers share each base of the true one. For few tokens."""
    places = 4 ** torch.arange(5, -1, -1, device=kmers.device)
    everything = torch.arange(_HALF * _HALF, device=kmers.device)[:, None] // places % 4
    return ((kmers[:, None] // places % 4)[:, None, :] == everything).transpose(1, 2)


def _log_sums(z: Tensor, kmers: Tensor) -> Tensor:
    """Return log S_j in the log domain, for tokens so unlikely that S_j itself underflows."""
    inside = torch.where(_agreeing(kmers), z[:, None, :], -torch.inf)
    return inside.logsumexp(dim=2) - z.logsumexp(dim=1, keepdim=True)


def _hard_gradient(z: Tensor, kmers: Tensor, grad_token: Tensor, grad_bases: Tensor) -> Tensor:
    """Return the gradient where p_v / S_j is a quotient of underflows: a softmax inside a group."""
    p = z.softmax(dim=1)
    inside = torch.where(_agreeing(kmers), z[:, None, :], -torch.inf).softmax(dim=2)
    grad = (grad_bases[:, :, None] * inside).sum(dim=1)
    grad -= p * (grad_token + grad_bases.sum(dim=1))[:, None]
    return grad.scatter_add(1, kmers[:, None], grad_token[:, None])
