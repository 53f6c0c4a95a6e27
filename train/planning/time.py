"""How fast this machine computes a run's network: one layer of it and its head, timed."""

import re
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carbon.progress import say
from carbon.run_folder import read_lines
from carbon.tokenizer import NUM_KMERS
from train.config import TrainConfig
from train.models.spec import flops_a_token, network_config, spec_of
from train.planning.pipeline import microbatch_rows

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_TIMED_FLOPS = 1e11  # a second or two of a laptop's CPU
_TIMED_STEPS_OF_LAYER = 3


def flops_a_second(config: TrainConfig) -> float:
    """Return what forward and backward reach here, in fp32 on a CPU, counted as the plan counts.

    A network as wide as the run's, of one layer and the head of 4,096 6-mers, reads rows of the
    first stage, fewer or shorter ones where that would take seconds. The threads are torch's.
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

    network = spec_of(config.model_type).build(config)
    tokens = torch.zeros((rows, context_tokens), dtype=torch.long)

    def step() -> None:
        network(input_ids=tokens, labels=tokens).loss.backward()

    return step


def _seconds_of(step: "Callable[[], None]") -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


Settings = dict[str, Any]
"""From a key of the configuration, such as `phases.0.tokens`, to its value."""

_TIMED_STEPS = 16  # of each stage
_STEPS_TO_WARM_UP = 2


def timed_speed(config: TrainConfig, train: Callable[[Settings], None]) -> float:
    """Return the median speed of a short run's steps, in tokens a second.

    Args:
        config: of the run.
        train: runs that configuration with such settings; called once, for a few steps.
    """
    tokens = [_TIMED_STEPS * stage.batch_tokens for stage in config.phases]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        train(_settings_of(config, tokens) | {"output": str(run)})
        steps = read_lines(run).steps[_STEPS_TO_WARM_UP:]
    return float(statistics.median(step["tokens_per_second"] for step in steps))


def shared_out(config: TrainConfig, tokens: int) -> Settings:
    """Return tokens and warm-ups of the phases for a total number of tokens."""
    total = sum(stage.tokens for stage in config.phases)
    return _settings_of(config, [tokens * stage.tokens // total for stage in config.phases])


def _settings_of(config: TrainConfig, tokens: Sequence[int]) -> Settings:
    """Return settings of phases with these tokens; a warm-up takes at most a quarter."""
    settings = {}
    for number, (stage, count) in enumerate(zip(config.phases, tokens, strict=True)):
        steps = -(-count // stage.batch_tokens)
        settings[f"phases.{number}.tokens"] = count
        settings[f"phases.{number}.warmup_steps"] = min(stage.warmup_steps, steps // 4)
    return settings


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
