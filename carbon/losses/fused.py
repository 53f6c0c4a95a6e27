"""Fused head and loss: from hidden states and head weights to the loss, without all logits.

Logits exist for one chunk of tokens at a time. Their gradient is computed immediately and
multiplied into the gradients of hidden states and weights, as in Liger's fused linear cross-entropy
(arXiv:2410.10989): three matrix products in all, the same number as without fusing.

It is a custom operator, so that `torch.compile` treats it as one node.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from carbon.losses.likelihoods import (
    NUM_KMERS,
    LossSums,
    Support,
    kmer_sums,
    logits_gradient,
    nucleotide_loss,
    token_weights,
    working,
)
from carbon.losses.objectives import Objective
from carbon.losses.soft_mask import LossFactors

_CHUNK_ELEMENTS = 1 << 21  # logits of a chunk on a CPU; eight times as many on a GPU
_LEAST_CHUNK_TOKENS = 128  # products of fewer rows are inefficient
_SCALED_ROWS = 1024  # rows of a gradient that are multiplied in fp32 at a time


def head_loss(
    hidden: Tensor,
    weight: Tensor,
    kmers: Tensor,
    known: Tensor,
    objective: Objective,
    *,
    factors: LossFactors | None = None,
    first_kmer: int = 0,
    support: Support = "kmers",
    chunk_tokens: int | None = None,
) -> LossSums:
    """Return `nucleotide_loss` of the logits `hidden @ weight.T` without storing all of them.

    Gradients of hidden states and weights are exact and have no derivative. Products are in
    the dtype of the arguments (of autocast, if enabled; fp32 for fp16), the softmax and all sums in
    fp32 (fp64 for fp64). In bf16 the gradient of hidden states is rounded once before and once
    after multiplication with the loss's own scale.

    Args:
        hidden: (N, D), states that predict N tokens.
        weight: (rows, D), the head, tied or untied; the 6-mers start at row `first_kmer`.
        kmers: (N,) int64, the true 6-mers, from 0.
        known: (N, 6) bool, bases to train.
        objective: objective to minimise; a constant for `torch.compile`.
        factors: factors of each token's terms in the loss; None for 1.
        first_kmer: `Vocabulary.first_kmer`, or 0 for a head of only 6-mers.
        support: support of the softmax: the 6-mers, or all rows of the head.
        chunk_tokens: tokens whose logits exist at the same time; by default it depends on the
            device.

    Raises:
        ValueError: an argument is invalid.
    """
    over_vocabulary = _check(weight, first_kmer, support, chunk_tokens)
    hidden, weight = _in_one_dtype(hidden, weight)
    if not over_vocabulary:
        weight, first_kmer = weight[first_kmer : first_kmer + NUM_KMERS], 0
    if chunk_tokens is None:
        elements = _CHUNK_ELEMENTS * (8 if hidden.is_cuda else 1)
        chunk_tokens = max(_LEAST_CHUNK_TOKENS, elements // weight.shape[0])
    needs = [torch.is_grad_enabled() and part.requires_grad for part in (hidden, weight)]
    sums, _, _ = _head_loss(
        hidden,
        weight,
        kmers,
        known,
        *(factors or (None, None)),
        objective.token,
        objective.bases,
        objective.uniform,
        first_kmer,
        over_vocabulary,
        chunk_tokens,
        *needs,
    )
    loss, tokens, chain_nats, chain_bases, marginal_nats, bases = sums.unbind()
    chain_nats, marginal_nats = chain_nats.detach(), marginal_nats.detach()
    return LossSums(
        loss, tokens.long(), chain_nats, chain_bases.long(), marginal_nats, bases.long()
    )


def _check(weight: Tensor, first_kmer: int, support: Support, chunk_tokens: int | None) -> bool:
    """Return whether the softmax runs over the whole vocabulary."""
    if support not in ("kmers", "vocabulary"):
        raise ValueError(f"support = {support!r}: give 'kmers' or 'vocabulary'")
    if chunk_tokens is not None and chunk_tokens < 1:
        raise ValueError(f"chunk_tokens = {chunk_tokens}: give 1 or more")
    if not 0 <= first_kmer <= len(weight) - NUM_KMERS:
        raise ValueError(f"a head of {len(weight)} rows has no 6-mers from row {first_kmer}")
    return support == "vocabulary"


def _in_one_dtype(hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Cast as autocast does, but fp16 to fp32: gradients are computed before any loss scaling."""
    device = hidden.device.type
    dtype = torch.promote_types(hidden.dtype, weight.dtype)
    if torch.is_autocast_enabled(device) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(device)
    dtype = torch.float32 if dtype == torch.float16 else dtype
    return hidden.to(dtype), weight.to(dtype)


