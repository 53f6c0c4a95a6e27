"""Cross-entropy and Factorized Nucleotide Supervision over the 4,096 6-mers.

Legend: N tokens, V = 4,096 6-mers, z logits, p = softmax(z), y the true 6-mer, S_j the sum of p
over the 6-mers that match y at base j.

A single differentiable function, `log_likelihoods`, returns log p(y), the six log S_j and, on
request, U, the mean of log p(v) over all 6-mers v. All objectives are weighted sums of these, and
so share a code path. The gradient is explicit:

    d log p(y) / dz_v = [v = y] - p_v          d log S_j / dz_v = p_v [v_j = y_j] / S_j - p_v
    dU / dz_v = 1 / V - p_v

FNS is equations 7 and 8 of the Carbon technical report, plus the mask of known bases. Sums of
probabilities and logarithms are fp32 for any dtype of the logits (fp64 for fp64).
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from carbon.losses.objectives import Objective
from carbon.losses.soft_mask import LossFactors

NUM_KMERS = 4096
_HALF = 64  # a 6-mer is (high, low): v = 64 * high + low, three bases each
_SMALLEST_SUM = 1e-30  # below this a sum of fp32 exponentials has lost its digits

Support = Literal["kmers", "vocabulary"]


class LogLikelihoods(NamedTuple):
    """Log-likelihoods of N tokens in nats; also weights of these in a sum, or derivatives by them.

    Attributes:
        token: (N,), log p(y).
        bases: (N, 6), log S_j.
        uniform: (N,), the mean of log p(v) over the 6-mers; None unless requested.
    """

    token: Tensor
    bases: Tensor
    uniform: Tensor | None = None

    @property
    def per_token(self) -> Tensor:
        """Return the sum over the numbers of each token (N,)."""
        sums = self.token + self.bases.sum(dim=1)
        return sums if self.uniform is None else sums + self.uniform

    def plus(self, nats: Tensor) -> "LogLikelihoods":
        """Add nats (N,) to every number of a token."""
        uniform = None if self.uniform is None else self.uniform + nats
        return LogLikelihoods(self.token + nats, self.bases + nats[:, None], uniform)

    def of(self, tokens: Tensor) -> "LogLikelihoods":
        """Return the numbers of selected tokens, by their indices or a mask."""
        uniform = None if self.uniform is None else self.uniform[tokens]
        return LogLikelihoods(self.token[tokens], self.bases[tokens], uniform)

    def __neg__(self) -> "LogLikelihoods":
        """Return the negative of all numbers."""
        uniform = None if self.uniform is None else -self.uniform
        return LogLikelihoods(-self.token, -self.bases, uniform)


class LossSums(NamedTuple):
    """Sums over tokens, on the device; a reduction over ranks adds them, then divides once.

    Attributes:
        loss: scalar in nats, differentiable; the other sums are not.
        num_tokens: tokens with at least one trained base; the divisor of `loss`.
        chain_nats: -log p(y) over the tokens with six known bases, for any objective.
        num_chain_bases: six for each of these tokens.
        marginal_nats: -log S_j over all known bases.
        num_marginal_bases: number of known bases.
    """

    loss: Tensor
    num_tokens: Tensor
    chain_nats: Tensor
    num_chain_bases: Tensor
    marginal_nats: Tensor
    num_marginal_bases: Tensor

    @property
    def nats_per_token(self) -> Tensor:
        """Return the mean loss of a token, in the unit of the objective."""
        return self.loss / self.num_tokens.clamp(min=1)

    @property
    def nats_per_base(self) -> Tensor:
        """Return the mean surprise of a base by the chain: the likelihood of the sequence."""
        return self.chain_nats / self.num_chain_bases.clamp(min=1)

    @property
    def marginal_nats_per_base(self) -> Tensor:
        """Return the mean surprise of a base by the marginals, which FNS trains."""
        return self.marginal_nats / self.num_marginal_bases.clamp(min=1)

    def means(self) -> dict[str, Tensor]:
        """Return the means by the names that `metrics.jsonl` has for them."""
        return {
            "loss": self.nats_per_token,
            "nats_per_base": self.nats_per_base,
            "marginal_nats_per_base": self.marginal_nats_per_base,
        }


def next_kmers(labels: Tensor, known_bases: Tensor, first_kmer: int) -> tuple[Tensor, Tensor]:
    """Return the targets of each position except the last, in the form the objectives take.

    Args:
        labels: (B, T) ids of true 6-mers, or any other id; no base of such a token counts,
            regardless of `known_bases`.
        known_bases: (B, T) integers, six bits a token.
        first_kmer: `Vocabulary.first_kmer`.

    Returns:
        For N = B * (T - 1) tokens: 6-mers (N,) int64 from 0, and known bases (N, 6) bool.
    """
    kmers = (labels[:, 1:] - first_kmer).flatten()
    is_kmer = (kmers >= 0) & (kmers < NUM_KMERS)
    bits = known_bases[:, 1:].reshape(-1, 1).int()
    known = (bits >> torch.arange(6, device=bits.device) & 1 == 1) & is_kmer[:, None]
    return torch.where(is_kmer, kmers, 0), known


def log_likelihoods(
    logits: Tensor,
    kmers: Tensor,
    *,
    first_kmer: int = 0,
    support: Support = "kmers",
    uniform: bool = False,
) -> LogLikelihoods:
    """Return log p(y) and log S_j, exact for any logits and differentiable.

    Args:
        logits: (N, columns), any float type; columns `first_kmer` to `first_kmer + 4095` are the
            6-mers.
        kmers: (N,) int64, the true 6-mers, from 0; ignore the entries of unknown bases.
        first_kmer: 0 for logits of only the 6-mers; `Vocabulary.first_kmer` for all of them.
        support: support of the softmax: the 6-mers, or the whole vocabulary, whose other columns
            belong to no base.
        uniform: also compute the mean of log p(v) over the 6-mers, for objectives that weight it.
    """
    if support not in ("kmers", "vocabulary"):
        raise ValueError(f"support = {support!r}: give 'kmers' or 'vocabulary'")
    inside = logits[:, first_kmer : first_kmer + NUM_KMERS]
    likelihoods = LogLikelihoods(
        *_LogLikelihoods.apply(inside, kmers, uniform)  # type: ignore[no-untyped-call]
    )
    if support == "vocabulary":
        # p over the vocabulary is p over the 6-mers times the probability of any 6-mer.
        exact = working(logits)
        likelihoods = likelihoods.plus(working(inside).logsumexp(dim=1) - exact.logsumexp(dim=1))
    return likelihoods


def nucleotide_loss(
    likelihoods: LogLikelihoods,
    known: Tensor,
    objective: Objective,
    factors: LossFactors | None = None,
) -> LossSums:
    """Return the objective summed over tokens, and the sums that reports need.

    Tokens without anything to train under the objective's weights are not counted.

    Args:
        likelihoods: of N tokens, with `uniform` if the objective weights it.
        known: (N, 6) bool, bases to train.
        objective: objective to minimise.
        factors: factors of each token's terms in `loss`, and in no other sum; None for 1.

    Raises:
        ValueError: the objective weights `uniform` and the likelihoods lack it.
    """
    weights = token_weights(known, objective, likelihoods.token.dtype, factors)
    loss = -(weights.token * likelihoods.token).sum() - (weights.bases * likelihoods.bases).sum()
    if weights.uniform is not None:
        if likelihoods.uniform is None:
            raise ValueError("the objective is uniform in part: use log_likelihoods(uniform=True)")
        loss = loss - (weights.uniform * likelihoods.uniform).sum()
    token, bases = likelihoods.token.detach(), likelihoods.bases.detach()
    whole = known.all(dim=1)
    return LossSums(
        loss,
        count_tokens(known, objective),
        -(token * whole).sum(),
        6 * whole.sum(),
        -(bases * known).sum(),
        known.sum(),
    )


def token_weights(
    known: Tensor, objective: Objective, dtype: torch.dtype, factors: LossFactors | None = None
) -> LogLikelihoods:
    """Return the weight of every log-likelihood of every token; the loss is minus their sum."""
    num_known = known.sum(dim=1, keepdim=True)
    whole, bases = known.all(dim=1).to(dtype), known.to(dtype)
    if factors is not None:
        whole, bases = whole * factors.token.to(dtype), bases * factors.bases.to(dtype)
    return LogLikelihoods(
        objective.token * whole,
        objective.bases * bases / num_known.clamp(min=1),
        objective.uniform * whole if objective.uniform else None,
    )


def count_tokens(known: Tensor, objective: Objective) -> Tensor:
    """Return the number of tokens with something to train."""
    return (known.any(dim=1) if objective.bases > 0 else known.all(dim=1)).sum()


class _LogLikelihoods(torch.autograd.Function):
    """The likelihoods of `kmer_sums` with an explicit gradient."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, kmers: Tensor, uniform: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        sums, likelihoods = kmer_sums(working(logits), kmers, uniform)
        ctx.save_for_backward(kmers, logits[sums.hard], *sums)
        ctx.dtype = logits.dtype
        return likelihoods.token, likelihoods.bases, likelihoods.uniform

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None]:
        kmers, hard_logits, *sums = ctx.saved_tensors
        by = LogLikelihoods(*gradients)
        grad = logits_gradient(KmerSums(*sums), kmers, working(hard_logits), by)
        return grad.to(ctx.dtype), None, None


