"""Llama (arXiv 2302.13971), as transformers has it: the architecture of the released models."""

from train.models.spec import ModelSpec

SPEC = ModelSpec(
    module="transformers.models.llama.modeling_llama",
    network="LlamaForCausalLM",
    rotary="LlamaRotaryEmbedding",
    config=lambda preset: preset(),
    label="Llama",
)
