"""Learning labels: tokens a second against a plain trainer, a probe against one pass, memory."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import Measure, in_own_process
from transformers import (
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    Trainer,
    TrainingArguments,
)

from carbon.adapt.config import WayConfig
from carbon.adapt.examples import Examples
from carbon.adapt.folder import Manifest
from carbon.adapt.job import begin
from carbon.adapt.network import OpenedModel
from carbon.adapt.probe import probe, vectors_of
from carbon.adapt.question import Question
from carbon.adapt.tuning import LINEAR, tune
from carbon.model import PRESETS, LoadedModel
from carbon.tokenizer import NATIVE, encode

QUESTION = Question("binary", ("no", "yes"), "binary_cross_entropy")
BATCH = 16


def measures(quick: bool) -> list[Measure]:
    """Measure all, on sequences of 100 to 500 bp and on such of one length."""
    number = 32 if quick else 256
    found = []
    for name in ("lora", "full"):
        for kind, shortest_bp in (("100 to 500 bp", 100), ("all of 500 bp", 500)):
            examples = examples_of(number, shortest_bp)
            times = best_of(
                2 if quick else 3,
                lambda n=name, e=examples: ours(n, e),
                lambda n=name, e=examples: plain(n, e),
            )
            speedup = times[1] / times[0]
            tokens = sum(2 - (-len(s) // 6) for s in examples.sequences) / times[0]
            found.append(
                Measure(
                    f"{name}, {kind}: speed / plain Trainer", speedup, "times", 1.2, speedup >= 1.2
                )
            )
            found.append(Measure(f"{name}, {kind}: tokens a second", tokens, "1/s"))
    found += of_probe(number)
    peaks = {
        name: in_own_process(f"peak_of('{name}')", "rooms.adapt")[1] for name in ("lora", "full")
    }
    found.append(Measure("memory of lora / of full", peaks["lora"] / peaks["full"], "times"))
    return found


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
        parts=("train",) * number,
        groups=("",) * number,
    )


def network() -> LlamaForCausalLM:
    """Return a model of the preset `tiny`, at random."""
    torch.manual_seed(0)
    return LlamaForCausalLM(PRESETS["tiny"]()).eval()


def ours(name: str, examples: Examples) -> float:
    """Return the seconds of one reading by us."""
    way = WayConfig(name=name, epochs=1.0, batch=BATCH, strands="forward", looks_per_epoch=1)
    manifest = Manifest(way=name, base="", base_sha256="", question=QUESTION)
    adapted, _ = begin(LoadedModel(network(), NATIVE), manifest, way, 0)
    few = examples.taken([0, 1])
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        tune(adapted, examples, few, way, 0, Path(folder) / "run")
        return time.process_time() - start


def plain(name: str, examples: Examples) -> float:
    """Return the seconds of one reading by a plain trainer, its batches padded."""
    base = network()
    config = base.config
    config.num_labels, config.pad_token_id = 2, NATIVE.pad
    model: Any = LlamaForSequenceClassification(config)
    model.model = base.model
    if name == "lora":
        from peft import LoraConfig, get_peft_model

        lora = LoraConfig(
            r=8, lora_alpha=16, lora_dropout=0.05, target_modules=list(LINEAR), task_type="SEQ_CLS"
        )
        model = get_peft_model(model, lora)
    rows = [
        {"input_ids": encode(s, close=True).ids, "labels": int(label)}
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
        trainer = Trainer(model, arguments, data_collator=padded, train_dataset=rows)  # type: ignore[arg-type]
        start = time.process_time()
        trainer.train()
        return time.process_time() - start


def padded(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Fill rows up on the right, as stock collators do."""
    longest = max(len(row["input_ids"]) for row in rows)
    ids = torch.full((len(rows), longest), NATIVE.pad)
    for place, row in zip(ids, rows, strict=True):
        place[: len(row["input_ids"])] = torch.from_numpy(row["input_ids"])
    labels = torch.tensor([row["labels"] for row in rows])
    return {"input_ids": ids, "attention_mask": (ids != NATIVE.pad).long(), "labels": labels}


def of_probe(number: int) -> list[Measure]:
    """Measure the states of all layers, and the whole probe, against one pass for the last."""
    examples = examples_of(number, 100)
    way = WayConfig(name="probe", strands="forward")
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
        timed(lambda: vectors_of(opened, [None], examples.sequences, way)),
        timed(lambda: vectors_of(opened, layers, examples.sequences, way)),
        timed(lambda: probe(opened, QUESTION, examples, examples.taken([0, 1]), way)),
    )
    return [
        Measure(
            "states of all layers / one forward pass", every / one, "times", 1.1, every / one <= 1.1
        ),
        Measure("probe with its regressions / one forward pass", whole / one, "times"),
    ]


def peak_of(name: str) -> None:
    """Tune once, for the peak of memory."""
    torch.set_num_threads(1)
    ours(name, examples_of(32, 500))
