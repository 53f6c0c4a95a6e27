"""What a stopped run was a run of: it resumes only with equal settings, data and base model.

The progress folder keeps this in `identity.json`. Paths say nothing about content, so files count
by their SHA-256, and the examples by what was made of the files.
"""

import hashlib
import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from carbon.errors import UserError
from carbon.finetune.batches import room_bp
from carbon.finetune.checkpoints import FINISHED
from carbon.finetune.config import FinetuneConfig, WayConfig
from carbon.finetune.data import Examples
from carbon.finetune.folder import Manifest, weights_sha256
from carbon.finetune.load import head_for, with_linear
from carbon.finetune.network import FinetunedNetwork, OpenedModel
from carbon.finetune.outcome import Learned, results_of, write_outcome
from carbon.finetune.predict import FinetunedModel, predictions_of
from carbon.finetune.prepare import Prepared, made_readable, prepare
from carbon.finetune.probe import probe
from carbon.finetune.recipes import read_run
from carbon.finetune.train import tune, with_lora
from carbon.inference import load
from carbon.io.config import with_overrides
from carbon.io.files import atomic_file, content_sha256
from carbon.io.locks import locked_output
from carbon.model import model_folder
from carbon.model.folder import weight_files
from carbon.progress import say
from carbon.reports.figures import check_installed

IDENTITY = "identity.json"

Identity = dict[str, dict[str, Any]]


def run_identity(config: FinetuneConfig, prepared: Prepared) -> Identity:
    """Return the settings by dotted key, and the SHA-256 of files, model and examples by name."""
    folder = model_folder(config.model).path
    model = [*weight_files(folder), folder / "config.json"]
    hashes = {f"{each['role']} ({each['name']})": each["sha256"] for each in prepared.files}
    hashes |= {f"base model ({path.name})": content_sha256(path) for path in model}
    hashes |= {"set of examples": _sha256_of(prepared.examples)}
    plain: Identity = json.loads(
        json.dumps({"settings": dict(_flat(config.to_table())), "hashes": hashes})
    )
    return plain


def write_identity(folder: Path, identity: Identity) -> None:
    """Write `identity.json` into the progress folder of a run."""
    with atomic_file(folder / IDENTITY) as temporary:
        temporary.write_text(json.dumps(identity, indent=1), encoding="utf-8")


def check_identity(folder: Path, identity: Identity, what: str) -> None:
    """Compare a run with the one that its progress folder is of.

    Args:
        folder: progress folder, with `identity.json`.
        identity: of the run that is to resume.
        what: opens the message.

    Raises:
        UserError: a setting, a file, the base model or the examples have changed; the message names
            each change.
    """
    try:
        earlier = json.loads((folder / IDENTITY).read_text(encoding="utf-8"))
        changes = [
            *_changed_settings(earlier["settings"], identity["settings"]),
            *_changed_hashes(earlier["hashes"], identity["hashes"]),
        ]
    except (OSError, ValueError, KeyError):
        changes = [f"{folder / IDENTITY} cannot be read"]
    if changes:
        raise UserError(
            f"{what}: cannot resume: {'; '.join(changes)}. Restore what the run was started with, "
            f"or remove {folder} to start again"
        )


