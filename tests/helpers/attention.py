"""Stand-ins on the CPU for the kernels of attention that need a GPU: slow, obvious, piece by piece.

What calls them is the real thing: the operators of `torch.nn.attention.varlen`.
"""

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from train.choices.attentions import ATTENTIONS


def attended(q: Tensor, k: Tensor, v: Tensor, bounds: list[int], scale: float | None) -> Tensor:
    """Attend inside pieces, causally: (tokens, heads, width), fewer heads for keys and values."""
    found = torch.zeros_like(q)
    for piece, weights, _ in _pieces(q, k, bounds, scale):
        found[piece] = torch.einsum("hqk,khd->qhd", weights, _for_queries(v, q)[piece])
    return found


def gradients(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, bounds: list[int], scale: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return those of queries, keys and values, written out: autograd is off inside a kernel."""
    of_q, of_k, of_v = torch.zeros_like(q), torch.zeros_like(q), torch.zeros_like(q)
    for piece, weights, factor in _pieces(q, k, bounds, scale):
        of_v[piece] = torch.einsum("hqk,qhd->khd", weights, grad[piece])
        of_weights = torch.einsum("qhd,khd->hqk", grad[piece], _for_queries(v, q)[piece])
        inner = (of_weights * weights).sum(-1, keepdim=True)
        of_scores = factor * weights * (of_weights - inner)
        of_q[piece] = torch.einsum("hqk,khd->qhd", of_scores, _for_queries(k, q)[piece])
        of_k[piece] = torch.einsum("hqk,qhd->khd", of_scores, q[piece])
    of_k, of_v = (x.unflatten(1, (k.shape[1], -1)).sum(2) for x in (of_k, of_v))
    return of_q, of_k, of_v


def _for_queries(x: Tensor, q: Tensor) -> Tensor:
    return x.repeat_interleave(q.shape[1] // x.shape[1], 1)


def _pieces(
    q: Tensor, k: Tensor, bounds: list[int], scale: float | None
) -> Iterator[tuple[slice, Tensor, float]]:
    """Yield each piece with its weights of attention (heads, queries, keys) and the scale."""
    factor = q.shape[2] ** -0.5 if scale is None else scale
    for start, end in itertools.pairwise(bounds):
        piece = slice(start, end)
        scores = factor * torch.einsum("qhd,khd->hqk", q[piece], _for_queries(k, q)[piece])
        later = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
        yield piece, scores.masked_fill(later, -torch.inf).softmax(-1), factor


def _checked(
    bounds_q: Tensor, bounds_k: Tensor, longest: int, is_causal: bool, left: int, right: int
) -> list[int]:
    """Return the bounds, as a kernel may rely on them."""
    bounds: list[int] = bounds_q.tolist()
    assert bounds_q.dtype == bounds_k.dtype == torch.int32 and bounds_k.tolist() == bounds
    assert longest >= max(b - a for a, b in itertools.pairwise(bounds))
    assert is_causal and (left, right) == (-1, 0)
    return bounds


@contextmanager
def kernels_on_cpu() -> Iterator[None]:
    """Let every attention of a run do its work on the CPU."""
    stand_in = SimpleNamespace(flash_attn_varlen_func=flash_attn_varlen_func)
    modules = [each.module for each in ATTENTIONS.values() if each.module]
    with pytest.MonkeyPatch.context() as patch, varlen_on_cpu():
        for module in modules:
            patch.setitem(sys.modules, module, stand_in)
        yield


@contextmanager
def varlen_on_cpu() -> Iterator[None]:
    """Let the operators of `torch.nn.attention.varlen` run on the CPU, forward and backward."""

    def forward(q, k, v, bq, bk, max_q, max_k, p, causal, debug, *, scale=None,
                window_size_left=None, window_size_right=None, **rest):  # fmt: skip
        bounds = _checked(bq, bk, max_q, causal, window_size_left, window_size_right)
        empty = torch.empty(0)
        sums = torch.empty(q.shape[1], q.shape[0])
        return attended(q, k, v, bounds, scale), sums, empty, empty, empty

    def backward(grad, q, k, v, out, lse, bq, bk, max_q, max_k, p, causal, seed, offset, *,
                 scale=None, window_size_left=None, window_size_right=None):  # fmt: skip
        bounds = _checked(bq, bk, max_q, causal, window_size_left, window_size_right)
        return gradients(grad, q, k, v, bounds, scale)

    library = torch.library.Library("aten", "IMPL")
    library.impl("_flash_attention_forward", forward, "CPU")
    library.impl("_flash_attention_backward", backward, "CPU")
    try:
        yield
    finally:
        library._destroy()


@torch.library.custom_op("flash_attn::_flash_attn_varlen_forward", mutates_args={})
def _flash_forward(
    q: Tensor, k: Tensor, v: Tensor, bounds_q: Tensor, bounds_k: Tensor, longest: int, scale: float
) -> Tensor:
    return attended(q, k, v, _checked(bounds_q, bounds_k, longest, True, -1, 0), scale)


@_flash_forward.register_fake
def _(q, k, v, bounds_q, bounds_k, longest, scale):
    return torch.empty_like(q)


@torch.library.custom_op("flash_attn::_flash_attn_varlen_backward", mutates_args={})
def _flash_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    return gradients(grad, q, k, v, bounds.tolist(), scale)


@_flash_backward.register_fake
def _(grad, q, k, v, bounds, scale):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


class _Varlen(torch.autograd.Function):
    """As flash-attn has it: a function of autograd over operators of its own."""

    @staticmethod
    def forward(ctx, q, k, v, bounds_q, bounds_k, longest, scale):
        ctx.save_for_backward(q, k, v, bounds_q)
        ctx.scale = scale
        return torch.ops.flash_attn._flash_attn_varlen_forward(
            q, k, v, bounds_q, bounds_k, longest, scale
        )

    @staticmethod
    def backward(ctx, grad):
        found = torch.ops.flash_attn._flash_attn_varlen_backward(
            grad, *ctx.saved_tensors, ctx.scale
        )
        return *found, None, None, None, None


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0,
    softmax_scale=None, causal=False,
):  # fmt: skip
    """Stand in for the function of flash-attn, by its parameters."""
    assert causal and dropout_p == 0 and max_seqlen_q == max_seqlen_k
    return _Varlen.apply(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, softmax_scale)
