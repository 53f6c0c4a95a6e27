"""Cross-entropy and Factorized Nucleotide Supervision over the 4,096 6-mers.

Legend: N tokens, V = 4,096 6-mers, z logits, p = softmax(z), y the true 6-mer, S_j the sum of p
over the 6-mers that agree with y at base j.

One differentiable function, `log_likelihoods`, gives log p(y) and the six log S_j; the objectives
are sums of these, so that CE, FNS and any blend share a code path. The gradient is written out:

    d log p(y) / dz_v = [v = y] - p_v          d log S_j / dz_v = p_v [v_j = y_j] / S_j - p_v

FNS is equations 7 and 8 of the Carbon technical report, with the mask of known bases added. Sums
of probabilities and logarithms are fp32 whatever the logits are (fp64 for fp64).
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

NUM_KMERS = 4096
_HALF = 64  # a 6-mer is (high, low): v = 64 * high + low, three bases each
_SMALLEST_SUM = 1e-30  # below this a sum of fp32 exponentials has lost its digits

Support = Literal["kmers", "vocabulary"]


class LogLikelihoods(NamedTuple):
    """Of N tokens, in nats: `token` (N,) is log p(y), `bases` (N, 6) is log S_j."""

    token: Tensor
    bases: Tensor


class LossSums(NamedTuple):
    """Sums over tokens, on the device; whoever reduces over ranks adds them, then divides once.

    Attributes:
        loss: scalar in nats, differentiable; the other sums are not.
        num_tokens: tokens that carry at least one trained base; what `loss` is divided by.
        chain_nats: -log p(y) over the tokens with six known bases, whatever the objective is.
        num_chain_bases: six for each of these tokens.
        marginal_nats: -log S_j over all known bases.
        num_marginal_bases: how many they are.
    """

    loss: Tensor
    num_tokens: Tensor
    chain_nats: Tensor
    num_chain_bases: Tensor
    marginal_nats: Tensor
    num_marginal_bases: Tensor

    @property
    def nats_per_token(self) -> Tensor:
        """Return the loss of a mean token, in the unit of the objective."""
        return self.loss / self.num_tokens.clamp(min=1)

    @property
    def nats_per_base(self) -> Tensor:
        """Return the surprise of a mean base through the chain: the likelihood of the sequence."""
        return self.chain_nats / self.num_chain_bases.clamp(min=1)

    @property
    def marginal_nats_per_base(self) -> Tensor:
        """Return the surprise of a mean base through the marginals: what FNS trains."""
        return self.marginal_nats / self.num_marginal_bases.clamp(min=1)


def next_kmers(labels: Tensor, known_bases: Tensor, first_kmer: int) -> tuple[Tensor, Tensor]:
    """Return what each position but the last has to predict, in the form the objectives take.

    Args:
        labels: (B, T) ids of true 6-mers, anything else where there is none; no base of such a
            token counts, whatever `known_bases` says.
        known_bases: (B, T) integers, six bits a token.
        first_kmer: `Vocabulary.first_kmer`.

    Returns:
        Of N = B * (T - 1) tokens: 6-mers (N,) int64 from 0, and known bases (N, 6) bool.
    """
    kmers = (labels[:, 1:] - first_kmer).flatten()
    is_kmer = (kmers >= 0) & (kmers < NUM_KMERS)
    bits = known_bases[:, 1:].reshape(-1, 1).int()
    known = (bits >> torch.arange(6, device=bits.device) & 1 == 1) & is_kmer[:, None]
    return torch.where(is_kmer, kmers, 0), known


def log_likelihoods(
    logits: Tensor, kmers: Tensor, *, first_kmer: int = 0, support: Support = "kmers"
) -> LogLikelihoods:
    """Return log p(y) and log S_j, exact for any logits and differentiable.

    Args:
        logits: (N, columns), any float type; columns `first_kmer` to `first_kmer + 4095` are those
            of the 6-mers.
        kmers: (N,) int64, the true 6-mers, from 0; where a base is unknown its entry is to be
            ignored.
        first_kmer: 0 for logits of the 6-mers alone; `Vocabulary.first_kmer` for all of them.
        support: what the softmax runs over: the 6-mers, or the whole vocabulary, in which the other
            columns belong to no base.
    """
    if support not in ("kmers", "vocabulary"):
        raise ValueError(f"support = {support!r}: give 'kmers' or 'vocabulary'")
    inside = logits[:, first_kmer : first_kmer + NUM_KMERS]
    token, bases = _LogLikelihoods.apply(inside, kmers)  # type: ignore[no-untyped-call]
    if support == "vocabulary":
        # p over the vocabulary is p over the 6-mers times the probability of any 6-mer.
        exact = working(logits)
        mass = working(inside).logsumexp(dim=1) - exact.logsumexp(dim=1)
        token, bases = token + mass, bases + mass[:, None]
    return LogLikelihoods(token, bases)


def nucleotide_loss(likelihoods: LogLikelihoods, known: Tensor, fns_weight: float) -> LossSums:
    """Return `(1 - w) CE + w FNS` summed over tokens, and what reports need.

    CE is -log p(y) where all six bases are known; FNS is the mean of -log S_j over the known bases
    of a token. Tokens of which a weight leaves nothing to train are not counted.

    Args:
        likelihoods: of N tokens.
        known: (N, 6) bool, bases to train.
        fns_weight: w, from 0 (CE) to 1 (FNS).
    """
    of_token, of_bases = objective_weights(known, fns_weight, likelihoods.token.dtype)
    token, bases = (part.detach() for part in likelihoods)
    whole = known.all(dim=1)
    return LossSums(
        -(of_token * likelihoods.token).sum() - (of_bases * likelihoods.bases).sum(),
        count_tokens(known, fns_weight),
        -(token * whole).sum(),
        6 * whole.sum(),
        -(bases * known).sum(),
        known.sum(),
    )


def objective_weights(
    known: Tensor, fns_weight: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return what log p(y) (N,) and log S_j (N, 6) weigh in the loss."""
    num_known = known.sum(dim=1, keepdim=True)
    of_token = (1 - fns_weight) * known.all(dim=1).to(dtype)
    return of_token, fns_weight * known.to(dtype) / num_known.clamp(min=1)


