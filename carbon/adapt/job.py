"""A run of `carbon adapt`: data, split, way, baselines beside it, and what comes out."""

import math
import shutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from carbon.adapt.batches import room_bp
from carbon.adapt.checkpoints import FINISHED
from carbon.adapt.config import AdaptConfig, WayConfig
from carbon.adapt.examples import Examples
from carbon.adapt.folder import Manifest, weights_sha256
from carbon.adapt.identity import IDENTITY, check_identity, run_identity, write_identity
from carbon.adapt.loading import head_for, with_linear
from carbon.adapt.measuring import predictions_of
from carbon.adapt.network import AdaptedNetwork, OpenedModel
from carbon.adapt.outcome import Learned, results_of, write_outcome
from carbon.adapt.predictor import Adapted
from carbon.adapt.prepare import Prepared, prepare
from carbon.adapt.probe import probe
from carbon.adapt.readable import made_readable
from carbon.adapt.recipes import read_run
from carbon.adapt.tuning import tune, with_lora
from carbon.console import say
from carbon.errors import UserError
from carbon.inference import load
from carbon.io.config import with_overrides
from carbon.io.locks import locked_output
from carbon.model import model_folder
from carbon.pictures import check_installed


def as_config(
    config: AdaptConfig | Mapping[str, Any] | str | Path, overrides: Sequence[str] = ()
) -> AdaptConfig:
    """Return a configuration of a file, of a recipe, of plain values, or as it is."""
    if isinstance(config, AdaptConfig):
        if overrides:
            raise UserError("overrides: of a file or of plain values; change the configuration")
        return config
    if isinstance(config, Mapping):
        return AdaptConfig.from_table(with_overrides(config, overrides), "config")
    return read_run(config, overrides)


def plan_adapt(config: AdaptConfig) -> dict[str, Any]:
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


def run_adapt(config: AdaptConfig, *, resume: bool = False, rank: int = 0) -> dict[str, Any]:
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


def _run_alone(config: AdaptConfig, *, resume: bool, rank: int) -> dict[str, Any]:
    with_progress = config.output_folder.with_name(f".{config.output_folder.name}.progress")
    if rank == 0:
        check_installed("matplotlib", "adapt")
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
    config: AdaptConfig, prepared: Prepared, with_progress: Path, *, resume: bool, rank: int
) -> dict[str, Any]:
    best: Learned | None = None
    histories = []
    for seed in config.seeds:
        learned = _LEARN[config.way.name](config, prepared, seed, with_progress, resume)
        histories.append({"seed": seed, "score": learned.score, **learned.history})
        best = learned if best is None or learned.score > best.score else best
    assert best is not None
    said = {
        part: predictions_of(best.adapted, prepared.examples.part(part), config.way)
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


def _check_output(config: AdaptConfig, progress: Path, resume: bool) -> None:
    output = config.output_folder
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"{output}: exists already; remove it or name another output")
    if (progress / IDENTITY).is_file() and not resume:
        raise UserError(
            f"{output}: an earlier run was stopped; go on with --resume, or remove {progress}"
        )


def _keep(config: AdaptConfig, prepared: Prepared, progress: Path) -> None:
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


def _prepared(config: AdaptConfig) -> Prepared:
    """Read the data; whatever the model cannot read is said before anything is learned."""
    prepared = prepare(config.data, config.question)
    context_tokens = int(model_folder(config.model).config["max_position_embeddings"])
    room = room_bp(context_tokens, config.way.pool)
    return made_readable(prepared, config.question, config.way, room)


def _manifest(config: AdaptConfig, prepared: Prepared, folder: Path) -> Manifest:
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
    config: AdaptConfig, prepared: Prepared, seed: int, folder: Path, resume: bool
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
    adapted, opened = with_linear(load(source, dtype="float32").model, found.linear, manifest)
    history = {
        "layers": [trial._asdict() for trial in found.trials],
        "layer": found.best.layer,
        "sizes": [size._asdict() for size in found.sizes],
    }
    return Learned(adapted, opened, found.best.score, history, found.told)


def _learn_weights(
    config: AdaptConfig, prepared: Prepared, seed: int, folder: Path, resume: bool
) -> Learned:
    source = model_folder(config.model).path
    adapted, opened = begin(
        load(source, dtype="float32").model, _manifest(config, prepared, source), config.way, seed
    )
    examples = prepared.examples
    tuned = tune(
        adapted,
        shortened(examples.part("train"), adapted.room_bp),
        examples.part("validation"),
        config.way,
        seed,
        folder / f"seed-{seed}",
        resume=resume,
    )
    history = {"looks": [look._asdict() for look in tuned.looks], "step": tuned.best.step}
    return Learned(adapted, opened, tuned.best.score, history)


_LEARN = {"probe": _learn_probe, "lora": _learn_weights, "full": _learn_weights}


def begin(model: Any, manifest: Manifest, way: WayConfig, seed: int) -> tuple[Adapted, OpenedModel]:
    """Return a model with a fresh head, and fresh adapters, by the seed."""
    torch.manual_seed(seed)
    opened = OpenedModel(model, way.layer)
    backbone: Any = opened.backbone
    if way.name == "lora":
        backbone = with_lora(backbone, way, manifest.base)
    head = head_for(manifest, opened.backbone.config.hidden_size)
    network = AdaptedNetwork(backbone, head, per_base=manifest.question.per_base)
    network = network.to(model.network.device)
    return Adapted(network.eval(), model.vocabulary, manifest), opened


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
