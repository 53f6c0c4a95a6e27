"""What of a part is trained."""

import re

from train.choices.tunings import TUNINGS
from train.config import ModelConfig
from train.network.parts import LlamaPart
from train.start.adapter import lora_config

_LAYER = re.compile(r"model\.layers\.(\d+)\.")


def choose_trained(part: LlamaPart, model: ModelConfig, *, in_pipeline: bool) -> None:
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
