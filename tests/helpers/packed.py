"""Small networks over packed rows, one for each way to attend."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from train.distributed.attention import use_attention
from train.distributed.context import Batch, packed_batch
from train.distributed.stage import DecoderStage, recompute
from train.planning.compute import ACTIVATION_CHECKPOINTINGS, ATTENTIONS

WITHOUT_MASK = [name for name, each in ATTENTIONS.items() if not each.has_mask]


def batch(lengths: list[list[int]], seed: int = 0) -> Batch:
    """Return rows with pieces of these lengths, the last one filled up with padding."""
    longest = max(map(sum, lengths))
    rows = [[*row, longest - sum(row)] for row in lengths]
    positions = torch.stack([torch.cat([torch.arange(n) for n in row]) for row in rows])
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(128, 4224, positions.shape, generator=generator)
    known = torch.full(positions.shape, 63, dtype=torch.uint8)
    return packed_batch(ids, positions, ids - 128, known)


def part(name: str, layers: range = range(2), checkpointing: str = "none") -> DecoderStage:
    """Return a network of four heads of queries and two of keys, the same for every name."""
    llama = LlamaConfig(
        vocab_size=4224, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, initializer_range=0.2, pad_token_id=1,
    )  # fmt: skip
    torch.manual_seed(0)
    network = LlamaForCausalLM(llama)
    use_attention(network.config, name)
    found = DecoderStage(network, layers)
    for layer in found.layers():
        recompute(layer, ACTIVATION_CHECKPOINTINGS[checkpointing])
    found.sums = torch.zeros(6, dtype=torch.float64)
    found.set_rope_theta(1e4, torch.device("cpu"))
    return found


def loss_and_gradients(network: DecoderStage, given: Batch) -> list[torch.Tensor]:
    told = given._asdict()
    loss = network(told.pop("input_ids"), **told)
    loss.backward()
    found = [loss.detach(), *(p.grad for p in network.parameters())]
    network.zero_grad()
    return found
