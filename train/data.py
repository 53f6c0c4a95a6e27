"""From the corpus to this process's share of a global batch."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from carbon.corpus import (
    PackedSource,
    SampleOrder,
    StageRows,
    TokenRows,
    open_packing,
    open_store,
    source_files,
)
from carbon.errors import ConfigError
from train.config import TrainConfig
from train.ranks import Ranks


class Batch(NamedTuple):
    """B rows of T tokens on the device; `known` is (B * T, 6) bool."""

    input_ids: Tensor
    position_ids: Tensor
    targets: Tensor
    known: Tensor


def open_rows(config: TrainConfig) -> TokenRows:
    """Read and pack the sources that the run's mixtures name."""
    names = sorted({name for stage in config.stages for name in stage.mixture})
    sources = {name: _open_source(config, name) for name in names}
    order = SampleOrder(
        config.seed,
        tuple(
            StageRows(config.stage_steps(stage) * config.data.batch_rows, stage.mixture)
            for stage in config.stages
        ),
        {name: source.packing.num_rows for name, source in sources.items()},
    )
    return TokenRows(order, sources, config.data.context_tokens)


def _open_source(config: TrainConfig, name: str) -> PackedSource:
    files = source_files(config.data.corpus, name, "train")
    store = open_store(files, _cache_of(config), name)
    if store.num_records == 0:
        raise ConfigError(f"{config.data.corpus}: source '{name}' has no record to train on")
    packing = open_packing(store, config.data.context_tokens)
    return PackedSource(store, packing, name in config.data.flip_strands)


def _cache_of(config: TrainConfig) -> Path:
    """Return where prepared sources lie: beside the corpus, or in the user's cache."""
    if config.data.cache:
        return Path(config.data.cache)
    beside = Path(config.data.corpus)
    if beside.is_dir() and os.access(beside, os.W_OK):
        return beside / "prepared"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "carbon"


def check_batch(config: TrainConfig, ranks: Ranks) -> None:
    """Raise ConfigError unless the processes share a batch evenly."""
    if config.data.batch_rows % ranks.world_size:
        raise ConfigError(
            f"data.batch_rows = {config.data.batch_rows} is no multiple of the "
            f"{ranks.world_size} processes; change one of the two"
        )


def microbatches(rows: TokenRows, step: int, config: TrainConfig, ranks: Ranks) -> list[Batch]:
    """Return this process's share of global batch `step`, rows [k G, (k + 1) G), in portions."""
    share = config.data.batch_rows // ranks.world_size
    first = step * config.data.batch_rows + ranks.rank * share
    size = config.data.microbatch_rows
    return [
        _collate(rows, range(at, min(at + size, first + share)), ranks.device)
        for at in range(first, first + share, size)
    ]


def _collate(rows: TokenRows, numbers: range, device: torch.device) -> Batch:
    input_ids, position_ids, targets, known = (
        torch.from_numpy(np.stack(column)).to(device)
        for column in zip(*(rows[i] for i in numbers), strict=True)
    )
    bits = torch.arange(6, device=device)
    return Batch(input_ids, position_ids, targets, known.flatten()[:, None].int() >> bits & 1 == 1)
