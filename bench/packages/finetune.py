"""Learning labels: tokens a second against a plain trainer, a probe against one pass, memory."""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import Measure, in_own_process
from transformers import (
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from carbon.finetune.config import LINEAR, MethodConfig, MethodName
from carbon.finetune.folder import Manifest
from carbon.finetune.job import begin
from carbon.finetune.network import OpenedModel
from carbon.finetune.probe import probe, vectors_of
from carbon.finetune.split import Examples
from carbon.finetune.tasks import LabelTask
from carbon.finetune.train import _Trainer
from carbon.model import PRESETS, LoadedModel
from carbon.tokenizer import HYBRID, NATIVE, Vocabulary, encode
from train.models.network import stock_network

QUESTION = LabelTask("binary", ("no", "yes"), "binary_cross_entropy")
BATCH = 16


CASES: tuple[tuple[str, MethodName, int, Vocabulary], ...] = (
    ("lora, 100 to 500 bp", "lora", 100, NATIVE),
    ("lora, all of 500 bp", "lora", 500, NATIVE),
    ("full, 100 to 500 bp", "full", 100, NATIVE),
    ("full, all of 500 bp", "full", 500, NATIVE),
    ("full, 100 to 500 bp, hybrid rows", "full", 100, HYBRID),
)


def measures(quick: bool) -> list[Measure]:
    """Measure the steps of each case, the states of all layers, and memory."""
    number = 96 if quick else 256
    found = []
    for description, name, shortest_bp, vocabulary in CASES:
        found += of_steps(description, name, shortest_bp, vocabulary, number, 1 if quick else 3)
    found += of_probe(number)
    peaks = {
        name: in_own_process(f"peak_of('{name}')", "packages.finetune")[1]
        for name in ("lora", "full")
    }
    found.append(Measure("memory of lora / of full", peaks["lora"] / peaks["full"], "times"))
    return found


def of_steps(
    description: str,
    name: MethodName,
    shortest_bp: int,
    vocabulary: Vocabulary,
    number: int,
    times: int,
) -> list[Measure]:
    """Measure all steps but the first, against a plain trainer on the same batches."""
    examples = examples_of(number, shortest_bp)
    mine, theirs = best_of(
        times,
        lambda: ours(name, examples, vocabulary),
        lambda: plain(name, examples, vocabulary),
    )
    some = examples.sequences[BATCH:]
    tokens = sum(1 - (-len(sequence) // 6) for sequence in some)
    speedup = theirs / mine
    return [
        Measure(f"{description}: speed / plain Trainer", speedup, "times"),
        Measure(f"{description}: tokens a second", tokens / mine, "1/s"),
    ]


def best_of(times: int, *works: Callable[[], float]) -> list[float]:
    """Return the least seconds of the processor that each work took, in turns."""
    return [
        min(each) for each in zip(*([work() for work in works] for _ in range(times)), strict=True)
    ]


def examples_of(number: int, shortest_bp: int) -> Examples:
    """Return random sequences of up to 500 bp."""
    rng = np.random.default_rng(0)
    lengths_bp = rng.integers(shortest_bp, 501, number)
    letters = np.array(list("ACGT"))
    return Examples(
        names=tuple(map(str, range(number))),
        sequences=tuple("".join(rng.choice(letters, size)) for size in lengths_bp),
        labels=(np.arange(number) % 2).astype(np.float32)[:, None],
        splits=("train",) * number,
        groups=("",) * number,
    )


def network(vocabulary: Vocabulary = NATIVE) -> LlamaForCausalLM:
    """Return a model of the preset `tiny`, at random, with the rows of a vocabulary."""
    torch.manual_seed(0)
    found: LlamaForCausalLM = stock_network(PRESETS["tiny"](vocabulary)).train(False)
    return found


def ours(name: MethodName, examples: Examples, vocabulary: Vocabulary = NATIVE) -> float:
    """Return the seconds of one reading by us."""
    method = MethodConfig(
        name=name, epochs=1.0, batch=BATCH, strands="forward", validations_per_epoch=1
    )
    manifest = Manifest(method=name, base="tiny", base_sha256="", task=QUESTION, k=6)
    finetuned, _ = begin(LoadedModel(network(vocabulary), vocabulary), manifest, method, 0)
    few = examples.subset([0, 1])
    with tempfile.TemporaryDirectory() as folder:
        trainer = _Trainer(finetuned, examples, few, method, 0, Path(folder) / "run")
        return seconds_of_steps(trainer)


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


def plain(name: str, examples: Examples, vocabulary: Vocabulary) -> float:
    """Return the seconds of one epoch by a plain trainer, with an attention mask."""
    base = network(vocabulary)
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


def of_probe(number: int) -> list[Measure]:
    """Measure the states of all layers, and the whole probe, against one pass for the last."""
    examples = examples_of(number, 100)
    method = MethodConfig(name="probe", strands="forward")
    opened = OpenedModel(LoadedModel(network(), NATIVE))
    layers = [*range(1, len(opened.backbone.layers)), None]

    def timed(work: Callable[[], Any]) -> Callable[[], float]:
        def run() -> float:
            start = time.process_time()
            work()
            return time.process_time() - start

        return run

    one, every, whole = best_of(
        3,
        timed(lambda: vectors_of(opened, [None], examples.sequences, method)),
        timed(lambda: vectors_of(opened, layers, examples.sequences, method)),
        timed(lambda: probe(opened, QUESTION, examples, examples.subset([0, 1]), method)),
    )
    return [
        Measure(
            "states of all layers / one forward pass", every / one, "times", 1.1, every / one <= 1.1
        ),
        Measure("probe with its regressions / one forward pass", whole / one, "times"),
    ]


def peak_of(name: MethodName) -> None:
    """Tune once, for the peak of memory."""
    torch.set_num_threads(1)
    ours(name, examples_of(32, 500))
