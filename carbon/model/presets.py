"""Sizes of the stock Llama, each a flat function with all its numbers visible."""

from collections.abc import Callable
from typing import Any

from transformers import LlamaConfig

from carbon.tokenizer import NATIVE, Vocabulary


def tiny(vocabulary: Vocabulary = NATIVE) -> LlamaConfig:
    """Return 1.3 M parameters: CPU tests and the quickstart."""
    return _llama(
        vocabulary,
        hidden_size=128,
        num_hidden_layers=4,
        intermediate_size=352,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )


def mini(vocabulary: Vocabulary = NATIVE) -> LlamaConfig:
    """Return 25 M parameters: a laptop's night, or minutes of a GPU."""
    return _llama(
        vocabulary,
        hidden_size=512,
        num_hidden_layers=8,
        intermediate_size=1344,
        num_attention_heads=8,
        num_key_value_heads=4,
        tie_word_embeddings=True,
    )


def carbon_500m(vocabulary: Vocabulary = NATIVE) -> LlamaConfig:
    """Return the shape of Carbon-500M; 512 M parameters with the hybrid vocabulary."""
    return _llama(
        vocabulary,
        hidden_size=1024,
        num_hidden_layers=28,
        intermediate_size=3072,
        num_attention_heads=16,
        num_key_value_heads=8,
        tie_word_embeddings=True,
    )


def carbon_3b(vocabulary: Vocabulary = NATIVE) -> LlamaConfig:
    """Return the shape of Carbon-3B (technical report, table 3)."""
    return _llama(
        vocabulary,
        hidden_size=3072,
        num_hidden_layers=30,
        intermediate_size=8448,
        num_attention_heads=32,
        num_key_value_heads=4,
        tie_word_embeddings=True,
    )


def carbon_8b(vocabulary: Vocabulary = NATIVE) -> LlamaConfig:
    """Return the shape of Carbon-8B (technical report, table 3): embeddings not tied."""
    return _llama(
        vocabulary,
        hidden_size=4096,
        num_hidden_layers=32,
        intermediate_size=14336,
        num_attention_heads=32,
        num_key_value_heads=8,
        tie_word_embeddings=False,
    )


PRESETS: dict[str, Callable[..., LlamaConfig]] = {
    "tiny": tiny,
    "mini": mini,
    "500m": carbon_500m,
    "3b": carbon_3b,
    "8b": carbon_8b,
}


def _llama(vocabulary: Vocabulary, **sizes: Any) -> LlamaConfig:
    """Fill in what all sizes share. The report gives no RMSNorm epsilon; 1e-5 is Llama 3's."""
    return LlamaConfig(
        vocab_size=vocabulary.size,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
        rms_norm_eps=1e-5,
        initializer_range=0.02,
        pad_token_id=vocabulary.pad,
        bos_token_id=None,
        eos_token_id=None,
        **sizes,
    )
