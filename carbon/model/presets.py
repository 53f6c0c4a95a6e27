"""Sizes of networks, each with all its numbers.

transformers is imported only when a configuration is requested.
"""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from carbon.model.architectures import RELEASED, ArchitectureName
from carbon.tokenizer import NATIVE, Vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


@dataclass(frozen=True, slots=True)
class Preset:
    """The numbers that differ between sizes, named as in configurations of transformers."""

    hidden_size: int
    num_hidden_layers: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    tie_word_embeddings: bool

    def __call__(
        self, vocabulary: Vocabulary = NATIVE, architecture: ArchitectureName = RELEASED
    ) -> "PreTrainedConfig":
        """Return the configuration, including the settings that all sizes share.

        The report does not state the RMSNorm epsilon; 1e-5 is Llama 3's.
        """
        from transformers import AutoConfig

        return AutoConfig.for_model(
            architecture,
            hidden_size=self.hidden_size,
            num_hidden_layers=self.num_hidden_layers,
            intermediate_size=self.intermediate_size,
            num_attention_heads=self.num_attention_heads,
            num_key_value_heads=self.num_key_value_heads,
            head_dim=self.hidden_size // self.num_attention_heads,
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

    def is_of(self, config: "PreTrainedConfig") -> bool:
        """Return whether a configuration has all numbers of this size."""
        names = (field.name for field in fields(self))
        return all(getattr(config, name, None) == getattr(self, name) for name in names)


PRESETS = {
    # Hidden size, layers, intermediate size, heads, key-value heads, tied embeddings.
    # 1.3 M parameters: CPU tests, the quickstart and the bundled model.
    "tiny": Preset(128, 4, 352, 4, 2, True),
    # 3.2 M and 4.8 M parameters: one small genome, hours on a CPU.
    "3m": Preset(192, 6, 512, 6, 3, True),
    "5m": Preset(256, 5, 704, 8, 4, True),
    # 25 M parameters: a night on a laptop, or minutes on a GPU.
    "mini": Preset(512, 8, 1344, 8, 4, True),
    # The shape of Carbon-500M; 512 M parameters with the hybrid vocabulary.
    "500m": Preset(1024, 28, 3072, 16, 8, True),
    # The shapes of Carbon-3B and Carbon-8B (technical report, table 3).
    "3b": Preset(3072, 30, 8448, 32, 4, True),
    "8b": Preset(4096, 32, 14336, 32, 8, False),
}
