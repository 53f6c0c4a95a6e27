"""A tiny model, tiny tasks and tiny runs for tests of fine-tuning."""

import copy
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from carbon.finetune.config import MethodConfig
from carbon.finetune.folder import Manifest, weights_sha256
from carbon.finetune.network import FinetunedNetwork, OpenedModel
from carbon.finetune.predict import FinetunedModel, head_for, network_for, write_finetuned
from carbon.finetune.split import Examples
from carbon.finetune.tasks import LabelTask
from carbon.finetune.train import with_lora
from carbon.model import LoadedModel, load_model, save_model
from carbon.tokenizer import NATIVE

BINARY = LabelTask("binary", ("no", "yes"), "binary_cross_entropy")
NUMBERS = LabelTask("numbers", ("a", "b"), "mse")
BASES = LabelTask("bases", ("no", "yes", "maybe"), "cross_entropy")


def examples_of(task: LabelTask, number: int = 24, seed: int = 0) -> Examples:
    """Return sequences of 20 to 80 bp; the label is the GC content, or whether a base is G."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("ACGT"))
    sequences = tuple("".join(rng.choice(letters, rng.integers(20, 80))) for _ in range(number))
    gc = np.array([(s.count("G") + s.count("C")) / len(s) for s in sequences])
    if task.per_base:
        labels = np.array([[float("ACG".find(b) % 3)] for b in "".join(sequences)])
    elif task.type == "numbers":
        labels = np.stack([gc, 1 - gc], axis=1)
    else:
        labels = (gc > np.median(gc)).astype(float)[:, None]
    return Examples(
        names=tuple(f"s{n}" for n in range(number)),
        sequences=sequences,
        labels=labels.astype(np.float32),
        splits=tuple(np.resize(["train", "train", "validation", "test"], number)),
        groups=("",) * number,
        per_base=task.per_base,
    )


def base_folder(tmp_path: Any, network: Any) -> Any:
    """Write a model folder."""
    folder = tmp_path / "base"
    if not folder.exists():
        save_model(copy.deepcopy(network), folder)
    return folder


def finetuned_of(
    folder: Any, task: LabelTask, method: MethodConfig, seed: int = 0
) -> tuple[FinetunedModel, OpenedModel]:
    """Return a fine-tuned model that has learned nothing yet."""
    torch.manual_seed(seed)
    loaded = load_model(folder)
    opened = OpenedModel(LoadedModel(loaded.network, NATIVE), method.layer)
    manifest = Manifest(
        method=method.name,
        base=str(folder),
        base_sha256=weights_sha256(folder),
        task=task,
        pool=method.pool,
        layer=method.layer,
        strands=method.strands,
        too_long=method.too_long,
        k=6,
    )
    backbone = opened.backbone
    if method.name == "lora":
        backbone = with_lora(backbone, method, str(folder))
    head = head_for(manifest, opened.backbone.config.hidden_size)
    network = FinetunedNetwork(backbone, head, per_base=task.per_base, k=6).eval()
    return FinetunedModel(network, NATIVE, manifest), opened


def finetuned_on_stock(folder: Path, task: LabelTask, k: int, **manifest: Any) -> FinetunedModel:
    """Return a stock model of k-mers with a random head."""
    loaded = load_model(folder)
    described = Manifest(
        method="probe", base=str(folder), base_sha256="", task=task, norm=False, k=k, **manifest
    )
    opened = OpenedModel(loaded)
    head = head_for(described, opened.backbone.config.hidden_size)
    torch.manual_seed(0)
    torch.nn.init.normal_(head.linear.weight)
    network = network_for(opened.backbone, head, described).eval()
    return FinetunedModel(network, loaded.vocabulary, described)


def untrained_folder(base: Path, task: LabelTask, folder: Path) -> Path:
    """Write the folder of a fine-tuned model, of the method `full`, without training."""
    finetuned, opened = finetuned_of(base, task, MethodConfig(name="full"))
    folder.mkdir()
    write_finetuned(folder, finetuned.network, opened, finetuned.manifest)
    return folder


def write_rows(path: Path, rows: Any, columns: Any = ("id", "sequence", "label")) -> Path:
    """Write a CSV."""
    with path.open("w", newline="") as sink:
        csv.writer(sink).writerows([columns, *rows])
    return path


def motif_rows(number: int = 80) -> list[tuple[str, str, int]]:
    """Return sequences of 40 bp; every second one has a motif."""
    rng = np.random.default_rng(0)
    drawn = ["".join(rng.choice(list("ACGT"), 40)) for _ in range(number)]
    return [
        (f"s{n}", s[:12] + "TATAAATATAAA" + s[24:] if n % 2 else s, n % 2)
        for n, s in enumerate(drawn)
    ]


def run_config(folder: Path, kind: str = "binary", **method: Any) -> dict[str, Any]:
    """Return a run on `data.csv` and the model `base` of a folder, as plain values."""
    return {
        "model": str(folder / "base"),
        "output": str(folder / "out"),
        "data": {
            "path": str(folder / "data.csv"),
            "name": "id",
            "split": {"validation_share": 0.25, "test_share": 0.25},
        },
        "task": {"type": kind},
        "method": {"dropout": 0.0, "epochs": 1.0, "batch": 8, **method},
        "baselines": [],
    }


def strict_json(path: Path) -> Any:
    """Read JSON that has no NaN and no infinity."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
