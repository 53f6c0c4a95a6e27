"""The network of a run: configuration, sizes, operations."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from carbon.model.architectures import MODEL_SPECS
from carbon.model.presets import PRESETS
from carbon.tokenizer import NUM_KMERS
from train.config import ModelConfig, TrainConfig
from train.models.start import TUNINGS, start_config

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def network_config(config: TrainConfig) -> "PreTrainedConfig":
    """Return the preset at the run's longest context, or the configuration of the start."""
    if config.model.start:
        return start_config(config.model.start)
    network = PRESETS[config.model.preset](architecture=config.model.architecture)
    network.max_position_embeddings = config.longest_context_tokens
    return network


def stock_network(config: "PreTrainedConfig") -> Any:
    """Return the network of a configuration, with torch's default device and dtype.

    `AutoModelForCausalLM.from_config` would take the dtype of the configuration instead.
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    network_types: Any = MODEL_FOR_CAUSAL_LM_MAPPING
    return network_types[type(config)](config)


def build_network(config: TrainConfig) -> Any:
    """Return a run's stock network, on the device that torch makes tensors on."""
    return stock_network(network_config(config))


@dataclass(frozen=True, slots=True)
class Sizes:
    """Widths of a decoder in elements, and counts of its parts."""

    hidden: int
    query: int
    key: int
    mlp: int
    num_heads: int
    num_key_heads: int
    num_layers: int
    vocabulary: int
    is_tied: bool
    head_norms: int

    @staticmethod
    def of(network: "PreTrainedConfig") -> "Sizes":
        """Return the sizes of a configuration."""
        num_heads, hidden = int(network.num_attention_heads), int(network.hidden_size)
        num_key_heads = int(network.num_key_value_heads or num_heads)
        head = int(network.head_dim or hidden // num_heads)
        return Sizes(
            hidden=hidden,
            query=num_heads * head,
            key=num_key_heads * head,
            mlp=int(network.intermediate_size),
            num_heads=num_heads,
            num_key_heads=num_key_heads,
            num_layers=int(network.num_hidden_layers),
            vocabulary=int(network.vocab_size),
            is_tied=bool(network.tie_word_embeddings),
            head_norms=head * len(MODEL_SPECS[network.model_type].head_norms),
        )

    @property
    def linears(self) -> dict[str, tuple[int, int]]:
        """Inputs and outputs of a layer's matrices."""
        return {
            "q_proj": (self.hidden, self.query),
            "k_proj": (self.hidden, self.key),
            "v_proj": (self.hidden, self.key),
            "o_proj": (self.query, self.hidden),
            "gate_proj": (self.hidden, self.mlp),
            "up_proj": (self.hidden, self.mlp),
            "down_proj": (self.mlp, self.hidden),
        }

    @property
    def layer_parameters(self) -> int:
        """Parameters of a layer: four matrices of attention, three of the MLP, norms."""
        matrices = self.hidden * (2 * self.query + 2 * self.key + 3 * self.mlp)
        return matrices + self.norm_parameters

    @property
    def norm_parameters(self) -> int:
        """Parameters of a layer's norms."""
        return 2 * self.hidden + self.head_norms

    def end_parameters(self, is_first: bool, is_last: bool) -> int:
        """Return a stage's parameters outside its layers: embedding, or norm and head, or all."""
        has_head = is_last and not (is_first and self.is_tied)
        return self.hidden * (self.vocabulary * (is_first + has_head) + is_last)


def tuned_parameters(model: ModelConfig, sizes: Sizes, pieces: Sequence[range]) -> tuple[int, int]:
    """Return how many parameters of some pieces are frozen, and how many adapters add.

    Args:
        model: which part is trained.
        sizes: of the network.
        pieces: the layers of each.
    """
    tuning = TUNINGS[model.tune]
    if not tuning.freezes:
        return 0, 0
    layers = [layer for piece in pieces for layer in piece]
    ends = sum(sizes.end_parameters(p.start == 0, p.stop == sizes.num_layers) for p in pieces)
    if tuning.adapts:
        widths = sum(sum(sizes.linears[target]) for target in model.lora_targets)
        frozen = ends + len(layers) * sizes.layer_parameters
        return frozen, len(layers) * model.lora_rank * widths
    num_frozen = sum(layer < sizes.num_layers - model.last_layers for layer in layers)
    norm = sizes.hidden * (sizes.num_layers - 1 in layers)
    return ends - norm + num_frozen * sizes.layer_parameters, 0


def flops_a_token(network: "PreTrainedConfig", context_tokens: int) -> int:
    """Return operations of forward and backward a token: 6 a weight, 6 l q t for attention.

    The count of Chowdhery and others (PaLM, appendix B), with half of the attention since it is
    causal, and only the rows of the head that are used; q is heads times their width.
    """
    sizes = Sizes.of(network)
    layer = sum(inputs * outputs for inputs, outputs in sizes.linears.values())
    weights = sizes.num_layers * layer + NUM_KMERS * sizes.hidden
    attention = sizes.num_layers * sizes.query * context_tokens
    return int(6 * (weights + attention))