@torch.library.custom_op("carbon::head_loss", mutates_args=())
def _head_loss(
    hidden: Tensor,
    weight: Tensor,
    kmers: Tensor,
    known: Tensor,
    token_factors: Tensor | None,
    bases_factors: Tensor | None,
    token_weight: float,
    bases_weight: float,
    uniform_weight: float,
    first_kmer: int,
    over_vocabulary: bool,
    chunk_tokens: int,
    of_hidden: bool,
    of_weight: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the six sums of `LossSums`, and the requested gradients.

    The gradient of hidden states has their dtype; the gradient of the weights, a sum over all
    tokens, is exact.
    """
    sums, grad_hidden, grad_weight = _outputs(hidden, weight, of_hidden, of_weight)
    objective = Objective(token=token_weight, bases=bases_weight, uniform=uniform_weight)
    chunk = kernel_chunk_loss(hidden) if not over_vocabulary else None
    with torch.autocast(hidden.device.type, enabled=False):
        for at in range(0, len(hidden), chunk_tokens):
            part = slice(at, at + chunk_tokens)
            factors = None
            if token_factors is not None and bases_factors is not None:
                factors = LossFactors(token_factors[part], bases_factors[part])
            targets = kmers[part], known[part], objective, factors
            logits = hidden[part] @ weight.T
            if chunk:
                loss, grad = chunk(logits, *targets, of_hidden or of_weight)
            else:
                loss, grad = chunk_loss(
                    logits, *targets, first_kmer, over_vocabulary, of_hidden or of_weight
                )
            sums += torch.stack([value.to(sums.dtype) for value in loss])
            if grad is not None:
                _multiply(
                    grad.to(hidden.dtype), hidden[part], weight, grad_hidden[part], grad_weight
                )
    return sums, grad_hidden, grad_weight


def _outputs(
    hidden: Tensor, weight: Tensor, of_hidden: bool, of_weight: bool
) -> tuple[Tensor, Tensor, Tensor]:
    exact = torch.float64 if hidden.dtype == torch.float64 else torch.float32
    return (
        torch.zeros(6, dtype=exact, device=hidden.device),
        torch.empty_like(hidden if of_hidden else hidden[:0]),
        torch.zeros_like(weight if of_weight else weight[:0], dtype=exact),
    )


def _multiply(
    grad: Tensor, hidden: Tensor, weight: Tensor, grad_hidden: Tensor, grad_weight: Tensor
) -> None:
    """Multiply the logits' gradient of a chunk into the requested gradients."""
    if len(grad_hidden):
        torch.mm(grad, weight, out=grad_hidden)
    if len(grad_weight) and grad_weight.dtype == grad.dtype:
        grad_weight.addmm_(grad.T, hidden)
    elif len(grad_weight):
        grad_weight += grad.T @ hidden


def chunk_loss(
    logits: Tensor,
    kmers: Tensor,
    known: Tensor,
    objective: Objective,
    factors: LossFactors | None,
    first_kmer: int,
    over_vocabulary: bool,
    with_gradient: bool,
) -> tuple[LossSums, Tensor | None]:
    """Return the sums of a chunk and dL/dlogits, in fp32; `kernel.chunk_loss` in plain PyTorch."""
    z = working(logits)
    inside = z[:, first_kmer : first_kmer + NUM_KMERS]
    sums, likelihoods = kmer_sums(inside, kmers, objective.uniform > 0)
    if over_vocabulary:
        log_total = z.logsumexp(dim=1)
        mass = inside.logsumexp(dim=1) - log_total  # log probability of any 6-mer
        likelihoods = likelihoods.plus(mass)
    loss = nucleotide_loss(likelihoods, known, objective, factors)
    if not with_gradient:
        return loss, None
    weights = token_weights(known, objective, z.dtype, factors)
    grad = logits_gradient(sums, kmers, inside[sums.hard], -weights)
    if over_vocabulary:
        # The loss includes -c log(mass); d log(mass) / dz is p over 6-mers minus p over all rows.
        c = weights.per_token[:, None]
        grad -= c * sums.exponentials / sums.total
        everywhere = torch.sub(z, log_total[:, None]).exp_().mul_(c)
        everywhere[:, first_kmer : first_kmer + NUM_KMERS] += grad
        grad = everywhere
    return loss, grad


def kernel_chunk_loss(hidden: Tensor) -> Callable[..., tuple[LossSums, Tensor | None]] | None:
    """Return `kernel.chunk_loss` if Triton supports the device: CUDA, and any dtype except fp64."""
    if not hidden.is_cuda or hidden.dtype == torch.float64 or find_spec("triton") is None:
        return None
    from carbon.losses import kernel

    return kernel.chunk_loss


@_head_loss.register_fake
def _(hidden: Tensor, weight: Tensor, *settings: Any) -> tuple[Tensor, Tensor, Tensor]:
    of_hidden, of_weight = settings[-2:]
    return _outputs(hidden, weight, of_hidden, of_weight)


def _keep_gradients(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.set_materialize_grads(False)  # otherwise zeros are allocated for second derivatives
    ctx.dtype = inputs[1].dtype
    ctx.needed = inputs[-2:]


def _scale_gradients(ctx: Any, grad_sums: Tensor | None, *_: None) -> tuple[Any, ...]:
    if grad_sums is None:
        return (None,) * 14
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError("head_loss has no second derivative; use nucleotide_loss for that")
    grad_hidden, grad_weight = ctx.saved_tensors
    of_hidden, of_weight = ctx.needed
    scale = grad_sums[0]
    return (
        _scaled(grad_hidden, scale) if of_hidden else None,
        _scaled(grad_weight, scale).to(ctx.dtype) if of_weight else None,
        *(None for _ in range(12)),
    )


def _scaled(grad: Tensor, scale: Tensor) -> Tensor:
    """Multiply in the precision of `scale`, in place unless the gradient is needed again."""
    again = torch._C._autograd._get_current_graph_task_keep_graph()
    traced = type(grad) is not Tensor
    if again or traced:
        return (grad.to(scale.dtype) * scale).to(grad.dtype)
    for at in range(0, len(grad), _SCALED_ROWS):
        rows = grad[at : at + _SCALED_ROWS]
        rows.copy_(rows.to(scale.dtype) * scale)
    return grad


_head_loss.register_autograd(_scale_gradients, setup_context=_keep_gradients)