def count_tokens(known: Tensor, fns_weight: float) -> Tensor:
    """Return how many tokens have something to train."""
    return (known.any(dim=1) if fns_weight > 0 else known.all(dim=1)).sum()


class _LogLikelihoods(torch.autograd.Function):
    """log p(y) and log S_j with the gradient written out."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, kmers: Tensor) -> tuple[Tensor, Tensor]:
        sums, likelihoods = kmer_sums(working(logits), kmers)
        ctx.save_for_backward(kmers, logits[sums.hard], *sums)
        ctx.dtype = logits.dtype
        return likelihoods.token, likelihoods.bases

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        kmers, hard_logits, *sums = ctx.saved_tensors
        grad = logits_gradient(KmerSums(*sums), kmers, working(hard_logits), *gradients)
        return grad.to(ctx.dtype), None


class KmerSums(NamedTuple):
    """Sums of a softmax over the 6-mers by the bases of the true one, of N tokens.

    Attributes:
        exponentials: (N, 4096), exp(z - max z).
        total: (N, 1), their sum.
        agreeing: (N, 6), S_j; it may underflow.
        hard: indices of the tokens for which it does; few, mostly none.
    """

    exponentials: Tensor
    total: Tensor
    agreeing: Tensor
    hard: Tensor


def kmer_sums(z: Tensor, kmers: Tensor) -> tuple[KmerSums, LogLikelihoods]:
    """Sum rows (first three bases) and columns (last three) of the 64 x 64 view of exp(z).

    The log-likelihoods are exact for any logits.
    """
    top = z.amax(dim=1, keepdim=True)
    exponentials = torch.sub(z, top).exp_()
    square = exponentials.view(-1, _HALF, _HALF)
    rows, columns = square.sum(dim=2), square.sum(dim=1)
    total = rows.sum(dim=1, keepdim=True)
    high, low = _agreement(kmers)
    # Sums of products and not matrix products: those may run in bf16 (autocast) or TF32.
    halves = (high * rows[:, None, :]).sum(dim=2), (low * columns[:, None, :]).sum(dim=2)
    agreeing = torch.cat(halves, dim=1) / total
    token = (z.gather(1, kmers[:, None]) - top - total.log())[:, 0]
    bases = agreeing.log()
    hard = (agreeing < _SMALLEST_SUM).any(dim=1).nonzero()[:, 0]
    if len(hard):
        bases[hard] = _log_sums(z[hard], kmers[hard])
    return KmerSums(exponentials, total, agreeing, hard), LogLikelihoods(token, bases)


def logits_gradient(
    sums: KmerSums, kmers: Tensor, hard_logits: Tensor, grad_token: Tensor, grad_bases: Tensor
) -> Tensor:
    """Return dL/dz (N, 4096) of a loss with these derivatives by log p(y) and log S_j."""
    high, low = _agreement(kmers)
    weights = (grad_bases / sums.agreeing.clamp(min=_SMALLEST_SUM) / sums.total)[:, :, None]
    by_high = (weights[:, :3] * high).sum(dim=1)
    by_low = (weights[:, 3:] * low).sum(dim=1)
    by_high -= ((grad_token + grad_bases.sum(dim=1)) / sums.total[:, 0])[:, None]
    grad = (by_high[:, :, None] + by_low[:, None, :]).view_as(sums.exponentials)
    grad = grad.mul_(sums.exponentials)
    grad.scatter_add_(1, kmers[:, None], grad_token[:, None].to(grad.dtype))
    if len(sums.hard):
        few = (kmers[sums.hard], grad_token[sums.hard], grad_bases[sums.hard])
        grad[sums.hard] = _hard_gradient(hard_logits, *few)
    return grad


def working(values: Tensor) -> Tensor:
    """Return fp32 for whatever is not fp64."""
    return values if values.dtype == torch.float64 else values.float()


def _digits_of_half(device: torch.device) -> Tensor:
    """Return (64, 3): the three digits of every half of a 6-mer."""
    places = torch.tensor([16, 4, 1], device=device)
    return torch.arange(_HALF, device=device)[:, None] // places % 4


def _agreement(kmers: Tensor) -> tuple[Tensor, Tensor]:
    """Return (N, 3, 64) twice: which high and low halves share each base of the true 6-mer."""
    digits = _digits_of_half(kmers.device)
    table = (digits[:, None, :] == digits[None, :, :]).permute(0, 2, 1)  # (true, base, half)
    return table[kmers // _HALF], table[kmers % _HALF]


def _agreeing(kmers: Tensor) -> Tensor:
    """Return (N, 6, 4096) bool: which 6-mers share each base of the true one. For few tokens."""
    places = 4 ** torch.arange(5, -1, -1, device=kmers.device)
    everything = torch.arange(NUM_KMERS, device=kmers.device)[:, None] // places % 4
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