class KmerSums(NamedTuple):
    """Sums of a softmax over the 6-mers by the bases of the true one, for N tokens.

    Attributes:
        exponentials: (N, 4096), exp(z - max z).
        total: (N, 1), their sum.
        agreeing: (N, 6), S_j; it may underflow.
        hard: indices of the tokens whose S_j underflows; usually empty.
    """

    exponentials: Tensor
    total: Tensor
    agreeing: Tensor
    hard: Tensor


def kmer_sums(z: Tensor, kmers: Tensor, uniform: bool) -> tuple[KmerSums, LogLikelihoods]:
    """Sum rows (first three bases) and columns (last three) of the 64 x 64 view of exp(z).

    The log-likelihoods are exact for any logits; `uniform` requests the mean over all of them.
    """
    top = z.amax(dim=1, keepdim=True)
    exponentials = torch.sub(z, top).exp_()
    square = exponentials.view(-1, _HALF, _HALF)
    rows, columns = square.sum(dim=2), square.sum(dim=1)
    total = rows.sum(dim=1, keepdim=True)
    high, low = _agreement(kmers)
    # Sums of products, because matrix products may run in bf16 (autocast) or TF32.
    halves = (high * rows[:, None, :]).sum(dim=2), (low * columns[:, None, :]).sum(dim=2)
    agreeing = torch.cat(halves, dim=1) / total
    token = (z.gather(1, kmers[:, None]) - top - total.log())[:, 0]
    mean = (z.mean(dim=1, keepdim=True) - top - total.log())[:, 0] if uniform else None
    bases = agreeing.log()
    hard = (agreeing < _SMALLEST_SUM).any(dim=1).nonzero()[:, 0]
    if len(hard):
        bases[hard] = _log_sums(z[hard], kmers[hard])
    return KmerSums(exponentials, total, agreeing, hard), LogLikelihoods(token, bases, mean)


