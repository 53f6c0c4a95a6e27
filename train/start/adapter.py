"""Low-rank adapters by peft: put into a network, merged into its weights, written for peft."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from carbon.model.save import OnDemand
from train.config import ModelConfig

if TYPE_CHECKING:
    from peft import LoraConfig

_A, _B = ".lora_A.default.weight", ".lora_B.default.weight"


def lora_config(model: ModelConfig) -> "LoraConfig":
    """Return what peft knows of the adapters of a run; they have no dropout."""
    from peft import LoraConfig

    return LoraConfig(
        r=model.lora_rank,
        lora_alpha=model.lora_alpha,  # type: ignore[arg-type]  # peft multiplies by it only
        target_modules=list(model.lora_targets),
        task_type="CAUSAL_LM",
        base_model_name_or_path=model.start,
    )


def initial_adapter_weight(shape: torch.Size, generator: torch.Generator, *, is_b: bool) -> Tensor:
    """Return a matrix of an adapter as it begins: A as `nn.Linear` does, B zero, as peft has it."""
    if is_b:
        return torch.zeros(shape)
    bound = 1 / math.sqrt(shape[1])
    return (2 * torch.rand(shape, generator=generator) - 1) * bound


def is_adapter(name: str) -> bool:
    """Tell whether a parameter is of an adapter."""
    return name.endswith((_A, _B))


def is_b(name: str) -> bool:
    """Tell whether it is the matrix that begins as zero."""
    return name.endswith(_B)


def merged(weights: Mapping[str, Tensor], model: ModelConfig) -> Mapping[str, Tensor]:
    """Return stock weights: W + alpha / rank * B A where there is an adapter (arXiv 2106.09685).

    Each is merged when it is asked for.
    """
    scale = model.lora_alpha / model.lora_rank

    def read(name: str) -> Tensor:
        weight, at = weights[name], name.removesuffix(".weight")
        if at + _A not in weights:
            return weight
        return weight + scale * (weights[at + _B] @ weights[at + _A])

    return OnDemand([name for name in weights if not is_adapter(name)], read)


def save_adapter(weights: Mapping[str, Tensor], model: ModelConfig, folder: Path) -> None:
    """Write the adapters among weights as a folder that `peft.PeftModel.from_pretrained` loads."""
    folder.mkdir()
    config: Any = lora_config(model)
    config.inference_mode = True
    config.target_modules = list(model.lora_targets)  # peft has a set of them, in no order
    config.save_pretrained(str(folder))
    named = {
        f"base_model.model.{name.replace('.default.', '.')}": weights[name].contiguous()
        for name in weights
        if is_adapter(name)
    }
    save_file(named, folder / "adapter_model.safetensors", metadata={"format": "pt"})
