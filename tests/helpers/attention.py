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

from train.planning.compute import ATTENTIONS

Pieces = list[tuple[slice, slice]]
"""Tokens of the queries and of the keys of each piece."""


def attended(q: Tensor, k: Tensor, v: Tensor, pieces: Pieces, scale: float | None) -> Tensor:
    """Attend inside pieces, causally: (tokens, heads, width), fewer heads for keys and values.

    The last query of a piece is at its last key.
    """
    found = torch.zeros_like(q)
    for (queries, keys), weights, _ in _weighed(q, k, pieces, scale):
        found[queries] = torch.einsum("hqk,khd->qhd", weights, _for_queries(v, q)[keys])
    return found


def gradients(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, pieces: Pieces, scale: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return those of queries, keys and values, written out: autograd is off inside a kernel."""
    of_q = torch.zeros_like(q)
    of_k, of_v = (torch.zeros_like(_for_queries(x, q)) for x in (k, v))
    for (queries, keys), weights, factor in _weighed(q, k, pieces, scale):
        of_v[keys] = torch.einsum("hqk,qhd->khd", weights, grad[queries])
        of_weights = torch.einsum("qhd,khd->hqk", grad[queries], _for_queries(v, q)[keys])
        inner = (of_weights * weights).sum(-1, keepdim=True)
        of_scores = factor * weights * (of_weights - inner)
        of_q[queries] = torch.einsum("hqk,khd->qhd", of_scores, _for_queries(k, q)[keys])
        of_k[keys] = torch.einsum("hqk,qhd->khd", of_scores, q[queries])
    of_k, of_v = (x.unflatten(1, (k.shape[1], -1)).sum(2) for x in (of_k, of_v))
    return of_q, of_k, of_v


def _for_queries(x: Tensor, q: Tensor) -> Tensor:
    return x.repeat_interleave(q.shape[1] // x.shape[1], 1)


def _weighed(
    q: Tensor, k: Tensor, pieces: Pieces, scale: float | None
) -> Iterator[tuple[tuple[slice, slice], Tensor, float]]:
    """Yield each piece with its weights of attention (heads, queries, keys) and the scale."""
    factor = q.shape[2] ** -0.5 if scale is None else scale
    for queries, keys in pieces:
        scores = factor * torch.einsum("qhd,khd->hqk", q[queries], _for_queries(k, q)[keys])
        _, num_queries, num_keys = scores.shape
        later = torch.ones(num_queries, num_keys, dtype=torch.bool).triu(1 + num_keys - num_queries)
        yield (queries, keys), scores.masked_fill(later, -torch.inf).softmax(-1), factor


def _checked(
    bounds_q: Tensor, bounds_k: Tensor, longest: int, is_causal: bool, left: int, right: int
) -> Pieces:
    """Return the pieces, as a kernel may rely on them."""
    assert bounds_q.dtype == bounds_k.dtype == torch.int32
    assert is_causal and (left, right) == (-1, 0)
    counts = bounds_q.diff(), bounds_k.diff()
    assert (counts[0] <= counts[1]).all() and longest >= int(counts[1].max())
    queries, keys = (
        [slice(a, b) for a, b in itertools.pairwise(bounds.tolist())]
        for bounds in (bounds_q, bounds_k)
    )
    return list(zip(queries, keys, strict=True))


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
        pieces = _checked(bq, bk, max_q, causal, window_size_left, window_size_right)
        empty = torch.empty(0)
        sums = torch.empty(q.shape[1], q.shape[0])
        return attended(q, k, v, pieces, scale), sums, empty, empty, empty

    def backward(grad, q, k, v, out, lse, bq, bk, max_q, max_k, p, causal, seed, offset, *,
                 scale=None, window_size_left=None, window_size_right=None):  # fmt: skip
        pieces = _checked(bq, bk, max_q, causal, window_size_left, window_size_right)
        return gradients(grad, q, k, v, pieces, scale)

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
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, bounds_q: Tensor, bounds_k: Tensor,
    longest: int, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    pieces = _checked(bounds_q, bounds_k, longest, True, -1, 0)
    return gradients(grad, q, k, v, pieces, scale)


@_flash_backward.register_fake
def _(grad, q, k, v, bounds_q, bounds_k, longest, scale):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


class _Varlen(torch.autograd.Function):
    """As flash-attn has it: a function of autograd over operators of its own."""

    @staticmethod
    def forward(ctx, q, k, v, bounds_q, bounds_k, longest, scale):
        ctx.save_for_backward(q, k, v, bounds_q, bounds_k)
        ctx.more = longest, scale
        return torch.ops.flash_attn._flash_attn_varlen_forward(
            q, k, v, bounds_q, bounds_k, longest, scale
        )

    @staticmethod
    def backward(ctx, grad):
        found = torch.ops.flash_attn._flash_attn_varlen_backward(
            grad, *ctx.saved_tensors, *ctx.more
        )
        return *found, None, None, None, None


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0,
    softmax_scale=None, causal=False, deterministic=False,
):  # fmt: skip
    """Stand in for the function of flash-attn, by its parameters."""
    assert causal and dropout_p == 0 and max_seqlen_q == max_seqlen_k
    return _Varlen.apply(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, softmax_scale)
