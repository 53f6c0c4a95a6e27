"""Attention inside the pieces of packed rows, without a mask: kernels that take their bounds.

Rows of a batch lie one behind the other for them. The bounds are counted on the CPU, where rows are
collated, so that nothing waits for the device.
"""

import inspect
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, LlamaConfig

from carbon.errors import UserError
from train.choices.attentions import ATTENTIONS, attention_of
from train.compute_config import ComputeConfig

Kernel = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, int, float | None], Tensor]
"""From queries, keys, values (tokens, heads, width), bounds of queries and of keys (pieces + 1,),
the longest piece and the scale to results like queries."""

_PREFIX = "carbon_"
_OF_VARLEN = inspect.signature(varlen_attn).parameters
_GQA: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in _OF_VARLEN else {}
_LEAST_CAPABILITY = (8, 0)


def chosen_attention(compute: ComputeConfig, dtype: str, device: torch.device) -> str:
    """Return the attention that a process uses; `auto` is SDPA where the better one is missing.

    Raises:
        UserError: the one that is asked for cannot be used here.
    """
    name = attention_of(compute.attention, dtype, on_gpu=device.type == "cuda")
    if why := _why_not(name, device):
        if compute.attention != "auto":
            raise UserError(f"compute.attention = {name!r}: {why}; leave it out")
        return "sdpa"
    return name


def _why_not(name: str, device: torch.device) -> str:
    """Return what is missing for an attention, nothing mostly."""
    attention = ATTENTIONS[name]
    if attention.has_mask:
        return ""
    if attention.module and find_spec(attention.module) is None:
        return f"the package {attention.module} is not installed"
    if not attention.module and "window_size" not in _OF_VARLEN:
        return f"PyTorch {torch.__version__} does not have it"
    if torch.cuda.get_device_capability(device) < _LEAST_CAPABILITY:
        return "the GPU is older than it"
    return ""


def use_attention(llama: LlamaConfig, name: str) -> None:
    """Let the layers of a stock Llama attend in one of the ways of `ATTENTIONS`."""
    if not ATTENTIONS[name].has_mask:
        module = ATTENTIONS[name].module
        kernel = (
            partial(_flash, import_module(module).flash_attn_varlen_func) if module else _varlen
        )
        AttentionInterface.register(_PREFIX + name, partial(_attend, kernel))
        name = _PREFIX + name
    llama._attn_implementation = name


def attention_arguments(
    position_ids: Tensor, bounds: Tensor, longest: int, llama: LlamaConfig
) -> dict[str, Any]:
    """Return what tells a stock layer that attention stays inside the pieces of packed rows.

    A mask (B, 1, T, T), or where pieces begin and end.

    Args:
        position_ids: (B, T), from 0 in every piece.
        bounds: (1, pieces + 1) int32, in the tokens of all rows one behind the other.
        longest: tokens of the longest piece, or more.
        llama: which attention there is.
    """
    if str(llama._attn_implementation).startswith(_PREFIX):
        # Two tensors: one that is both has Dynamo break the graph at flash-attention.
        return {"bounds_q": bounds[0], "bounds_k": bounds[0].clone(), "longest": longest}
    piece = (position_ids == 0).cumsum(dim=1)
    same = piece[:, :, None] == piece[:, None, :]
    return {"attention_mask": same.tril()[:, None]}


def _attend(
    kernel: Kernel,
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    *,
    bounds_q: Tensor,
    bounds_k: Tensor,
    longest: int,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend inside pieces: query (B, heads, T, width) to (B, T, heads, width)."""
    del module, attention_mask, kwargs
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (query, key, value))
    found = kernel(q, k, v, bounds_q, bounds_k, longest, scaling)
    return found.reshape(query.shape[0], query.shape[2], *found.shape[1:]), None


def _varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bounds_q: Tensor,
    bounds_k: Tensor,
    longest: int,
    scale: float | None,
) -> Tensor:
    found: Any = varlen_attn(
        q, k, v, bounds_q, bounds_k, longest, longest, scale=scale, window_size=(-1, 0), **_GQA
    )
    result: Tensor = found
    return result


def _flash(
    flash_attn_varlen_func: Callable[..., Any],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bounds_q: Tensor,
    bounds_k: Tensor,
    longest: int,
    scale: float | None,
) -> Tensor:
    found = flash_attn_varlen_func(
        q,
        k,
        v,
        cu_seqlens_q=bounds_q,
        cu_seqlens_k=bounds_k,
        max_seqlen_q=longest,
        max_seqlen_k=longest,
        softmax_scale=scale,
        causal=True,
    )
    result: Tensor = found[0] if isinstance(found, tuple) else found
    return result
