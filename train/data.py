"""From the corpus to this process's share of a global batch."""

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from carbon.corpus import (
    PackedSource,
    TokenRow,
    TokenRows,
    check_records,
    open_packed,
    open_store,
    ordered_rows,
    reads_both_strands,
    source_files,
)
from carbon.errors import ConfigError
from train.config import TrainConfig
from train.distributed.context import Batch, ContextShard, packed_batch
from train.distributed.mesh import Ranks
from train.models.start import Start
from train.planning.pipeline import microbatch_rows
from train.schedule import Schedule
from train.signals import signals_held

_WHOLE = ContextShard()
_BLOCK_BASES = 1 << 16


def open_rows(config: TrainConfig, schedule: Schedule, start: Start | None = None) -> TokenRows:
    """Prepare and pack the sources that the run's mixtures name.

    Tags follow the starting checkpoint.

    Raises:
        ConfigError: a source has nothing to train on, or too little for one row of a phase; or
            `data.soft_mask_weight` is set and no source has a soft-masked base.
        CorpusError: a file of it is missing, torn, or another than the manifest names.
    """
    lengths: dict[str, set[int]] = {}
    for span in schedule.spans:
        for name in span.phase.mixture:
            lengths.setdefault(name, set()).add(span.context_tokens)
    sources = {name: _open_source(config, name, lengths[name]) for name in sorted(lengths)}
    prefixes = start.prefixes if start else None
    soft_masks = config.data.soft_mask_weight != 1
    if soft_masks and not any(_has_soft_masks(source.store.bases) for source in sources.values()):
        raise ConfigError(
            f"{config.data.corpus}: has no soft-masked (lower-case) base, and "
            f"data.soft_mask_weight is {config.data.soft_mask_weight:g}; build the corpus from a "
            "soft-masked FASTA, or leave the weight at 1"
        )
    return ordered_rows(config.seed, schedule.rows, sources, prefixes, soft_masks)


def _open_source(config: TrainConfig, name: str, lengths: set[int]) -> PackedSource:
    corpus, name = config.data.place_of(name)
    where = f"{corpus}: source '{name}'"
    files = source_files(corpus, name, "train")
    store = open_store(files, _cache_of(config, corpus), name)
    check_records(corpus, name, "train", store.num_records)
    if store.num_records == 0 or not len(store.bases):
        raise ConfigError(f"{where} has no record to train on; leave it out of the mixtures")
    both_strands = reads_both_strands(corpus, name)
    source = open_packed(store, sorted(lengths), both_strands)
    for row_tokens, packing in source.packings.items():
        # Rows are packed best-fit: if there are two, they are together more than one row's fill.
        if packing.num_rows == 1 and 2 * packing.tokens_of_row(0) < row_tokens:
            raise ConfigError(
                f"{where} has {packing.tokens_of_row(0):,} tokens, less than half a row of "
                f"{row_tokens:,}; give its phase a smaller context_tokens, or leave it out"
            )
    return source


def _has_soft_masks(bases: NDArray[np.uint8]) -> bool:
    """Return whether lower-case letters occur in evenly spread blocks, at most 64 MiB in all."""
    step = max(_BLOCK_BASES, len(bases) // 1024)
    blocks = (bases[at : at + _BLOCK_BASES] for at in range(0, len(bases), step))
    return any((block >= ord("a")).any() for block in blocks)


def _cache_of(config: TrainConfig, corpus: str) -> Path:
    """Return the folder of prepared sources: next to the corpus, or in the user's cache."""
    if config.data.cache:
        return Path(config.data.cache)
    beside = Path(corpus)
    if beside.is_dir() and os.access(beside, os.W_OK):
        return beside / "prepared"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "carbon"


def portions(
    config: TrainConfig, schedule: Schedule, ranks: Ranks, steps: Iterable[int]
) -> Iterator[list[range]]:
    """Return, step by step, the rows this process reads, by microbatches."""
    for step in steps:
        span = schedule.at(step)
        share = span.batch_rows // ranks.shape.dp_size
        first = ranks.shape.dp_rank(ranks.rank) * share
        rows = span.rows_of_step(step)[first : first + share]
        size = microbatch_rows(config, span.context_tokens)
        yield [rows[at : at + size] for at in range(0, len(rows), size)]


def batches(
    rows: TokenRows, config: TrainConfig, schedule: Schedule, ranks: Ranks, steps: Iterable[int]
) -> Iterator[list[Batch]]:
    """Return, step by step, this process's microbatches on its device.

    `data.workers` processes read ahead; neither they nor their number change the rows.
    """
    of_steps = portions(config, schedule, ranks, steps)
    loader: DataLoader[Batch] = DataLoader(
        rows,  # type: ignore[arg-type]  # map-style by its methods
        batch_sampler=(
            list(rows_at_once)
            for of_step in portions(config, schedule, ranks, steps)
            for rows_at_once in of_step
        ),
        collate_fn=partial(collate, share=ranks.share),
        num_workers=config.data.workers,
        multiprocessing_context="spawn" if config.data.workers else None,
        pin_memory=ranks.device.type == "cuda",
    )
    microbatches = _begun(loader)
    for of_step in of_steps:
        yield [next(microbatches).to(ranks.device) for _ in of_step]


def _begun(loader: "DataLoader[Batch]") -> Iterator[Batch]:
    """Start reading; worker processes ignore stop signals and end with the run."""
    if not loader.num_workers:
        return iter(loader)
    with signals_held():
        return iter(loader)


def collate(rows: list[TokenRow], share: ContextShard = _WHOLE) -> Batch:
    """Stack rows of one length, count their pieces, and return the share of a process."""
    columns = (torch.from_numpy(np.stack(column)) for column in zip(*rows, strict=True))
    return share.shared(packed_batch(*columns))
