"""How fast this machine computes a run's network: one layer of it and its head, timed."""

import re
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from carbon.progress import say
from carbon.tokenizer import NUM_KMERS
from train.config import TrainConfig
from train.models.network import flops_a_token, network_config, stock_network
from train.planning.pipeline import microbatch_rows

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_TIMED_FLOPS = 1e11  # a second or two of a laptop's CPU
_TIMED_STEPS_OF_LAYER = 3


def flops_a_second(config: TrainConfig) -> float:
    """Return what forward and backward reach here, in fp32 on a CPU, counted as the plan counts.

    A network as wide as the run's, of one layer and the head of 4,096 6-mers, reads rows of the
    first phase, fewer or shorter ones where that would take seconds. The threads are torch's.
    """
    say("timing a layer of this network on this machine; --peak-tflops plans for another")
    network = network_config(config)
    context = config.phases[0].context_tokens
    network.num_hidden_layers, network.vocab_size = 1, NUM_KMERS
    wanted = int(_TIMED_FLOPS / flops_a_token(network, context))
    context = max(16, min(context, wanted))
    rows = max(1, min(microbatch_rows(config, context), wanted // context))
    step = _step_of(network, rows, context)
    step()  # allocates, chooses kernels
    seconds = statistics.median(_seconds_of(step) for _ in range(_TIMED_STEPS_OF_LAYER))
    return rows * context * flops_a_token(network, context) / seconds


def _step_of(config: "PreTrainedConfig", rows: int, context_tokens: int) -> "Callable[[], None]":
    import torch

    network = stock_network(config)
    tokens = torch.zeros((rows, context_tokens), dtype=torch.long)

    def step() -> None:
        network(input_ids=tokens, labels=tokens).loss.backward()

    return step


def _seconds_of(step: "Callable[[], None]") -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


_PEAKS: tuple[tuple[tuple[str, ...], float], ...] = (
    (("H100", "PCIe"), 756e12),
    (("H100", "NVL"), 835e12),
    (("H100", "HBM3"), 989e12),  # SXM5, named after its memory
    (("H200", "NVL"), 835e12),
    (("H200",), 989e12),  # SXM
    (("GH200",), 989e12),
    (("A100",), 312e12),  # SXM and PCIe alike
)
"""Words of a GPU's name and its dense bf16 operations a second.

Source: NVIDIA's data sheets of H100 (for NVL that of 2024), H200, GH200 and A100. Those since H100
give numbers with sparsity; the dense ones are half of them.
"""


def peak_flops(gpu: str) -> float | None:
    """Return the peak dense bf16 operations a second of a GPU, by the name that its driver gives.

    None where the name is not in the table, or belongs to a MIG slice, a part of a GPU.
    """
    words = set(re.findall(r"\w+", gpu))
    if "MIG" in words:
        return None
    return next((peak for wanted, peak in _PEAKS if words.issuperset(wanted)), None)
