"""A training step on rows of random tokens: the trainer's, and a plain loop's over `transformers`.

The plain loop computes FNS as 24 masked sums. Used by `bench/gpu.py`.
"""

from collections.abc import Callable
from typing import Any

import torch

from carbon.losses.objectives import FNS
from carbon.tokenizer import NATIVE
from train.config import TrainConfig
from train.distributed.context import Batch, packed_batch
from train.distributed.mesh import Ranks, trained_parameters
from train.distributed.parallelize import build_stages
from train.distributed.pipeline import Pipeline, finish_gradients
from train.models.network import build_network
from train.optim import make_optimizers

ROW_TOKENS = 8192


def config_of(
    preset: str, activation_checkpointing: str, row_tokens: int = ROW_TOKENS
) -> TrainConfig:
    """Return a run's settings; its data are not read."""
    phase = {
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
        "phases": [phase],
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
