"""Attention inside the pieces of packed rows, without a mask: kernels that take their bounds.

The kernels see the rows of a batch as one sequence. The bounds are counted on the CPU, where rows
are collated, so that nothing waits for the device.
"""

import inspect
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, PreTrainedConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from carbon.errors import UserError
from train.config import ComputeConfig
from train.distributed.context import ContextShard, attend_to_row
from train.planning.compute import ATTENTIONS, attention_of

_PREFIX = "carbon_"
_SHARED_SDPA = "sdpa_of_shared_rows"
_OF_VARLEN = inspect.signature(varlen_attn).parameters
_GQA: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in _OF_VARLEN else {}
_LEAST_CAPABILITY = (8, 0)


def chosen_attention(compute: ComputeConfig, dtype: str, device: torch.device) -> str:
    """Return the attention that a process uses; `auto` is SDPA where the better one is missing.

    Raises:
        UserError: the requested one cannot be used here.
    """
    name = attention_of(compute.attention, dtype, on_gpu=device.type == "cuda")
    if why := _why_not(name, device):
        if compute.attention != "auto":
            raise UserError(f"compute.attention = {name!r}: {why}; leave it out")
        return "sdpa"
    return name


def _why_not(name: str, device: torch.device) -> str:
    """Return the missing requirement, or an empty string."""
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


def use_attention(
    network_config: PreTrainedConfig, name: str, context_group: dist.ProcessGroup | None = None
) -> None:
    """Let the layers of a stock decoder attend in one of the ways of `ATTENTIONS`.

    Args:
        network_config: of the layers.
        name: of the attention.
        context_group: processes that share rows, if any do.
    """
    attend: Any = sdpa_attention_forward
    if not ATTENTIONS[name].has_mask:
        attend, name = partial(_attend, *_kernel_of(ATTENTIONS[name].module)), _PREFIX + name
    if context_group:
        attend = partial(attend_to_row, attend, context_group)
        name = _SHARED_SDPA if name in ATTENTIONS else name
    if name not in ATTENTIONS:
        AttentionInterface.register(name, attend)
    network_config._attn_implementation = name


def _kernel_of(module: str) -> tuple[Callable[..., Any], str]:
    """Return the kernel of a package, or of torch, and the name of its scale.

    Its arguments are queries, keys and values (tokens, heads, width), bounds of queries and of keys
    (pieces + 1,), and twice the longest piece. Its result is like queries.
    """
    if not module:
        return partial(varlen_attn, window_size=(-1, 0), **_GQA), "scale"
    same_bits = torch.are_deterministic_algorithms_enabled()  # torch's own asks for itself
    kernel = import_module(module).flash_attn_varlen_func
    return partial(kernel, causal=True, deterministic=same_bits), "softmax_scale"


def attention_arguments(
    position_ids: Tensor,
    bounds: Tensor,
    key_bounds: Tensor,
    longest: int,
    network_config: PreTrainedConfig,
    share: ContextShard,
) -> dict[str, Any]:
    """Return arguments that keep a stock layer's attention inside packed segments.

    A mask (B, 1, T, T of whole rows), or where pieces begin and end.

    Args:
        position_ids: (B, T), from 0 in every piece.
        bounds: (1, pieces + 1) int32, in the tokens of all rows in order.
        key_bounds: (1, pieces + 1) int32, in the keys that are asked.
        longest: tokens of the longest piece, or more.
        network_config: which attention there is.
        share: which tokens of rows these are.
    """
    rows, row_tokens = position_ids.shape[0], position_ids.shape[1] * share.size
    if str(network_config._attn_implementation).startswith(_PREFIX):
        arguments = {"bounds_q": bounds[0], "bounds_k": key_bounds[0], "longest": longest}
        if share.size > 1:
            arguments["asked_keys"] = share.asked_keys(rows, row_tokens, position_ids.device)
        return arguments
    place = share.places(row_tokens, position_ids.device)[:, None]
    of_key = share.gathered_places(row_tokens, position_ids.device)
    first = place - position_ids[:, :, None]
    return {"attention_mask": ((first <= of_key) & (of_key <= place))[:, None]}


def _attend(
    kernel: Callable[..., Any],
    scale: str,
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    *,
    bounds_q: Tensor,
    bounds_k: Tensor,
    longest: int,
    asked_keys: Tensor | None = None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend inside pieces: query (B, heads, T, width) to (B, T, heads, width)."""
    del module, attention_mask, kwargs
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (query, key, value))
    if asked_keys is not None:
        k, v = k[asked_keys], v[asked_keys]
    found = kernel(q, k, v, bounds_q, bounds_k, longest, longest, **{scale: scaling})
    found = found[0] if isinstance(found, tuple) else found
    return found.reshape(query.shape[0], query.shape[2], *found.shape[1:]), None
