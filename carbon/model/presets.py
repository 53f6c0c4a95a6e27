"""Sizes of the stock Llama, each with all its numbers.

transformers is imported only when a configuration is requested.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from carbon.tokenizer import NATIVE, Vocabulary

if TYPE_CHECKING:
    from transformers import LlamaConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """The numbers that differ between sizes, named as in `LlamaConfig`."""

    hidden_size: int
    num_hidden_layers: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    tie_word_embeddings: bool

    def __call__(self, vocabulary: Vocabulary = NATIVE) -> "LlamaConfig":
        """Return the configuration, including the settings that all sizes share.

        The report does not state the RMSNorm epsilon; 1e-5 is Llama 3's.
        """
        from transformers import LlamaConfig

        return LlamaConfig(
            hidden_size=self.hidden_size,
            num_hidden_layers=self.num_hidden_layers,
            intermediate_size=self.intermediate_size,
            num_attention_heads=self.num_attention_heads,
            num_key_value_heads=self.num_key_value_heads,
            tie_word_embeddings=self.tie_word_embeddings,
            vocab_size=vocabulary.size,
            max_position_embeddings=8192,
            rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
            rms_norm_eps=1e-5,
            initializer_range=0.02,
            pad_token_id=vocabulary.pad,
            bos_token_id=None,
            eos_token_id=None,
        )


PRESETS = {
    # 1.3 M parameters: CPU tests, the quickstart and the bundled model.
    "tiny": Preset(
        hidden_size=128,
        num_hidden_layers=4,
        intermediate_size=352,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    ),
    # 3.2 M and 4.8 M parameters: one small genome, hours on a CPU.
    "3m": Preset(
        hidden_size=192,
        num_hidden_layers=6,
        intermediate_size=512,
        num_attention_heads=6,
        num_key_value_heads=3,
        tie_word_embeddings=True,
    ),
    "5m": Preset(
        hidden_size=256,
        num_hidden_layers=5,
        intermediate_size=704,
        num_attention_heads=8,
        num_key_value_heads=4,
        tie_word_embeddings=True,
    ),
    # 25 M parameters: a night on a laptop, or minutes on a GPU.
    "mini": Preset(
        hidden_size=512,
        num_hidden_layers=8,
        intermediate_size=1344,
        num_attention_heads=8,
        num_key_value_heads=4,
        tie_word_embeddings=True,
    ),
    # The shape of Carbon-500M; 512 M parameters with the hybrid vocabulary.
    "500m": Preset(
        hidden_size=1024,
        num_hidden_layers=28,
        intermediate_size=3072,
        num_attention_heads=16,
        num_key_value_heads=8,
        tie_word_embeddings=True,
    ),
    # The shape of Carbon-3B (technical report, table 3).
    "3b": Preset(
        hidden_size=3072,
        num_hidden_layers=30,
        intermediate_size=8448,
        num_attention_heads=32,
        num_key_value_heads=4,
        tie_word_embeddings=True,
    ),
    # The shape of Carbon-8B (technical report, table 3): embeddings not tied.
    "8b": Preset(
        hidden_size=4096,
        num_hidden_layers=32,
        intermediate_size=14336,
        num_attention_heads=32,
        num_key_value_heads=8,
        tie_word_embeddings=False,
    ),
}