def _changed_settings(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(earlier.keys() | now.keys()):
        if earlier.get(key) != now.get(key):
            yield f"{key} was {earlier.get(key)!r} and is {now.get(key)!r}"


def _changed_hashes(earlier: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield the files that differ; the examples follow from them, and count where none does."""
    names = [n for n in sorted(earlier.keys() | now.keys()) if earlier.get(n) != now.get(n)]
    for name in names if len(names) == 1 else (n for n in names if n != "set of examples"):
        yield f"the {name} has changed"


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _sha256_of(examples: Examples) -> str:
    """Return the SHA-256 of examples in their order, labels included."""
    texts = (examples.names, examples.sequences, examples.parts, examples.groups)
    digest = hashlib.sha256(json.dumps(texts).encode())
    digest.update(examples.labels.tobytes())
    return digest.hexdigest()


def as_config(
    config: FinetuneConfig | Mapping[str, Any] | str | Path, overrides: Sequence[str] = ()
) -> FinetuneConfig:
    """Return a configuration of a file, of a recipe, of plain values, or as it is."""
    if isinstance(config, FinetuneConfig):
        if overrides:
            raise UserError("overrides: of a file or of plain values; change the configuration")
        return config
    if isinstance(config, Mapping):
        return FinetuneConfig.from_table(with_overrides(config, overrides), "config")
    return read_run(config, overrides)


def plan_finetune(config: FinetuneConfig) -> dict[str, Any]:
    """Read and check all that a run begins with; return what would be done.

    Raises:
        UserError: anything is wrong with data or model.
    """
    prepared = _prepared(config)
    num = {part: len(prepared.examples.part(part)) for part in ("train", "validation", "test")}
    steps = math.ceil(-(-num["train"] // config.way.batch_sequences) * config.way.most_epochs)
    return {
        "model": str(model_folder(config.model).path),
        "way": config.way.name,
        "examples": num,
        "question": prepared.question.to_json(),
        "most_steps": None if config.way.name == "probe" else steps,
        "split_sha256": prepared.split_hash,
        "told": list(prepared.told),
    }


def run_finetune(config: FinetuneConfig, *, resume: bool = False, rank: int = 0) -> dict[str, Any]:
    """Learn labels and write the folder; return the results.

    Args:
        config: what to do.
        resume: go on with the checkpoints of a run that was stopped.
        rank: of this process under `torchrun`; the first writes.

    Raises:
        UserError: anything is wrong with data or model, the output is there already, or another
            run writes it.
    """
    locked = locked_output(config.output_folder) if rank == 0 else nullcontext()
    with locked:
        return _run_alone(config, resume=resume, rank=rank)


def _run_alone(config: FinetuneConfig, *, resume: bool, rank: int) -> dict[str, Any]:
    with_progress = config.output_folder.with_name(f".{config.output_folder.name}.progress")
    if rank == 0:
        check_installed("matplotlib", "finetune")
        _check_output(config, with_progress, resume)
    prepared = _prepared(config)
    for line in prepared.told if rank == 0 else ():
        say(line)
    if rank == 0:
        _keep(config, prepared, with_progress)
    elif config.way.name == "probe":
        return {}  # one process does it
    try:
        return _run(config, prepared, with_progress, resume=resume, rank=rank)
    except BaseException:
        if rank == 0:
            _say_what_is_kept(with_progress)
        raise


def _run(
    config: FinetuneConfig, prepared: Prepared, with_progress: Path, *, resume: bool, rank: int
) -> dict[str, Any]:
    best: Learned | None = None
    histories = []
    for seed in config.seeds:
        learned = _LEARN[config.way.name](config, prepared, seed, with_progress, resume)
        histories.append({"seed": seed, "score": learned.score, **learned.history})
        best = learned if best is None or learned.score > best.score else best
    assert best is not None
    said = {
        part: predictions_of(best.finetuned, prepared.examples.part(part), config.way)
        for part in ("validation", "test")
    }
    _leave_group()
    if rank != 0:
        return {}
    prepared = prepared._replace(told=(*prepared.told, *best.told))
    results = results_of(config, prepared, said, histories)
    write_outcome(config, prepared, best, said, results)
    shutil.rmtree(with_progress)
    return results


def _check_output(config: FinetuneConfig, progress: Path, resume: bool) -> None:
    output = config.output_folder
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"{output}: exists already; remove it or name another output")
    if (progress / IDENTITY).is_file() and not resume:
        raise UserError(
            f"{output}: an earlier run was stopped; go on with --resume, or remove {progress}"
        )


def _keep(config: FinetuneConfig, prepared: Prepared, progress: Path) -> None:
    """Write what the run is a run of; where an earlier run did, refuse to be another run."""
    identity = run_identity(config, prepared)
    if (progress / IDENTITY).exists() or any(progress.glob("seed-*")):
        check_identity(progress, identity, str(config.output_folder))
    progress.mkdir(parents=True, exist_ok=True)
    write_identity(progress, identity)


def _say_what_is_kept(progress: Path) -> None:
    """Tell how to go on, if anything was reached; otherwise leave nothing."""
    if any(progress.glob("*/checkpoint-*")) or any(progress.glob(f"*/{FINISHED}")):
        say(f"checkpoints are kept in {progress}; go on with --resume")
    else:
        shutil.rmtree(progress, ignore_errors=True)


def _prepared(config: FinetuneConfig) -> Prepared:
    """Read the data; whatever the model cannot read is said before anything is learned."""
    prepared = prepare(config.data, config.question)
    context_tokens = int(model_folder(config.model).config["max_position_embeddings"])
    room = room_bp(context_tokens, config.way.pool)
    return made_readable(prepared, config.question, config.way, room)


def _manifest(config: FinetuneConfig, prepared: Prepared, folder: Path) -> Manifest:
    lengths_bp = {len(s) for s in prepared.examples.sequences}
    common_bp = lengths_bp.pop() if len(lengths_bp) == 1 else 0
    way: Any = config.way
    return Manifest(
        way=way.name,
        base=str(folder.resolve()) if Path(config.model).exists() else config.model,
        base_sha256=weights_sha256(folder),
        question=prepared.question,
        pool=way.pool,
        layer=way.layer,
        norm=way.name != "probe",
        strands=way.strands,
        too_long=way.too_long,
        window_bp=config.data.window_bp or common_bp,
        data={
            "files": list(prepared.files),
            "split_sha256": prepared.split_hash,
            "told": list(prepared.told),
        },
    )


def _learn_probe(
    config: FinetuneConfig, prepared: Prepared, seed: int, folder: Path, resume: bool
) -> Learned:
    del folder, resume  # it is short
    source = model_folder(config.model).path
    examples = prepared.examples
    found = probe(
        OpenedModel(load(source, dtype="float32").model),
        prepared.question,
        examples.part("train"),
        examples.part("validation"),
        config.way,
        seed,
    )
    for line in found.told:
        say(line)
    prepared = prepared._replace(told=(*prepared.told, *found.told))
    manifest = replace(_manifest(config, prepared, source), layer=found.best.layer)
    finetuned, opened = with_linear(load(source, dtype="float32").model, found.linear, manifest)
    history = {
        "layers": [trial._asdict() for trial in found.trials],
        "layer": found.best.layer,
        "sizes": [size._asdict() for size in found.sizes],
    }
    return Learned(finetuned, opened, found.best.score, history, found.told)


def _learn_weights(
    config: FinetuneConfig, prepared: Prepared, seed: int, folder: Path, resume: bool
) -> Learned:
    source = model_folder(config.model).path
    finetuned, opened = begin(
        load(source, dtype="float32").model, _manifest(config, prepared, source), config.way, seed
    )
    examples = prepared.examples
    tuned = tune(
        finetuned,
        shortened(examples.part("train"), finetuned.room_bp),
        examples.part("validation"),
        config.way,
        seed,
        folder / f"seed-{seed}",
        resume=resume,
    )
    history = {"looks": [look._asdict() for look in tuned.looks], "step": tuned.best.step}
    return Learned(finetuned, opened, tuned.best.score, history)


_LEARN = {"probe": _learn_probe, "lora": _learn_weights, "full": _learn_weights}


def begin(
    model: Any, manifest: Manifest, way: WayConfig, seed: int
) -> tuple[FinetunedModel, OpenedModel]:
    """Return a model with a fresh head, and fresh adapters, by the seed."""
    torch.manual_seed(seed)
    opened = OpenedModel(model, way.layer)
    backbone: Any = opened.backbone
    if way.name == "lora":
        backbone = with_lora(backbone, way, manifest.base)
    head = head_for(manifest, opened.backbone.config.hidden_size)
    network = FinetunedNetwork(backbone, head, per_base=manifest.question.per_base)
    network = network.to(model.network.device)
    return FinetunedModel(network.eval(), model.vocabulary, manifest), opened


def shortened(examples: Examples, room_bp: int) -> Examples:
    """Return examples of which every sequence fits, cut off behind."""
    if max(map(len, examples.sequences)) <= room_bp:
        return examples
    rows = [np.arange(*examples.rows_of(n).indices(len(examples.labels)))[:room_bp]
            for n in range(len(examples))]  # fmt: skip
    return replace(
        examples,
        sequences=tuple(s[:room_bp] for s in examples.sequences),
        labels=examples.labels[np.concatenate(rows)],
    )


def _leave_group() -> None:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
