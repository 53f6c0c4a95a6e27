"""Initial weights, low-rank adapters by peft, and frozen rows of the embedding."""

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedConfig

from carbon.model.save import OnDemand
from carbon.tokenizer import KMER_DIGITS, NATIVE, K
from train.config import ModelConfig
from train.distributed.mesh import local

if TYPE_CHECKING:
    from peft import LoraConfig

_A, _B = ".lora_A.default.weight", ".lora_B.default.weight"


def lora_config(model: ModelConfig) -> "LoraConfig":
    """Return peft's configuration of a run's adapters, without dropout."""
    from peft import LoraConfig

    return LoraConfig(
        r=model.lora_rank,
        lora_alpha=model.lora_alpha,  # type: ignore[arg-type]  # peft multiplies by it only
        target_modules=list(model.lora_targets),
        task_type="CAUSAL_LM",
        base_model_name_or_path=model.start,
    )


def is_adapter(name: str) -> bool:
    """Return whether a parameter belongs to an adapter."""
    return name.endswith((_A, _B))


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


@dataclass(frozen=True, kw_only=True, slots=True)
class KmerInit:
    """A distribution of rows at random.

    Attributes:
        shared: share of a row's variance that comes from its six bases, each a vector by base and
            place that all 6-mers with that base there have in common.
        scale: standard deviation, relative to other matrices.
    """

    shared: float = 0.0
    scale: float = 1.0


KMER_INITS = {
    "independent": KmerInit(),
    "bases": KmerInit(shared=0.94, scale=3.0),
}


_EMBEDDING = "model.embed_tokens.weight"


def initial_weight(
    name: str,
    shape: torch.Size,
    network_config: PreTrainedConfig,
    seed: int,
    kmer_init: KmerInit = KMER_INITS["independent"],
) -> Tensor:
    """Return a parameter as it begins, fp32 on the CPU: a function of its name and the seed alone.

    So a process makes its own layers only, and they are the same however the network is divided.
    The distribution follows the stock network, except for rows of 6-mers with another one.
    """
    if len(shape) == 1:
        return torch.ones(shape)
    digest = hashlib.sha256(f"{seed}\0{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))
    if name.endswith(_B):  # as peft has it
        return torch.zeros(shape)
    if name.endswith(_A):  # as `nn.Linear` has it
        return (2 * torch.rand(shape, generator=generator) - 1) * (1 / math.sqrt(shape[1]))
    weight = torch.randn(shape, generator=generator)
    if name in (_EMBEDDING, "lm_head.weight"):
        _share(weight[NATIVE.kmer_rows], kmer_init, generator)
    weight *= network_config.initializer_range
    if name == _EMBEDDING:
        weight[network_config.pad_token_id] = 0
    return weight


def _share(rows: Tensor, kmer_init: KmerInit, generator: torch.Generator) -> None:
    """Let 6-mers have in common what their bases are: rows (4096, width) of unit variance."""
    if kmer_init.shared:
        of_bases = torch.randn((K, 4, rows.shape[1]), generator=generator)
        common = of_bases[torch.arange(K), torch.from_numpy(KMER_DIGITS).long()].sum(1) / K**0.5
        rows.mul_((1 - kmer_init.shared) ** 0.5).add_(common, alpha=kmer_init.shared**0.5)
    rows *= kmer_init.scale


_ENDS = ("model.embed_tokens.weight", "lm_head.weight")


class FrozenRows:
    """Rows of embedding and head that no row of the corpus names: they stay bit for bit.

    They have no gradient except where a row of text represents a tag; weight decay would shrink
    them all the same.
    """

    def __init__(self, parts: Iterable[nn.Module], rows: Collection[int]) -> None:
        """Note the rows as they are."""
        self._held = []
        for part in parts:
            for name, parameter in part.named_parameters():
                if parameter.requires_grad and name in _ENDS and rows:
                    mine = _rows_here(parameter, rows)
                    self._held.append((parameter, mine, local(parameter)[mine].clone()))

    @torch.no_grad()
    def clear_gradients(self) -> None:
        """Let them have no part in the gradient's norm."""
        for parameter, mine, _ in self._held:
            if parameter.grad is not None:
                local(parameter.grad).index_fill_(0, mine, 0)

    @torch.no_grad()
    def restore(self) -> None:
        """Undo the optimizer's changes to them."""
        for parameter, mine, values in self._held:
            local(parameter).index_copy_(0, mine, values)


def _rows_here(parameter: nn.Parameter, rows: Collection[int]) -> torch.Tensor:
    """Return which rows of this process's shard are held, by their numbers: (held,) int64.

    A mask would have to be counted in every step, which waits for the device.
    """
    mask = torch.zeros(len(parameter), 1, dtype=torch.bool, device=parameter.device)
    mask[list(rows)] = True
    if isinstance(parameter, DTensor):
        mesh, placements = parameter.device_mesh, parameter.placements
        mask = distribute_tensor(mask, mesh, placements, src_data_rank=None)
    return local(mask)[:, 0].nonzero()[:, 0]
