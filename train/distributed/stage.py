"""Pipeline stages: consecutive layers of a stock decoder, with the loss after the last."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
from transformers import PreTrainedConfig

from carbon.losses import LossSums, head_loss
from carbon.losses.objectives import CE
from carbon.losses.soft_mask import SoftMask, bits_of_bases
from carbon.tokenizer import NATIVE
from train.config import ModelConfig
from train.distributed.attention import attention_arguments
from train.distributed.context import ContextShard
from train.distributed.tensor import whole
from train.distributed.weights import lora_config
from train.models.start import TUNINGS
from train.planning.compute import ActivationCheckpointing


class DecoderStage(nn.Module):
    """Consecutive layers of a decoder; the first stage takes tokens, the last gives the loss.

    Parameters have the names that they have in the stock network. Tied embeddings are one
    parameter where both ends are in one part; else the last part has a copy, `lm_head.weight`.

    Attributes:
        sums: fp64, `LossSums` of the microbatches since they were last set to zero; of the last
            stage only.
        objective: the loss to minimise.
        soft_mask: weight of soft-masked bases in the global batch; None for 1.
        share: which tokens of rows are read here.
        own_tokens: from (B, T) to the tokens whose loss is computed here.
        carries_gradients: whether gradients go through frozen layers, for a pipeline whose first
            part is to send and be sent them.
    """

    sums: Tensor
    rotary_emb: nn.Module

    def __init__(self, network: Any, layers: range) -> None:
        """Take layers out of a stock network."""
        super().__init__()
        self.config = network.config
        self.is_first = layers.start == 0
        self.is_last = layers.stop == network.config.num_hidden_layers
        self.objective = CE
        self.soft_mask: SoftMask | None = None
        self.share = ContextShard()
        self.own_tokens: Callable[[Tensor], Tensor] = lambda tokens: tokens
        self.carries_gradients = False
        self._rope_theta: float | None = None
        self._rotary = type(network.model.rotary_emb)
        self.model: Any = nn.Module()
        if self.is_first:
            self.model.embed_tokens = network.model.embed_tokens
        self.model.layers = nn.ModuleDict({str(i): network.model.layers[i] for i in layers})
        if self.is_last:
            self.model.norm = network.model.norm
            if not (self.is_first and network.config.tie_word_embeddings):
                self.lm_head = network.lm_head

    @property
    def head(self) -> nn.Parameter:
        """The rows that logits come from."""
        name = "lm_head" if hasattr(self, "lm_head") else "model.embed_tokens"
        return self.get_parameter(f"{name}.weight")

    def layers(self) -> Iterator[nn.Module]:
        """Return the decoder layers."""
        return iter(self.model.layers.values())

    def forward(
        self,
        x: Tensor,
        *,
        position_ids: Tensor,
        targets: Tensor,
        known: Tensor,
        bounds: Tensor,
        key_bounds: Tensor,
        longest: int,
    ) -> Tensor:
        """Return hidden states for the next part (B, T, D), of the last part the summed loss.

        Args:
            x: tokens (B, T) for the first part, hidden states (B, T, D) for the others.
            position_ids: (B, T); a restart at 0 inside a row marks a new segment, and attention
                stays inside a piece.
            targets: (B, T) the 6-mers that follow.
            known: (B, T), their known bases, and with soft masks which of them are masked.
            bounds: (1, pieces + 1) int32, where pieces begin and end in the tokens of all rows.
            key_bounds: (1, pieces + 1) int32, the same in the keys that attention asks.
            longest: tokens of the longest piece, or more.
        """
        hidden = self.model.embed_tokens(x) if self.is_first else x
        if self.carries_gradients and torch.is_grad_enabled() and not hidden.requires_grad:
            hidden.requires_grad_()
        shared = attention_arguments(
            position_ids, bounds, key_bounds, longest, self.config, self.share
        )
        shared["position_embeddings"] = self.rotary_emb(hidden, position_ids)
        for layer in self.layers():
            hidden = layer(hidden, **shared)
        if not self.is_last:
            return hidden
        return self._loss(self.model.norm(hidden), targets, known)

    def _loss(self, hidden: Tensor, targets: Tensor, known: Tensor) -> Tensor:
        targets, packed = self.own_tokens(targets), self.own_tokens(known)
        known, factors = bits_of_bases(packed), None
        if self.soft_mask:
            factors = self.soft_mask.factors(known, bits_of_bases(packed, 6), self.objective)
        sums: LossSums = head_loss(
            hidden.flatten(0, 1),
            whole(self.head),
            targets.flatten(),
            known,
            self.objective,
            factors=factors,
            first_kmer=NATIVE.first_kmer,
        )
        self.sums += torch.stack([part.detach().double() for part in sums])
        return sums.loss.clone()  # one number of six: a view, which FSDP and schedules do not take

    def set_rope_theta(self, theta: float, device: torch.device) -> None:
        """Set the RoPE theta of the rotary embedding and of an export's configuration."""
        if self._rope_theta == theta:
            return
        rope: Any = self.config.rope_parameters  # of all parts of a process
        self._rope_theta = rope["rope_theta"] = theta
        with device:
            self.rotary_emb = self._rotary(self.config)


