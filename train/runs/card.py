"""The model card: identity, origin and limits of an exported model."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import safe_open

from carbon import __version__
from carbon.io.files import atomic_file
from carbon.losses.objectives import OBJECTIVES
from carbon.model.architectures import MODEL_SPECS
from carbon.model.folder import read_config
from carbon.progress import shown
from carbon.reports.card import card_front, plain
from carbon.reports.render import render_card
from carbon.tokenizer import NATIVE
from train.config import TrainConfig
from train.optim import OPTIMIZERS
from train.runs.record import (
    RunRecord,
    Work,
    beginning,
    objective_changes,
    read_run,
    recipe_rows,
    results_of,
)
from train.runs.summary import loss_figure
from train.schedule import Schedule

_MOST_LISTED = 20


def write_card(
    run: Path,
    export: Path,
    *,
    corpus_manifest: Mapping[str, Any] | None,
    trained: Work | None = None,
) -> None:
    """Write `README.md` into an exported model's folder, and `curves.png` if a step was taken.

    Args:
        run: folder of the run that the model comes from.
        export: folder of the model.
        corpus_manifest: of the corpus, if it has one.
        trained: the training of all workers that is in the model; None: the steps of the run.

    Raises:
        ConfigError: the run has no config.toml, or a file of it is malformed.
    """
    record = read_run(run)
    figure = loss_figure(record)
    if figure is not None:
        with atomic_file(export / "curves.png") as temporary:
            figure.savefig(temporary, dpi=150, metadata={"Software": None})
    text = render_card(
        "train.md",
        front=card_front("transformers", "text-generation"),
        version=__version__,
        first_kmer=NATIVE.first_kmer,
        parameters=_parameters_of(export),
        trained=trained or _steps_of(record),
        is_drawn=figure is not None,
        **_of_network(record.config, export),
        **_of_run(record),
        **_of_data(record.config, corpus_manifest),
    )
    with atomic_file(export / "README.md") as temporary:
        temporary.write_text(text, encoding="utf-8")


def _parameters_of(export: Path) -> int:
    count = 0
    for path in sorted(export.glob("*.safetensors")):
        with safe_open(path, framework="np") as weights:
            count += sum(math.prod(weights.get_slice(key).get_shape()) for key in weights.keys())  # noqa: SIM118
    return count


def _steps_of(record: RunRecord) -> Work:
    """Return the training that the lines of a run record, for a run without workers."""
    last = record.steps[-1] if record.steps else {"step": 0, "tokens": 0}
    return Work(last["tokens"], last["step"])


def _of_network(config: TrainConfig, export: Path) -> dict[str, Any]:
    """Return the architecture of an exported model, or of its recipe, and its vocabulary's kind.

    A hybrid needs its special tokenizer.
    """
    has_config = (export / "config.json").is_file()
    exported = read_config(export) if has_config else {}
    name = exported.get("model_type", config.model.architecture)
    is_hybrid = has_config and exported["vocab_size"] != NATIVE.size
    return {"architecture": MODEL_SPECS[name].label, "is_hybrid": is_hybrid}


def _of_run(record: RunRecord) -> dict[str, Any]:
    """Return what the recipe and the lines of a run say."""
    config, workers = record.config, record.config.workers
    # The lines of a worker's folder cover only its steps.
    of_worker = f" of {plain(record.name)}" if workers.count > 1 or workers.store else ""
    recipe = [row for row in recipe_rows(record) if not of_worker or row[0] != "steps taken"]
    return {
        "run": record,
        "config": config,
        "beginning": beginning(config),
        "planned_steps": Schedule(config).total_steps,
        "optimizer": OPTIMIZERS[config.optimizer.name].label(config.optimizer),
        "objectives": {p.objective: OBJECTIVES[p.objective].meaning for p in config.phases},
        "changes": objective_changes(record),
        "skipped": sum("skipped" in line for line in record.steps),
        "of_worker": of_worker,
        "recipe": recipe,
        "results": [(n, f"{value:.4f}", f"{step:,}") for n, step, value in results_of(record)],
    }


def _of_data(config: TrainConfig, manifest: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what a manifest says of the sources, and of the files that went in, by name."""
    known: Mapping[str, Any] = {"sources": {}} if manifest is None else manifest
    rows = []
    for source, splits in known["sources"].items():
        readers = [phase.name for phase in config.phases if source in phase.mixture]
        counts = [
            splits.get(split, {}).get(key, 0)
            for split in ("train", "test")
            for key in ("records", "bases")
        ]
        rows.append((source, *map(shown, counts), ", ".join(readers) or "none"))
    inputs = []
    for each in known.get("inputs", []):
        origin = [str(each["recipe"].get(key, "")) for key in ("organism", "accession", "licence")]
        for file in each["files"]:  # their folders are nobody else's business
            inputs.append((*origin, Path(file["path"]).name, file["sha256"][:12]))
    return {
        "manifest": manifest,
        "sources": sorted({source for phase in config.phases for source in phase.mixture}),
        "source_rows": rows,
        "evaluations": [
            f"{Path(each['path']).name} ({each['sha256'][:12]})"
            for each in known.get("evaluations") or ()
        ],
        "inputs": inputs,
        "listed": _listed,
        "most_listed": _MOST_LISTED,
    }


def _listed(names: Sequence[object]) -> str:
    more = f" and {len(names) - _MOST_LISTED:,} more" if len(names) > _MOST_LISTED else ""
    return plain(", ".join(map(str, names[:_MOST_LISTED]))) + more
