"""Triton kernel of the fused head's loss: one pass over the logits of a chunk, in place.

A program holds the 4,096 logits of one token in registers as a square of (high, low) halves of the
6-mer. Every marginal is then a sum over rows or columns, and every logit is loaded once and
overwritten once by its gradient. `fused.chunk_loss` is the same in plain PyTorch.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from carbon.losses.likelihoods import NUM_KMERS, LossSums, count_tokens
from carbon.losses.objectives import Objective
from carbon.losses.soft_mask import LossFactors


def chunk_loss(
    logits: Tensor,
    kmers: Tensor,
    known: Tensor,
    objective: Objective,
    factors: LossFactors | None,
    with_gradient: bool,
) -> tuple[LossSums, Tensor | None]:
    """Return the sums of a chunk and dL/dlogits, which overwrites the logits.

    Args:
        logits: (N, 4096) fp32 or bf16, contiguous; overwritten if `with_gradient`.
        kmers: (N,) int64.
        known: (N, 6) bool.
        objective: objective to minimise.
        factors: factors of each token's terms in the loss; None for 1.
        with_gradient: compute the gradient; otherwise only the sums.
    """
    if logits.shape != (len(kmers), NUM_KMERS) or not logits.is_contiguous():
        raise ValueError(f"logits must be ({len(kmers)}, {NUM_KMERS}) and contiguous")
    kmers, known = kmers.contiguous(), known.bool().contiguous()
    nats = torch.empty(3, len(kmers), dtype=torch.float32, device=logits.device)
    token_factors, bases_factors = (
        (nats, nats)  # not read
        if factors is None
        else (each.float().contiguous() for each in factors)
    )
    if len(kmers):
        _token_loss[(len(kmers),)](
            logits,
            kmers,
            known.view(torch.uint8),
            token_factors,
            bases_factors,
            nats,
            len(kmers),
            objective.token,
            objective.bases,
            objective.uniform,
            WITH_GRADIENT=with_gradient,
            WITH_UNIFORM=objective.uniform > 0,
            WITH_FACTORS=factors is not None,
            **LAUNCH,
        )
    loss, chain_nats, marginal_nats = nats.sum(dim=1).unbind()
    sums = LossSums(
        loss,
        count_tokens(known, objective),
        chain_nats,
        6 * known.all(dim=1).sum(),
        marginal_nats,
        known.sum(),
    )
    return sums, logits if with_gradient else None


# The fastest launch with verified results on an H200, although it spills registers: four programs
# fit on a multiprocessor. Without spilling only one fits, which is slower. ROCm's compiler has no
# such limit.
LAUNCH = {"num_warps": 4} | ({} if torch.version.hip else {"maxnreg": 128})
HALF = tl.constexpr(64)  # 6-mers are 64 x 64: three bases and three
SMALLEST_SUM = tl.constexpr(1e-30)  # below this a sum of fp32 exponentials has lost its digits


@triton.jit
def _token_loss(
    logits_ptr,
    kmers_ptr,
    known_ptr,
    token_factors_ptr,  # (N,) and (N, 6) fp32, if WITH_FACTORS
    bases_factors_ptr,
    nats_ptr,  # (3, N): the loss, -log p(y) if all bases are known, the sum of -log S_j
    num_tokens,
    token_weight,
    bases_weight,
    uniform_weight,
    WITH_GRADIENT: tl.constexpr,
    WITH_UNIFORM: tl.constexpr,
    WITH_FACTORS: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    known_ptr += token * 6
    bases_factors_ptr += token * 6
    logits_ptr += token * HALF * HALF
    half = tl.arange(0, HALF)
    at = half[:, None] * HALF + half[None, :]
    kmer = tl.load(kmers_ptr + token).to(tl.int32)
    z_true = tl.load(logits_ptr + kmer).to(tl.float32)
    z = tl.load(logits_ptr + at).to(tl.float32)
    top = tl.max(z)
    exponentials = tl.exp(z - top)
    rows = tl.sum(exponentials, axis=1)
    columns = tl.sum(exponentials, axis=0)
    total = tl.sum(rows)
    log_total = top + tl.log(total)
    log_token = z_true - log_total
    if WITH_UNIFORM:
        log_mean = tl.sum(z) / (HALF * HALF) - log_total

    num_known, num_trained = _count(known_ptr, bases_factors_ptr, WITH_FACTORS)
    of_token = tl.where(num_known == 6, token_weight, 0.0)
    of_uniform = tl.where(num_known == 6, uniform_weight, 0.0) if WITH_UNIFORM else 0.0
    of_base = bases_weight / tl.maximum(num_known, 1.0)
    if WITH_FACTORS:
        token_factor = tl.load(token_factors_ptr + token)
        of_token *= token_factor
        of_uniform *= token_factor
    marginal_nats, trained_nats, by_row, by_column, smallest = _soft(
        rows,
        columns,
        total,
        known_ptr,
        bases_factors_ptr,
        kmer,
        half,
        of_base,
        WITH_FACTORS,
    )
    # dL/dz = p (all weights - by_row - by_column) - of_token [v = y] - of_uniform / 4096
    by_row -= of_token + of_base * num_trained + of_uniform
    grad = exponentials / -total * (by_row[:, None] + by_column[None, :])
    grad -= tl.where(at == kmer, of_token, 0.0)
    if WITH_UNIFORM:
        grad -= of_uniform / (HALF * HALF)
    if smallest < SMALLEST_SUM:
        z = tl.load(logits_ptr + at).to(tl.float32)
        hard_nats, hard_trained_nats, grad = _hard(
            grad,
            z,
            log_total,
            rows,
            columns,
            total,
            known_ptr,
            bases_factors_ptr,
            kmer,
            half,
            of_base,
            WITH_FACTORS,
        )
        marginal_nats += hard_nats
        trained_nats += hard_trained_nats

    loss = of_base * trained_nats - of_token * log_token
    if WITH_UNIFORM:
        loss -= of_uniform * log_mean
    tl.store(nats_ptr + token, loss)
    tl.store(nats_ptr + num_tokens + token, tl.where(num_known == 6, -log_token, 0.0))
    tl.store(nats_ptr + 2 * num_tokens + token, marginal_nats)
    if WITH_GRADIENT:
        tl.store(logits_ptr + at, grad.to(logits_ptr.dtype.element_ty))


@triton.jit
def _count(known_ptr, factors_ptr, WITH_FACTORS: tl.constexpr):
    """Number of known bases of a token, and the sum of their factors."""
    num_known = 0.0
    num_trained = 0.0
    for j in tl.static_range(6):
        known = tl.load(known_ptr + j).to(tl.float32)
        num_known += known
        num_trained += known * _factor(factors_ptr, j, WITH_FACTORS)
    return num_known, num_trained


@triton.jit
def _factor(factors_ptr, j: tl.constexpr, WITH_FACTORS: tl.constexpr):
    """Factor of a base in the loss; without factors, which are then not read, 1."""
    factor = 1.0
    if WITH_FACTORS:
        factor = tl.load(factors_ptr + j)
    return factor


@triton.jit
def _soft(
    rows,
    columns,
    total,
    known_ptr,
    factors_ptr,
    kmer,
    half,
    of_base,
    WITH_FACTORS: tl.constexpr,
):
    """Sum -log S_j over known bases, and w_j / S_j over the halves that match the true one.

    The first sum is returned twice: without and with the factors of the bases.

    Bases whose S_j underflows are left out; the smallest S_j shows whether there are any.
    """
    by_row = tl.zeros([HALF], dtype=tl.float32)
    by_column = tl.zeros([HALF], dtype=tl.float32)
    nats = 0.0
    trained_nats = 0.0
    smallest = 1.0
    for j in tl.static_range(6):
        known = tl.load(known_ptr + j).to(tl.float32)
        agrees = _agrees(half, kmer, j)
        share = tl.sum(tl.where(agrees, rows if j < 3 else columns, 0.0)) / total
        enough = tl.maximum(share, SMALLEST_SUM)
        surprise = tl.where(share < SMALLEST_SUM, 0.0, known * tl.log(enough))
        factor = _factor(factors_ptr, j, WITH_FACTORS)
        nats -= surprise
        trained_nats -= factor * surprise
        of_share = tl.where(share < SMALLEST_SUM, 0.0, known * of_base * factor / enough)
        if j < 3:
            by_row += tl.where(agrees, of_share, 0.0)
        else:
            by_column += tl.where(agrees, of_share, 0.0)
        smallest = tl.minimum(smallest, share)
    return nats, trained_nats, by_row, by_column, smallest


@triton.jit
def _hard(
    grad,
    z,
    log_total,
    rows,
    columns,
    total,
    known_ptr,
    factors_ptr,
    kmer,
    half,
    of_base,
    WITH_FACTORS: tl.constexpr,
):
    """Add the rare bases that `_soft` left out: a softmax inside a group, in the log domain."""
    nats = 0.0
    trained_nats = 0.0
    for j in tl.static_range(6):
        known = tl.load(known_ptr + j).to(tl.float32)
        agrees = _agrees(half, kmer, j)
        share = tl.sum(tl.where(agrees, rows if j < 3 else columns, 0.0)) / total
        hard = tl.where(share < SMALLEST_SUM, known, 0.0)
        group = tl.where(agrees[:, None] if j < 3 else agrees[None, :], z, float("-inf"))
        group_top = tl.max(group)
        group_exponentials = tl.exp(group - group_top)
        group_total = tl.sum(group_exponentials)
        factor = _factor(factors_ptr, j, WITH_FACTORS)
        surprise = hard * (group_top + tl.log(group_total) - log_total)
        nats -= surprise
        trained_nats -= factor * surprise
        grad -= hard * of_base * factor / group_total * group_exponentials
    return nats, trained_nats, grad


@triton.jit
def _agrees(half, kmer, j: tl.constexpr):
    """Which halves of a 6-mer have the true base at position j."""
    true_half = kmer // HALF if j < 3 else kmer % HALF
    return (((half ^ true_half) >> (4 - 2 * (j % 3))) & 3) == 0
