"""A training step next to `transformers.Trainer`, and the idle share of every pipeline schedule."""

import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import bubbles
import torch
from masked_sums import MaskedSums
from measure import Measure, at_least, at_most
from torch.utils.data import Dataset

from tests.helpers.ranks import run_ranks
from tests.helpers.runs import make_config, make_corpus
from train.config import ParallelConfig, PipelineScheduleName, TrainConfig
from train.data import open_rows
from train.planning.plan import idle_share
from train.schedule import Schedule

BATCH_ROWS, MICROBATCH_ROWS, ROW_TOKENS = 16, 4, 256


def measures(quick: bool) -> list[Measure]:
    steps = 5 if quick else 20
    schedules = [
        ParallelConfig(pipeline=2, schedule=name) for name in get_args(PipelineScheduleName)
    ]
    with tempfile.TemporaryDirectory() as folder:
        config = config_of(Path(folder))
        (ours,) = run_ranks(1, our_speed, config, steps)
        (usual,) = run_ranks(1, usual_speed, config, steps)
        mini = config_of(Path(folder) / "mini", "model.preset=mini")
        shares = bubbles.measured_idle(mini, schedules, 3 if quick else 8)
    found = [
        Measure("tokens_per_second", ours, "tok/s"),
        Measure("transformers_trainer", usual, "tok/s"),
        at_least("against_transformers_trainer", ours / usual, "times", 1.5),
    ]
    for schedule, idle in zip(schedules, shares, strict=True):
        found += of_schedule(schedule, idle)
    return found


def of_schedule(schedule: ParallelConfig, idle: bubbles.Idle) -> Iterator[Measure]:
    """Yield the idle share next to the formula, and next to the share that stages explain."""
    name = f"idle:{schedule.schedule}"
    formula = idle_share(schedule, BATCH_ROWS // MICROBATCH_ROWS)
    yield at_most(name, 100 * idle.measured, "%", 100 * idle.uneven + 2)
    yield Measure(f"{name}:formula", 100 * formula, "%")
    slowest = max(idle.stage_seconds) / min(idle.stage_seconds)
    yield Measure(f"{name}:slowest_stage", slowest, "times")


def config_of(folder: Path, *more: str) -> TrainConfig:
    """Return FNS over batches of 16 rows of 256 tokens, in microbatches of four."""
    words = [f"data.microbatch_tokens={MICROBATCH_ROWS * ROW_TOKENS}"]
    for i in (0, 1):
        words += [
            f"phases.{i}.objective=fns",
            f"phases.{i}.batch_rows={BATCH_ROWS}",
            f"phases.{i}.context_tokens={ROW_TOKENS}",
            f"phases.{i}.tokens={100 * BATCH_ROWS * ROW_TOKENS}",
        ]
    return make_config(make_corpus(folder), folder / "run", *words, *more)


def our_speed(ranks: Any, config: TrainConfig, steps: int) -> float:
    """Return tokens a second of one process and one thread."""
    from train.trainer import Trainer

    metrics = list(itertools.islice(Trainer(config, ranks).steps(), steps + 2))
    return float(statistics.median(m["tokens_per_second"] for m in metrics[2:]))


def usual_speed(ranks: Any, config: TrainConfig, steps: int) -> float:
    """Return the speed of `transformers.Trainer` with the same rows, model and sizes."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from train.models.network import build_network

    rows, loss_of = open_rows(config, Schedule(config)), MaskedSums("cpu")

    class Rows(Dataset[Any]):
        def __len__(self) -> int:
            return len(rows)

        def __getitem__(self, i: int) -> dict[str, Any]:
            return {name: torch.from_numpy(part) for name, part in rows[i]._asdict().items()}

    class FnsTrainer(Trainer):
        def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
            targets, known = inputs.pop("targets"), inputs.pop("known")
            return loss_of(model(**inputs, use_cache=False).logits, targets, known)

    times: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            times.append(time.perf_counter())

    trainer = FnsTrainer(
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
