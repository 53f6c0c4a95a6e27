"""The head and the loss in one: hidden states and head weights in, loss out.

Logits exist for a chunk of tokens at a time. Their gradient is computed as soon as they are there
and multiplied into the gradients of hidden states and weights at once, as in Liger's fused linear
cross-entropy (arXiv:2410.10989): three matrix products in all, the same as without fusing.

It is a custom operator, so that `torch.compile` takes it as a whole.
"""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from carbon.losses.nucleotide import (
    NUM_KMERS,
    LogLikelihoods,
    LossSums,
    Support,
    kmer_sums,
    logits_gradient,
    nucleotide_loss,
    objective_weights,
    working,
)

_CHUNK_ELEMENTS = 1 << 21  # logits of a chunk on a CPU; a GPU takes eight times as many
_LEAST_CHUNK_TOKENS = 128  # a product of fewer rows wastes the machine


def head_loss(
    hidden: Tensor,
    weight: Tensor,
    kmers: Tensor,
    known: Tensor,
    fns_weight: float,
    *,
    first_kmer: int = 0,
    support: Support = "kmers",
    chunk_tokens: int | None = None,
) -> LossSums:
    """Return `nucleotide_loss` of the logits `hidden @ weight.T`, without their ever being whole.

    Gradients of hidden states and weights are exact. Products are in the dtype of the arguments,
    the softmax and all sums in fp32 (fp64 for fp64).

    Args:
        hidden: (N, D), states that predict N tokens.
        weight: (rows, D), the head, tied or not; rows from `first_kmer` on are those of 6-mers.
        kmers: (N,) int64, the true 6-mers, from 0.
        known: (N, 6) bool, bases to train.
        fns_weight: from 0 (CE) to 1 (FNS).
        first_kmer: `Vocabulary.first_kmer`, or 0 for a head of 6-mers alone.
        support: what the softmax runs over: the 6-mers, or all rows of the head.
        chunk_tokens: tokens whose logits exist at once; chosen by the device if not given.
    """
    over_vocabulary = support == "vocabulary"
    if not over_vocabulary:
        weight, first_kmer = weight[first_kmer : first_kmer + NUM_KMERS], 0
    if chunk_tokens is None:
        elements = _CHUNK_ELEMENTS * (8 if hidden.is_cuda else 1)
        chunk_tokens = max(_LEAST_CHUNK_TOKENS, elements // weight.shape[0])
    with_gradients = torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad)
    sums, _, _ = _head_loss(
        hidden,
        weight,
        kmers,
        known,
        fns_weight,
        first_kmer,
        over_vocabulary,
        chunk_tokens,
        with_gradients,
    )
    loss, tokens, chain_nats, chain_bases, marginal_nats, bases = sums.unbind()
    chain_nats, marginal_nats = chain_nats.detach(), marginal_nats.detach()
    return LossSums(
        loss, tokens.long(), chain_nats, chain_bases.long(), marginal_nats, bases.long()
    )


@torch.library.custom_op("carbon::head_loss", mutates_args=())
def _head_loss(
    hidden: Tensor,
    weight: Tensor,
    kmers: Tensor,
    known: Tensor,
    fns_weight: float,
    first_kmer: int,
    over_vocabulary: bool,
    chunk_tokens: int,
    with_gradients: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the six sums of `LossSums`, and the gradients of hidden states and weights."""
    exact = torch.float64 if hidden.dtype == torch.float64 else torch.float32
    kernel = _kernel(hidden)
    sums = torch.zeros(6, dtype=exact, device=hidden.device)
    grad_hidden = torch.empty_like(hidden if with_gradients else hidden[:0])
    grad_weight = torch.zeros_like(weight if with_gradients else weight[:0], dtype=exact)
    for at in range(0, len(hidden), chunk_tokens):
        part = slice(at, at + chunk_tokens)
        logits = hidden[part] @ weight.T
        if kernel is None or over_vocabulary:
            loss, grad = chunk_loss(
                logits,
                kmers[part],
                known[part],
                fns_weight,
                first_kmer,
                over_vocabulary,
                with_gradients,
            )
        else:
            loss, grad = kernel.chunk_loss(
                logits, kmers[part], known[part], fns_weight, with_gradients
            )
        sums += torch.stack([value.to(exact) for value in loss])
        if grad is not None:
            grad = grad.to(hidden.dtype)
            torch.mm(grad, weight, out=grad_hidden[part])
            if exact == hidden.dtype:
                grad_weight.addmm_(grad.T, hidden[part])
            else:
                grad_weight += grad.T @ hidden[part]
    return sums, grad_hidden, grad_weight.to(weight.dtype)


def chunk_loss(
    logits: Tensor,
    kmers: Tensor,
    known: Tensor,
    fns_weight: float,
    first_kmer: int,
    over_vocabulary: bool,
    with_gradient: bool,
) -> tuple[LossSums, Tensor | None]:
    """Return the sums of a chunk and dL/dlogits, in fp32; `kernel.chunk_loss` in plain PyTorch."""
    z = working(logits)
    inside = z[:, first_kmer : first_kmer + NUM_KMERS]
    found, (token, bases) = kmer_sums(inside, kmers)
    if over_vocabulary:
        log_total = z.logsumexp(dim=1)
        mass = inside.logsumexp(dim=1) - log_total  # log probability of any 6-mer
        token, bases = token + mass, bases + mass[:, None]
    loss = nucleotide_loss(LogLikelihoods(token, bases), known, fns_weight)
    if not with_gradient:
        return loss, None
    of_token, of_bases = objective_weights(known, fns_weight, z.dtype)
    grad = logits_gradient(found, kmers, inside[found.hard], -of_token, -of_bases)
    if over_vocabulary:
        # The loss holds -c log(mass); d log(mass) / dz is p among the 6-mers less p among all.
        c = (of_token + of_bases.sum(dim=1))[:, None]
        grad -= c * found.exponentials / found.total
        everywhere = torch.sub(z, log_total[:, None]).exp_().mul_(c)
        everywhere[:, first_kmer : first_kmer + NUM_KMERS] += grad
        grad = everywhere
    return loss, grad


def _kernel(hidden: Tensor) -> ModuleType | None:
    """Return the Triton kernel where it can run: CUDA, any dtype but fp64, support of 6-mers."""
    if not hidden.is_cuda or hidden.dtype == torch.float64 or find_spec("triton") is None:
        return None
    return import_module("carbon.losses.kernel")


@_head_loss.register_fake
def _(
    hidden: Tensor,
    weight: Tensor,
    kmers: Tensor,
    known: Tensor,
    fns_weight: float,
    first_kmer: int,
    over_vocabulary: bool,
    chunk_tokens: int,
    with_gradients: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    exact = torch.float64 if hidden.dtype == torch.float64 else torch.float32
    return (
        hidden.new_empty(6, dtype=exact),
        torch.empty_like(hidden if with_gradients else hidden[:0]),
        torch.empty_like(weight if with_gradients else weight[:0]),
    )


def _keep_gradients(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:])


def _scale_gradients(ctx: Any, grad_sums: Tensor, *_: Tensor) -> tuple[Any, ...]:
    grad_hidden, grad_weight = ctx.saved_tensors
    scale = grad_sums[0]
    return (
        grad_hidden * scale.to(grad_hidden.dtype),
        grad_weight * scale.to(grad_weight.dtype),
        *(None for _ in range(7)),
    )


_head_loss.register_autograd(_scale_gradients, setup_context=_keep_gradients)
