"""Training steps on one GPU: `python bench/gpu_training.py [--output FOLDER] [--steps 10]`.

For `tiny`, `500m` and `3b`: rows of 8,192 random tokens, bf16, layers compiled, activation
checkpointing where it is needed. Tokens a second, MFU, peak memory and where the time goes, beside
a plain loop over stock `transformers` with 24 masked sums and the same microbatches. Medians of
steps after two that are not counted; what does not fit says so.
"""

import argparse
import gc
import itertools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from carbon.losses.objectives import FNS
from carbon.tokenizer import NATIVE
from train.config import ParallelConfig, TrainConfig
from train.distributed.context import Batch, packed_batch
from train.distributed.mesh import Ranks, joined_ranks, trained_parameters
from train.distributed.parallelize import build_stages
from train.distributed.pipeline import Pipeline, finish_gradients
from train.models.spec import build_network, flops_a_token, network_config
from train.optim import make_optimizers

ROW_TOKENS = 8192
PEAK_FLOPS = 989e12  # dense bf16 of H100 SXM and H200 (NVIDIA data sheets)
CASES = [("tiny", "none", 4), ("500m", "none", 2), ("500m", "selective", 4), ("3b", "full", 1)]


def main() -> None:
    """Measure, print and write `gpu_training.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this bench needs a CUDA device")
    rows: list[dict[str, Any]] = [
        {"name": "machine", "value": torch.cuda.get_device_name(), "torch": torch.__version__}
    ]
    with joined_ranks(ParallelConfig()) as ranks:
        for (preset, kept, count), kind in itertools.product(CASES, ("ours", "usual")):
            config = config_of(preset, kept)
            make = our_step if kind == "ours" else usual_step
            name = f"{preset}_{kept}_{count}x{ROW_TOKENS}:{kind}"
            rows.append({"name": name} | measured(make, config, ranks, count, arguments.steps))
            print(json.dumps(rows[-1]), flush=True)
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "gpu_training.json").write_text(
        json.dumps(rows, indent=1) + "\n", encoding="utf-8"
    )


def config_of(
    preset: str, activation_checkpointing: str, row_tokens: int = ROW_TOKENS
) -> TrainConfig:
    """Return a run's settings; nothing of its data is read."""
    stage = {
        "name": "fns",
        "objective": "fns",
        "tokens": row_tokens,
        "mixture": {"none": 1.0},
        "context_tokens": row_tokens,
        "batch_rows": 1,
        "learning_rate": 1e-4,
        "schedule": "constant",
    }
    compute = {"compile": True, "activation_checkpointing": activation_checkpointing}
    table = {
        "output": "none",
        "seed": 0,
        "model": {"preset": preset},
        "data": {"corpus": "none", "microbatch_tokens": row_tokens},
        "compute": compute,
        "phases": [stage],
    }
    return TrainConfig.from_table(table, "bench/gpu_training.py")


def batch_of(rows: int, device: torch.device, row_tokens: int = ROW_TOKENS) -> Batch:
    """Return random rows, each of four pieces."""
    kmers = torch.randint(4096, (rows, row_tokens), device=device)
    positions = torch.arange(row_tokens, device=device) % (row_tokens // 4)
    known = torch.full((rows, row_tokens), 63, dtype=torch.uint8, device=device)
    return packed_batch(
        kmers + NATIVE.first_kmer, positions.expand(rows, -1), kmers.roll(-1, 1), known
    )


def our_step(config: TrainConfig, ranks: Ranks, batch: Batch) -> Callable[[], None]:
    """Return a step of the trainer."""
    parts = build_stages(config, ranks)
    pipeline = Pipeline(config, ranks, parts)
    (optimizer,) = make_optimizers(config.optimizer, trained_parameters(parts))

    def step() -> None:
        sums = pipeline.forward_backward([batch], FNS)
        finish_gradients(parts, ranks, sums.num_tokens, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def usual_step(config: TrainConfig, ranks: Ranks, batch: Batch) -> Callable[[], None]:
    """Return a step as one would write it: stock network in bf16, logits whole, 24 masked sums."""
    network: Any = build_network(config)
    network.to(ranks.device)
    if config.compute.activation_checkpointing != "none":
        network.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    digits = torch.arange(4096, device=ranks.device)[:, None] // 4 ** torch.arange(
        5, -1, -1, device=ranks.device
    )
    masks = [(digits[:, j] % 4 == b).float() for j in range(6) for b in range(4)]

    def step() -> None:
        with torch.autocast(ranks.device.type, torch.bfloat16):
            logits = network(
                input_ids=batch.input_ids, position_ids=batch.position_ids, use_cache=False
            ).logits
        p = logits[..., NATIVE.kmer_rows].float().softmax(-1)
        sums = torch.stack([(p * mask).sum(-1) for mask in masks], -1)
        true = digits[batch.targets] % 4 + 4 * torch.arange(6, device=ranks.device)
        loss = -sums.gather(-1, true).clamp(min=1e-30).log().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def measured(
    make: Callable[..., Callable[[], None]],
    config: TrainConfig,
    ranks: Ranks,
    rows: int,
    steps: int,
) -> dict[str, Any]:
    """Return what a step takes; an error where it does not fit."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    try:
        step = make(config, ranks, batch_of(rows, ranks.device))
        times = [timed(step) for _ in range(steps + 2)][2:]
        with profile(activities=[ProfilerActivity.CUDA]) as trace:
            step()
            torch.cuda.synchronize()
    except torch.cuda.OutOfMemoryError:
        return {"error": "out of memory"}
    speed = rows * ROW_TOKENS / statistics.median(times)
    flops = flops_a_token(network_config(config), ROW_TOKENS)
    spent = sorted(trace.key_averages(), key=lambda e: -e.self_device_time_total)[:12]
    return {
        "tokens_per_second": round(speed),
        "mfu": round(speed * flops / PEAK_FLOPS, 4),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
        "kernels_ms": {e.key[:60]: round(e.self_device_time_total / 1000, 2) for e in spent},
    }


def timed(step: Callable[[], None]) -> float:
    """Return the seconds of one step."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
