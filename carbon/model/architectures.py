"""Architectures of Carbon's own models, which are stock decoders of transformers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ArchitectureName = Literal["llama", "qwen3"]
"""Names of architectures: values of `model_type` in config.json."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec:
    """An architecture.

    A decoder has `model.embed_tokens`, `model.layers`, `model.norm`, `model.rotary_emb` and
    `lm_head`; a layer has `q_proj`, `k_proj`, `v_proj`, `o_proj`, `gate_proj`, `up_proj` and
    `down_proj`. All operations (check the weights, split into pipeline stages, parallelise,
    initialise, count) are the same for all architectures.

    Attributes:
        label: name in a model card.
        head_norms: norms of queries and keys, with a weight for each number of a head.
        gguf: name in GGUF; empty if `carbon convert` does not write it.
    """

    label: str
    head_norms: tuple[str, ...] = ()
    gguf: str = ""


RELEASED: ArchitectureName = "llama"
"""The architecture of the released models."""
MODEL_SPECS: Mapping[str, ModelSpec] = {
    "llama": ModelSpec(label="Llama", gguf="llama"),  # arXiv 2302.13971
    "qwen3": ModelSpec(label="Qwen3", head_norms=("q_norm", "k_norm")),  # arXiv 2505.09388
}
