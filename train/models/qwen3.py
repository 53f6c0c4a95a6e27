"""Qwen3 (arXiv 2505.09388), as transformers has it: Llama with norms of queries and keys."""

from typing import TYPE_CHECKING

from train.models.spec import ModelSpec

if TYPE_CHECKING:
    from transformers import Qwen3Config

    from carbon.model.presets import Preset

_AS_LLAMA = (
    *("hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "tie_word_embeddings", "vocab_size"),
    *("rope_parameters", "rms_norm_eps", "initializer_range"),
    *("pad_token_id", "bos_token_id", "eos_token_id"),
)


def _config(preset: "Preset") -> "Qwen3Config":
    """Return the configuration with the widths, vocabulary and RoPE of a preset."""
    from transformers import Qwen3Config

    llama = preset()
    return Qwen3Config(**{name: getattr(llama, name) for name in _AS_LLAMA})


SPEC = ModelSpec(
    module="transformers.models.qwen3.modeling_qwen3",
    network="Qwen3ForCausalLM",
    rotary="Qwen3RotaryEmbedding",
    config=_config,
    has_head_norms=True,
    label="Qwen3",
)
