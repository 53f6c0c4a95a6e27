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


def chunk_loss(
    logits: Tensor, kmers: Tensor, known: Tensor, objective: Objective, with_gradient: bool
) -> tuple[LossSums, Tensor | None]:
    """Return the sums of a chunk and dL/dlogits, which overwrites the logits.

    Args:
        logits: (N, 4096) fp32 or bf16, contiguous; overwritten if `with_gradient`.
        kmers: (N,) int64.
        known: (N, 6) bool.
        objective: objective to minimise.
        with_gradient: compute the gradient; otherwise only the sums.
    """
    if logits.shape != (len(kmers), NUM_KMERS) or not logits.is_contiguous():
        raise ValueError(f"logits must be ({len(kmers)}, {NUM_KMERS}) and contiguous")
    kmers, known = kmers.contiguous(), known.bool().contiguous()
    nats = torch.empty(3, len(kmers), dtype=torch.float32, device=logits.device)
    if len(kmers):
        _token_loss[(len(kmers),)](
            logits,
            kmers,
            known.view(torch.uint8),
            nats,
            len(kmers),
            objective.token,
            objective.bases,
            objective.uniform,
            WITH_GRADIENT=with_gradient,
            WITH_UNIFORM=objective.uniform > 0,
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
    nats_ptr,  # (3, N): the loss, -log p(y) if all bases are known, the sum of -log S_j
    num_tokens,
    token_weight,
    bases_weight,
    uniform_weight,
    WITH_GRADIENT: tl.constexpr,
    WITH_UNIFORM: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    known_ptr += token * 6
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

    num_known = _count(known_ptr)
    of_token = tl.where(num_known == 6, token_weight, 0.0)
    of_uniform = tl.where(num_known == 6, uniform_weight, 0.0) if WITH_UNIFORM else 0.0
    of_base = bases_weight / tl.maximum(num_known, 1.0)
    marginal_nats, by_row, by_column, smallest = _soft(
        rows, columns, total, known_ptr, kmer, half, of_base
    )
    # dL/dz = p (all weights - by_row - by_column) - of_token [v = y] - of_uniform / 4096
    by_row -= of_token + of_base * num_known + of_uniform
    grad = exponentials / -total * (by_row[:, None] + by_column[None, :])
    grad -= tl.where(at == kmer, of_token, 0.0)
    if WITH_UNIFORM:
        grad -= of_uniform / (HALF * HALF)
    if smallest < SMALLEST_SUM:
        z = tl.load(logits_ptr + at).to(tl.float32)
        hard_nats, grad = _hard(
            grad, z, log_total, rows, columns, total, known_ptr, kmer, half, of_base
        )
        marginal_nats += hard_nats

    loss = of_base * marginal_nats - of_token * log_token
    if WITH_UNIFORM:
        loss -= of_uniform * log_mean
    tl.store(nats_ptr + token, loss)
    tl.store(nats_ptr + num_tokens + token, tl.where(num_known == 6, -log_token, 0.0))
    tl.store(nats_ptr + 2 * num_tokens + token, marginal_nats)
    if WITH_GRADIENT:
        tl.store(logits_ptr + at, grad.to(logits_ptr.dtype.element_ty))


@triton.jit
def _count(known_ptr):
    """Number of known bases of a token."""
    num_known = 0.0
    for j in tl.static_range(6):
        num_known += tl.load(known_ptr + j).to(tl.float32)
    return num_known


@triton.jit
def _soft(rows, columns, total, known_ptr, kmer, half, of_base):
    """Sum -log S_j over known bases, and w_j / S_j over the halves that match the true one.

    Bases whose S_j underflows are left out; the smallest S_j shows whether there are any.
    """
    by_row = tl.zeros([HALF], dtype=tl.float32)
    by_column = tl.zeros([HALF], dtype=tl.float32)
    nats = 0.0
    smallest = 1.0
    for j in tl.static_range(6):
        known = tl.load(known_ptr + j).to(tl.float32)
        agrees = _agrees(half, kmer, j)
        share = tl.sum(tl.where(agrees, rows if j < 3 else columns, 0.0)) / total
        enough = tl.maximum(share, SMALLEST_SUM)
        nats -= tl.where(share < SMALLEST_SUM, 0.0, known * tl.log(enough))
        of_share = tl.where(share < SMALLEST_SUM, 0.0, known * of_base / enough)
        if j < 3:
            by_row += tl.where(agrees, of_share, 0.0)
        else:
            by_column += tl.where(agrees, of_share, 0.0)
        smallest = tl.minimum(smallest, share)
    return nats, by_row, by_column, smallest


@triton.jit
def _hard(grad, z, log_total, rows, columns, total, known_ptr, kmer, half, of_base):
    """Add the rare bases that `_soft` left out: a softmax inside a group, in the log domain."""
    nats = 0.0
    for j in tl.static_range(6):
        known = tl.load(known_ptr + j).to(tl.float32)
        agrees = _agrees(half, kmer, j)
        share = tl.sum(tl.where(agrees, rows if j < 3 else columns, 0.0)) / total
        hard = tl.where(share < SMALLEST_SUM, known, 0.0)
        group = tl.where(agrees[:, None] if j < 3 else agrees[None, :], z, float("-inf"))
        group_top = tl.max(group)
        group_exponentials = tl.exp(group - group_top)
        group_total = tl.sum(group_exponentials)
        nats -= hard * (group_top + tl.log(group_total) - log_total)
        grad -= hard * of_base / group_total * group_exponentials
    return nats, grad


@triton.jit
def _agrees(half, kmer, j: tl.constexpr):
    """Which halves of a 6-mer have the true base at position j."""
    true_half = kmer // HALF if j < 3 else kmer % HALF
    return (((half ^ true_half) >> (4 - 2 * (j % 3))) & 3) == 0