def stock_name(name: str, network: PreTrainedConfig) -> str:
    """Return the name of a part's parameter in a checkpoint, where tied ones stand once.

    A matrix with an adapter has the name that it has without.
    """
    name = name.replace(".base_layer.", ".")
    tied = network.tie_word_embeddings and name == "lm_head.weight"
    return "model.embed_tokens.weight" if tied else name


# Products and attention cost the most to recompute. By name: some are of packages that may not
# be there.
_KEPT = {
    *("aten::mm", "aten::addmm", "aten::bmm", "aten::_scaled_mm"),
    *("aten::_scaled_dot_product_flash_attention_for_cpu",),
    *("aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_cudnn_attention"),
    *("aten::_scaled_dot_product_efficient_attention", "torch_attn::_varlen_attn"),
    *("flash_attn::_flash_attn_varlen_forward", "flash_attn_3::_flash_attn_forward"),
}


def recompute(layer: nn.Module, kind: ActivationCheckpointing) -> None:
    """Discard the activations of a stock layer, except kept ones, until backward.

    Nothing in a layer is random. A compiled layer and FSDP wrap this, so that a layer is one graph
    and its weights are gathered once for both passes.
    """
    if not kind.recomputes:
        return
    stock = layer.forward
    kept = {"context_fn": _keeping_products} if kind.keeps_products else {}

    def forward(hidden: Tensor, **shared: Any) -> Any:
        options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False, **kept}
        return checkpoint(stock, hidden, **options, **shared)

    layer.forward = forward


def _policy(
    context: Any, operator: torch._ops.OpOverload, *args: Any, **kwargs: Any
) -> CheckpointPolicy:
    kept = operator.name() in _KEPT  # type: ignore[no-untyped-call]
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


_keeping_products = partial(create_selective_checkpoint_contexts, _policy)


_LAYER = re.compile(r"model\.layers\.(\d+)\.")


def choose_trained(part: DecoderStage, model: ModelConfig, *, in_pipeline: bool) -> None:
    """Put adapters into a part, or freeze it but for the last layers, as the recipe has it."""
    tuning = TUNINGS[model.tune]
    if not tuning.freezes:
        return
    part.carries_gradients = in_pipeline
    if tuning.adapts:
        from peft import inject_adapter_in_model

        inject_adapter_in_model(lora_config(model), part)  # freezes all else
        return
    first = part.config.num_hidden_layers - model.last_layers
    for name, parameter in part.named_parameters():
        layer = _LAYER.match(name)
        is_last = int(layer[1]) >= first if layer else name == "model.norm.weight"
        parameter.requires_grad_(is_last)
