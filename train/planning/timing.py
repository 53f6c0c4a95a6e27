"""How fast this machine computes a run's network: one layer of it and its head, timed."""

import statistics
import time
from typing import TYPE_CHECKING

from carbon.progress import say
from carbon.tokenizer import NUM_KMERS
from train.config import TrainConfig
from train.planning.batches import microbatch_rows
from train.planning.sizes import flops_a_token, llama_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers import LlamaConfig

_TIMED_FLOPS = 1e11  # a second or two of a laptop's CPU
_TIMED_STEPS = 3


def flops_a_second(config: TrainConfig) -> float:
    """Return what forward and backward reach here, in fp32 on a CPU, counted as the plan counts.

    A network as wide as the run's, of one layer and the head of 4,096 6-mers, reads rows of the
    first stage, fewer or shorter ones where that would take seconds. The threads are torch's.
    """
    say("timing a layer of this network on this machine; --peak-tflops plans for another")
    llama = llama_config(config)
    context = config.stages[0].context_tokens
    llama.num_hidden_layers, llama.vocab_size = 1, NUM_KMERS
    wanted = int(_TIMED_FLOPS / flops_a_token(llama, context))
    context = max(16, min(context, wanted))
    rows = max(1, min(microbatch_rows(config, context), wanted // context))
    step = _step_of(llama, rows, context)
    step()  # allocates, chooses kernels
    seconds = statistics.median(_seconds_of(step) for _ in range(_TIMED_STEPS))
    return rows * context * flops_a_token(llama, context) / seconds


def _step_of(llama: "LlamaConfig", rows: int, context_tokens: int) -> "Callable[[], None]":
    import torch
    from transformers import LlamaForCausalLM

    network = LlamaForCausalLM(llama)
    tokens = torch.zeros((rows, context_tokens), dtype=torch.long)

    def step() -> None:
        network(input_ids=tokens, labels=tokens).loss.backward()

    return step


def _seconds_of(step: "Callable[[], None]") -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start
