"""The network as it is trained: the stock Llama, its 4,096-row head, and FSDP2 around both."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

from carbon.losses import LossSums, head_loss
from carbon.model import PRESETS
from carbon.tokenizer import NATIVE, NUM_KMERS
from train.config import TrainConfig
from train.ranks import Ranks


class TrainedNetwork(nn.Module):
    """Goes from rows of tokens to the loss, so that FSDP sees one forward."""

    def __init__(self, llama: LlamaForCausalLM) -> None:
        """Wrap a stock network, which stays reachable as `llama`."""
        super().__init__()
        self.llama = llama

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        targets: Tensor,
        known: Tensor,
        fns_weight: float,
    ) -> LossSums:
        """Return the loss of B rows of T tokens; `known` is (B * T, 6).

        Positions that begin anew inside a row mark a new piece; attention stays inside a piece.
        """
        hidden = self.llama.model(
            input_ids=input_ids, position_ids=position_ids, use_cache=False
        ).last_hidden_state
        return head_loss(
            hidden.flatten(0, 1),
            self.llama.lm_head.weight,
            targets.flatten(),
            known,
            fns_weight,
            first_kmer=NATIVE.first_kmer,
        )


def llama_config(config: TrainConfig) -> LlamaConfig:
    """Return the preset at the run's longest context."""
    llama = PRESETS[config.model.preset]()
    llama.max_position_embeddings = config.longest_context_tokens
    return llama


def set_rope_theta(llama: LlamaForCausalLM, theta: float) -> None:
    """Let the rotary embedding, and the configuration that an export has, be those of a theta."""
    rope: Any = llama.config.rope_parameters
    if rope["rope_theta"] == theta:
        return
    rope["rope_theta"] = theta
    rotary = llama.model.rotary_emb
    device = rotary.inv_freq.device
    llama.model.rotary_emb = type(rotary)(llama.config).to(device)


def build_network(config: TrainConfig, ranks: Ranks) -> TrainedNetwork:
    """Make the network with seeded weights, the same for any number of processes, and shard it."""
    torch.manual_seed(config.seed)
    with torch.device("cpu"):
        network = TrainedNetwork(LlamaForCausalLM(llama_config(config)))
    return shard(network.to(ranks.device), ranks)


def shard(network: TrainedNetwork, ranks: Ranks) -> TrainedNetwork:
    """Shard every decoder layer, then what is left; bf16 with fp32 master weights on a GPU."""
    policy = MixedPrecisionPolicy()
    if ranks.device.type == "cuda":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in network.llama.model.layers:
        fully_shard(layer, mesh=ranks.mesh, mp_policy=policy)
    fully_shard(network, mesh=ranks.mesh, mp_policy=policy)
    return network


def build_optimizer(config: TrainConfig, network: TrainedNetwork) -> torch.optim.AdamW:
    """Make AdamW with weight decay on matrices only."""
    settings = config.optimizer
    parameters = list(network.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups, lr=0.0, betas=(settings.beta1, settings.beta2), eps=settings.epsilon
    )


def flops_a_token(llama: LlamaConfig, context_tokens: int) -> int:
    """Return operations of forward and backward a token: 6 a weight, 6 l d t for attention.

    The count of Chowdhery and others (PaLM, appendix B), with half of the attention since it is
    causal, and only the rows of the head that are used.
    """
    width = int(llama.hidden_size)
    kv_width = width // int(llama.num_attention_heads) * int(llama.num_key_value_heads or 0)
    layer = 2 * width * (width + kv_width) + 3 * width * llama.intermediate_size
    weights = llama.num_hidden_layers * layer + NUM_KMERS * width
    return int(6 * (weights + llama.num_hidden_layers * width * context_tokens))
