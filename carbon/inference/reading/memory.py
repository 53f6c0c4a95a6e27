"""How many tokens memory holds at a time, and whether it ran out."""

import os
from typing import Any

import torch

_CPU_BATCH_TOKENS = 8_192  # more at a time is slower
_MEMORY_SHARE = 0.5  # of what the weights leave, for one forward pass


def is_out_of_memory(error: RuntimeError) -> bool:
    """Tell whether memory ran out, of a GPU or of the machine."""
    if isinstance(error, torch.OutOfMemoryError):
        torch.cuda.empty_cache()
        return True
    return "can't allocate memory" in str(error)  # what the allocator of the CPU says


def batch_tokens_of(network: Any) -> int:
    """Return the tokens of one pass that memory holds: a power of two.

    It follows from the size of the memory and not from what is free at the moment, so that a run is
    cut into the same batches every time.
    """
    config = network.config
    weights = list(network.parameters())
    device, itemsize = network.device, weights[0].dtype.itemsize
    weight_bytes = sum(w.numel() * w.dtype.itemsize for w in weights)
    if device.type == "cuda":
        memory_bytes = torch.cuda.get_device_properties(device).total_memory
    else:
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    head_dim = config.head_dim or config.hidden_size // config.num_attention_heads
    kv_width = 2 * config.num_hidden_layers * config.num_key_value_heads * head_dim
    # One layer's activations are alive at a time, the keys and values of all of them.
    token_bytes = itemsize * (kv_width + 12 * config.hidden_size + 4 * config.intermediate_size)
    room = _MEMORY_SHARE * (memory_bytes - weight_bytes) / token_bytes
    tokens = 1 << max(int(room).bit_length() - 1, 5)
    return tokens if device.type == "cuda" else min(tokens, _CPU_BATCH_TOKENS)
