"""Training next to `transformers.Trainer`, and saving; used by `bench/run.py train`."""

import itertools
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from carbon.tokenizer import NATIVE
from tests.helpers.ranks import run_ranks
from tests.helpers.runs import make_config, make_corpus
from train.config import TrainConfig
from train.data import open_rows
from train.schedule import Schedule

BATCH_ROWS, MICROBATCH_ROWS, ROW_TOKENS = 16, 4, 256
_FNS_ONLY = ("phases.0.objective=fns", "phases.1.objective=fns")


def config_of(folder: Path, *more: str) -> TrainConfig:
    """Return FNS over batches of 16 rows of 256 tokens, in microbatches of four."""
    corpus = make_corpus(folder)
    rows = [f"phases.{i}.batch_rows={BATCH_ROWS}" for i in (0, 1)]
    rows += [f"phases.{i}.context_tokens={ROW_TOKENS}" for i in (0, 1)]
    rows += [f"phases.{i}.tokens={100 * BATCH_ROWS * ROW_TOKENS}" for i in (0, 1)]
    size = f"data.microbatch_tokens={MICROBATCH_ROWS * ROW_TOKENS}"
    return make_config(corpus, folder / "run", size, *rows, *_FNS_ONLY, *more)


def our_speed(config: TrainConfig, steps: int) -> float:
    """Return tokens a second of one process and one thread."""
    (speed,) = run_ranks(1, _our_speed, config, steps)
    return float(speed)


def _our_speed(ranks: Any, config: TrainConfig, steps: int) -> float:
    from train.trainer import Trainer

    metrics = list(itertools.islice(Trainer(config, ranks).steps(), steps + 2))
    return float(statistics.median(m["tokens_per_second"] for m in metrics[2:]))


def usual_speed(config: TrainConfig, steps: int) -> float:
    """Return the speed of `transformers.Trainer` with the same rows, model and sizes.

    FNS is computed as 24 masked sums.
    """
    (speed,) = run_ranks(1, _usual_speed, config, steps)
    return float(speed)


def _usual_speed(ranks: Any, config: TrainConfig, steps: int) -> float:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from train.models.network import build_network

    rows = open_rows(config, Schedule(config))

    class Rows(Dataset[Any]):
        def __len__(self) -> int:
            return len(rows)

        def __getitem__(self, i: int) -> dict[str, Any]:
            return {name: torch.from_numpy(part) for name, part in rows[i]._asdict().items()}

    digits = torch.arange(4096)[:, None] // 4 ** torch.arange(5, -1, -1) % 4
    masks = torch.stack([(digits[:, j] == b).float() for j in range(6) for b in range(4)])

    class MaskedSums(Trainer):
        def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
            targets, known = inputs.pop("targets"), inputs.pop("known")
            p = model(**inputs, use_cache=False).logits[..., NATIVE.kmer_rows].softmax(-1)
            sums = torch.stack([(p * mask).sum(-1) for mask in masks], -1)
            sums = sums.view(*targets.shape, 6, 4)
            true = digits[targets]
            nats = -sums.gather(-1, true[..., None])[..., 0].clamp(min=1e-30).log()
            bits = (known[..., None] >> torch.arange(6, dtype=torch.uint8) & 1).float()
            return (nats * bits).sum() / bits.sum()

    times: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            times.append(time.perf_counter())

    trainer = MaskedSums(
        model=build_network(config),
        args=TrainingArguments(
            str(Path(config.output) / "usual"),
            per_device_train_batch_size=MICROBATCH_ROWS,
            gradient_accumulation_steps=BATCH_ROWS // MICROBATCH_ROWS,
            max_steps=steps + 2,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            remove_unused_columns=False,
            disable_tqdm=True,
        ),
        train_dataset=Rows(),
        callbacks=[Clock()],
    )
    trainer.train()
    taken = statistics.median(b - a for a, b in itertools.pairwise(times[1:]))
    return BATCH_ROWS * ROW_TOKENS / taken


def save_seconds(config: TrainConfig) -> tuple[float, float]:
    """Return the seconds that a save blocks the step loop, in the background and without."""
    (found,) = run_ranks(1, _save_seconds, config)
    return float(found[0]), float(found[1])


def _save_seconds(ranks: Any, config: TrainConfig) -> tuple[float, float]:
    from train.trainer import Trainer

    trainer = Trainer(config, ranks)
    taken = trainer.steps()
    next(taken)
    visible, whole = [], []
    for _ in range(5):
        next(taken)
        start = time.perf_counter()
        trainer.checkpoints.save(trainer.state)
        visible.append(time.perf_counter() - start)
        trainer.checkpoints.finish()
        whole.append(time.perf_counter() - start)
    return statistics.median(visible), statistics.median(whole)
