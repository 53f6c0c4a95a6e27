"""What of a layer is computed anew in backward instead of being kept.

That happens inside the layer: what compiles it and what shards it comes around. So a compiled layer
is one graph whose partition follows the same rules, and weights are gathered once for it all.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from train.choices.computing import ActivationCheckpointing

# Products and attention cost the most to compute anew. By name: some are of packages that may not
# be there.
_KEPT = {
    *("aten::mm", "aten::addmm", "aten::bmm", "aten::_scaled_mm"),
    *("aten::_scaled_dot_product_flash_attention_for_cpu",),
    *("aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_cudnn_attention"),
    *("aten::_scaled_dot_product_efficient_attention", "torch_attn::_varlen_attn"),
    *("flash_attn::_flash_attn_varlen_forward", "flash_attn_3::_flash_attn_forward"),
}


def recompute(layer: nn.Module, kind: ActivationCheckpointing) -> None:
    """Let a stock layer forget what it computes, but for what is kept, until backward."""
    if kind.computes_anew:
        layer.__class__ = _KeepingProducts if kind.keeps_products else _KeepingInput


class _KeepingInput(LlamaDecoderLayer):  # type: ignore[no-untyped-call]
    """A layer that keeps its input only."""

    def forward(self, hidden: Tensor, **shared: Any) -> Tensor:  # type: ignore[override, unused-ignore]
        """Return what the stock layer does; nothing in it is random."""
        result: Tensor = checkpoint(
            super().forward, hidden, use_reentrant=False, preserve_rng_state=False, **shared
        )
        return result


class _KeepingProducts(LlamaDecoderLayer):  # type: ignore[no-untyped-call]
    """A layer that keeps its input and the results of products and of attention."""

    def forward(self, hidden: Tensor, **shared: Any) -> Tensor:  # type: ignore[override, unused-ignore]
        """Return what the stock layer does; nothing in it is random."""
        result: Tensor = checkpoint(
            super().forward,
            hidden,
            use_reentrant=False,
            preserve_rng_state=False,
            context_fn=_keeping_products,
            **shared,
        )
        return result


def _policy(
    context: Any, operator: torch._ops.OpOverload, *args: Any, **kwargs: Any
) -> CheckpointPolicy:
    kept = operator.name() in _KEPT  # type: ignore[no-untyped-call]
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


_keeping_products = partial(create_selective_checkpoint_contexts, _policy)
