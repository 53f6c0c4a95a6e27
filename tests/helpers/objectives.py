"""Objectives that no recipe names, a phase, and a head to measure losses on."""

from typing import Any

import torch
from torch import Tensor

from carbon.losses.objectives import Objective
from train.config import PhaseConfig

ALL_THREE = Objective(token=0.5, bases=0.3, uniform=0.2)


def blend(fns_weight: float) -> Objective:
    """Return `(1 - w) CE + w FNS`."""
    return Objective(token=1 - fns_weight, bases=fns_weight)


def smoothed(share: float) -> Objective:
    """Return CE with labels smoothed."""
    return Objective(token=1 - share, uniform=share)


def random_head(num_tokens: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return float64 states, a head of 4,136 rows, true 6-mers, and which bases are known."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(num_tokens, width, generator=generator, dtype=torch.float64)
    weight = torch.randn(4096 + 40, width, generator=generator, dtype=torch.float64)
    kmers = torch.randint(4096, (num_tokens,), generator=generator)
    return hidden, weight, kmers, torch.rand(num_tokens, 6, generator=generator) < 0.8


def phase_of(**changes: Any) -> PhaseConfig:
    """Return a phase of one step of CE over a row of 16 tokens, but for what is changed."""
    settings: dict[str, Any] = {"name": "s", "objective": "ce", "mixture": {"a": 1.0}}
    settings |= {"tokens": 16, "context_tokens": 16, "batch_rows": 1}
    settings |= {"learning_rate": 1.0, "schedule": "constant"}
    return PhaseConfig(**settings | changes)