def logits_gradient(
    sums: KmerSums, kmers: Tensor, hard_logits: Tensor, by: LogLikelihoods
) -> Tensor:
    """Return dL/dz (N, 4096) of a loss whose derivatives by the log-likelihoods are `by`."""
    high, low = _agreement(kmers)
    weights = (by.bases / sums.agreeing.clamp(min=_SMALLEST_SUM) / sums.total)[:, :, None]
    by_high = (weights[:, :3] * high).sum(dim=1)
    by_low = (weights[:, 3:] * low).sum(dim=1)
    by_high -= (by.per_token / sums.total[:, 0])[:, None]
    grad = (by_high[:, :, None] + by_low[:, None, :]).view_as(sums.exponentials)
    grad = grad.mul_(sums.exponentials)
    grad.scatter_add_(1, kmers[:, None], by.token[:, None].to(grad.dtype))
    if len(sums.hard):
        grad[sums.hard] = _hard_gradient(hard_logits, kmers[sums.hard], by.of(sums.hard))
    if by.uniform is not None:
        grad += (by.uniform / NUM_KMERS)[:, None]
    return grad


def working(values: Tensor) -> Tensor:
    """Return fp32 values, or fp64 unchanged."""
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
    """Return log S_j in the log domain, for tokens so unlikely that S_j underflows."""
    inside = torch.where(_agreeing(kmers), z[:, None, :], -torch.inf)
    return inside.logsumexp(dim=2) - z.logsumexp(dim=1, keepdim=True)


def _hard_gradient(z: Tensor, kmers: Tensor, by: LogLikelihoods) -> Tensor:
    """Return the gradient where p_v / S_j is a quotient of underflows: a softmax inside a group.

    It does not include the gradient of U, which is the same for all 6-mers.
    """
    p = z.softmax(dim=1)
    inside = torch.where(_agreeing(kmers), z[:, None, :], -torch.inf).softmax(dim=2)
    grad = (by.bases[:, :, None] * inside).sum(dim=1)
    grad -= p * by.per_token[:, None]
    return grad.scatter_add(1, kmers[:, None], by.token[:, None])
