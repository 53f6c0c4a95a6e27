"""Learning labels: tokens a second against a plain trainer, and a probe against one pass."""

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from inputs import random_bases, random_model
from measure import Measure, at_most, in_turns, timed
from transformers import (
    LlamaForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from carbon.finetune.config import LINEAR, MethodConfig, MethodName
from carbon.finetune.folder import Manifest
from carbon.finetune.job import begin
from carbon.finetune.network import OpenedModel
from carbon.finetune.probe import vectors_of
from carbon.finetune.split import Examples
from carbon.finetune.tasks import LabelTask
from carbon.finetune.train import _Trainer
from carbon.tokenizer import encode

QUESTION = LabelTask("binary", ("no", "yes"), "binary_cross_entropy")
BATCH = 16
CASES: tuple[tuple[str, MethodName, int], ...] = (
    ("lora, 100 to 500 bp", "lora", 100),
    ("lora, all of 500 bp", "lora", 500),
    ("full, 100 to 500 bp", "full", 100),
    ("full, all of 500 bp", "full", 500),
)


def measures(quick: bool) -> list[Measure]:
    """Measure the steps of each case but the first, by CPU seconds, and the states of all layers.

    The model is `tiny`.
    """
    number = 96 if quick else 256
    found = []
    for description, name, shortest_bp in CASES:
        examples = examples_of(number, shortest_bp)
        ours, usual = in_turns(
            1 if quick else 3,
            partial(our_seconds, name, examples),
            partial(usual_seconds, name, examples),
        )
        tokens = sum(1 - (-len(sequence) // 6) for sequence in examples.sequences[BATCH:])
        found += [
            Measure(f"{description}: speed / plain Trainer", usual / ours, "times"),
            Measure(f"{description}: tokens a second", tokens / ours, "1/s"),
        ]
    return [*found, of_probe(number)]


def examples_of(number: int, shortest_bp: int) -> Examples:
    """Return random sequences of up to 500 bp."""
    lengths_bp = np.random.default_rng(0).integers(shortest_bp, 501, number).tolist()
    return Examples(
        names=tuple(map(str, range(number))),
        sequences=tuple(random_bases(size, seed) for seed, size in enumerate(lengths_bp)),
        labels=(np.arange(number) % 2).astype(np.float32)[:, None],
        splits=("train",) * number,
        groups=("",) * number,
    )


def our_seconds(name: MethodName, examples: Examples) -> float:
    """Return the seconds of one epoch by Carbon."""
    method = MethodConfig(
        name=name, epochs=1.0, batch=BATCH, strands="forward", validations_per_epoch=1
    )
    manifest = Manifest(method=name, base="tiny", base_sha256="", task=QUESTION, k=6)
    finetuned, _ = begin(random_model("tiny").model, manifest, method, 0)
    few = examples.subset([0, 1])
    with tempfile.TemporaryDirectory() as folder:
        return seconds_of_steps(_Trainer(finetuned, examples, few, method, 0, Path(folder) / "run"))


def seconds_of_steps(trainer: Any) -> float:
    """Train, and return the processor's seconds of all steps but the first."""
    watch = Watch()
    trainer.add_callback(watch)
    trainer.train()
    return watch.ends[-1] - watch.ends[0]


class Watch(TrainerCallback):
    """The processor's time at the end of every step."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Look at the clock."""
        self.ends.append(time.process_time())


def usual_seconds(name: str, examples: Examples) -> float:
    """Return the seconds of one epoch by a plain trainer, with an attention mask."""
    loaded = random_model("tiny").model
    base: Any = loaded.network
    vocabulary = loaded.six_mers
    config = base.config
    config.num_labels = 2
    model: Any = LlamaForSequenceClassification(config)  # type: ignore[no-untyped-call]
    model.model = base.model
    if name == "lora":
        from peft import LoraConfig, get_peft_model

        lora = LoraConfig(
            r=8, lora_alpha=16, lora_dropout=0.05, target_modules=list(LINEAR), task_type="SEQ_CLS"
        )
        model = get_peft_model(model, lora)
    rows = [
        {"input_ids": encode(s, vocabulary, close=True).ids, "labels": int(label)}
        for s, (label,) in zip(examples.sequences, examples.labels, strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            use_cpu=not torch.cuda.is_available(),
            bf16=torch.cuda.is_available(),
            per_device_train_batch_size=BATCH,
            num_train_epochs=1,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            label_names=["labels"],
        )
        trainer = Trainer(
            model, arguments, data_collator=partial(padded, pad=vocabulary.pad), train_dataset=rows
        )
        return seconds_of_steps(trainer)


def padded(rows: list[dict[str, Any]], pad: int) -> dict[str, torch.Tensor]:
    """Fill rows up on the right, as stock collators do."""
    longest = max(len(row["input_ids"]) for row in rows)
    ids = torch.full((len(rows), longest), pad)
    for place, row in zip(ids, rows, strict=True):
        place[: len(row["input_ids"])] = torch.from_numpy(row["input_ids"])
    labels = torch.tensor([row["labels"] for row in rows])
    return {"input_ids": ids, "attention_mask": (ids != pad).long(), "labels": labels}


def of_probe(number: int) -> Measure:
    """Measure the states of all layers against one pass for the last."""
    examples = examples_of(number, 100)
    method = MethodConfig(name="probe", strands="forward")
    opened = OpenedModel(random_model("tiny").model)
    layers = [*range(1, len(opened.backbone.layers)), None]
    one, every = in_turns(
        3,
        *(
            timed(partial(vectors_of, opened, some, examples.sequences, method), time.process_time)
            for some in ([None], layers)
        ),
    )
    return at_most("states of all layers / one forward pass", every / one, "times", 1.1)
