"""Run a fine-tuning: check the resumed run's identity, prepare data, fit every seed, write all.

A run resumes only with equal settings, data and base model. The progress folder records them in
`identity.json`: files by their SHA-256, and the examples made of them.
"""

import hashlib
import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.finetune.baselines import has_deltas
from carbon.finetune.config import FinetuneConfig, MethodConfig
from carbon.finetune.data import PreparedData, fit_to_context, prepare
from carbon.finetune.folder import Manifest, weights_sha256, write_manifest
from carbon.finetune.nested import checked_examples, cross_validated
from carbon.finetune.network import OpenedModel, room_bp
from carbon.finetune.predict import (
    FinetunedModel,
    head_for,
    logits_of,
    network_for,
    with_linear,
    write_finetuned,
)
from carbon.finetune.probe import probe
from carbon.finetune.readers import format_of
from carbon.finetune.recipes import read_run
from carbon.finetune.report import write_pages
from carbon.finetune.results import (
    CONFIG,
    PREDICTIONS,
    RESULTS,
    SEARCH,
    Floats32,
    plain,
    read_findings,
    results_of,
    seed_scores,
    write_predictions,
    write_search,
)
from carbon.finetune.search import Trial, run_search
from carbon.finetune.split import Examples
from carbon.finetune.tasks import LabelTask
from carbon.finetune.train import train_weights, with_lora
from carbon.genome import Reference
from carbon.inference import load
from carbon.inference.checks import check_window
from carbon.inference.embed import check_pool
from carbon.inference.identity import tokens_of
from carbon.inference.options import Pool
from carbon.io.config import with_overrides
from carbon.io.files import atomic_file, atomic_folder, content_sha256
from carbon.io.locks import locked_output
from carbon.io.structured import read_json
from carbon.model import model_folder
from carbon.model.folder import check_memory, weight_files
from carbon.parallel.options import WorkerOptions
from carbon.progress import say, track
from carbon.reports.figures import check_installed
from carbon.tokenizer import KmerVocabulary, Vocabulary

IDENTITY = "identity.json"
_MODELS = "models"  # in the progress folder: the finished seeds

Floats = NDArray[np.float64]

Identity = dict[str, dict[str, Any]]


class TrainedSeed(NamedTuple):
    """The model of one seed.

    Attributes:
        finetuned: ready to predict.
        opened: the base model inside.
        score: on the validation split; higher is better.
        history: validations or layers, as plain values.
        notes: sentences for the report.
        micro_batch: sequences per forward pass of the training; None for a probe.
    """

    finetuned: FinetunedModel
    opened: OpenedModel
    score: float
    history: dict[str, Any]
    notes: tuple[str, ...] = ()
    micro_batch: int | None = None


class Member(NamedTuple):
    """A seed after its training, without its network.

    Attributes:
        name: of its folder.
        manifest: content of its `finetune.json`.
        logits: (rows, outputs) of the validation and the test split.
        history: validations or layers, as plain values.
        notes: sentences for the report.
        micro_batch: sequences per forward pass of the training; None for a probe.
    """

    name: str
    manifest: Manifest
    logits: dict[str, Floats]
    history: dict[str, Any]
    notes: tuple[str, ...]
    micro_batch: int | None


def run_identity(config: FinetuneConfig, prepared: PreparedData) -> Identity:
    """Return the settings by dotted key, and the SHA-256 of files, model and examples by name."""
    checked = model_folder(config.model)
    check_memory(4 * checked.num_parameters, config.model)  # before all bytes are hashed
    model = [*weight_files(checked.path), checked.path / "config.json"]
    tokens = tokens_of(checked.vocabulary)
    hashes = {f"{each['role']} ({each['name']})": each["sha256"] for each in prepared.files}
    hashes |= {f"base model ({path.name})": content_sha256(path) for path in model}
    hashes |= {f"base model ({name})": digest for name, digest in tokens.items()}
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
    """Compare a run with the run of a progress folder.

    Args:
        folder: progress folder, with `identity.json`.
        identity: of the run to resume.
        what: start of the message.

    Raises:
        UserError: a setting, a file, the base model or the examples changed; the message lists each
            change.
    """
    try:
        earlier = read_json(folder / IDENTITY, dict[str, dict[str, Any]])
        changes = [
            *_changed_settings(earlier["settings"], identity["settings"]),
            *_changed_hashes(earlier["hashes"], identity["hashes"]),
        ]
    except (OSError, UserError, KeyError):
        changes = [f"{folder / IDENTITY} cannot be read"]
    if changes:
        raise UserError(
            f"{what}: cannot resume: {'; '.join(changes)}. Restore the inputs of the first run, "
            f"or remove {folder} to start again"
        )


def _changed_settings(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(earlier.keys() | now.keys()):
        if earlier.get(key) != now.get(key):
            yield f"{key} was {earlier.get(key)!r} and is {now.get(key)!r}"


def _changed_hashes(earlier: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield changed files; examples depend on them and count only if no file changed."""
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
    """Return the SHA-256 of examples in order, labels included."""
    texts = (examples.names, examples.inputs, examples.splits, examples.groups)
    digest = hashlib.sha256(json.dumps(texts).encode())
    digest.update(examples.labels.tobytes())
    return digest.hexdigest()


def as_config(
    config: FinetuneConfig | Mapping[str, Any] | str | Path, overrides: Sequence[str] = ()
) -> FinetuneConfig:
    """Return a configuration, read from a file, a recipe's name or plain values if necessary."""
    if isinstance(config, FinetuneConfig):
        if overrides:
            raise UserError("overrides: only with a file or plain values; use config.replace")
        return config
    if isinstance(config, Mapping):
        return FinetuneConfig.from_table(with_overrides(config, overrides), "config")
    return read_run(config, overrides)


def plan_finetune(
    config: FinetuneConfig,
    workers: WorkerOptions = WorkerOptions(),  # noqa: B008  # frozen
) -> dict[str, Any]:
    """Read and check all inputs of a run; return a summary.

    Raises:
        UserError: data, model or worker options are invalid.
    """
    _check_workers(config, workers)
    prepared = prepared_of(config)
    trials = [config.trial(values) for values in config.trials()]
    num = {split: len(prepared.examples.split(split)) for split in ("train", "validation", "test")}
    task = prepared.task.to_json()
    del task["calibration"]  # fitted after training
    return {
        "model": str(model_folder(config.model).path),
        "method": config.method.name,
        "examples": num,
        "task": task,
        "most_steps": _most_steps(config.method, num["train"]),
        "trials": len(trials) if config.search else 0,
        "split_sha256": prepared.split_sha256,
        "notes": list(prepared.notes),
        "config": resolved(config, prepared).model_dump(exclude_none=True),
    }


def _most_steps(method: MethodConfig, num_train: int) -> int | None:
    """Return the maximum optimizer steps of a training; None for a probe."""
    if method.name == "probe":
        return None
    return math.ceil(-(-num_train // method.batch_sequences) * method.most_epochs)


def resolved(
    config: FinetuneConfig, prepared: PreparedData, micro_batch: int | None = None
) -> FinetuneConfig:
    """Return the configuration with every value that the run takes by default or from its data.

    Only `method.layer` may stay open: absent means the last layer and the final norm, and for
    `probe` the layer with the best validation score.
    """
    task, method = prepared.task, config.method.resolved()
    if micro_batch:
        method = method.replace(micro_batch=micro_batch)
    return config.replace(
        data=config.data.replace(format=format_of(config.data), homology=prepared.homology),
        task=config.task.replace(names=task.names, loss=task.loss),
        method=method,
    )


def run_finetune(
    config: FinetuneConfig,
    *,
    resume: bool = False,
    rank: int = 0,
    workers: WorkerOptions = WorkerOptions(),  # noqa: B008  # frozen
) -> dict[str, Any]:
    """Fine-tune, write the folder and return the results.

    Args:
        config: the run.
        resume: continue from the checkpoints of a stopped run.
        rank: of this process under `torchrun`; the first one writes.
        workers: where the trials of a search are computed.

    Raises:
        UserError: data, model or worker options are invalid, the output exists, or another run
            writes it.
    """
    _check_workers(config, workers)
    locked = locked_output(config.output_folder) if rank == 0 else nullcontext()
    with locked:
        if not config.search:
            return _run_alone(config, resume=resume, rank=rank)
        return _run_search(config, replace(workers, resume=resume))


def _check_workers(config: FinetuneConfig, workers: WorkerOptions) -> None:
    """Raise UserError if workers are requested without trials to compute."""
    if not config.search and (workers.processes is not None or workers.ray):
        raise UserError(
            "--processes and --ray: are for the trials of a search; take them out, or add [search]"
        )


def _run_search(config: FinetuneConfig, workers: WorkerOptions) -> dict[str, Any]:
    """Run a search whose trials detect homology as this process does, so that splits are equal."""
    check_installed("matplotlib", "finetune")
    _check_output(config, progress_of(config), workers.resume)
    prepared = prepared_of(config)
    config = config.replace(data=config.data.replace(homology=prepared.homology))
    identity = run_identity(config, prepared)

    def finish(best: FinetuneConfig, trials: Sequence[Trial]) -> dict[str, Any]:
        return _run_alone(best, resume=workers.resume, rank=0, trials=trials)

    settings = {**identity["settings"], **identity["hashes"]}
    return run_search(config, settings, workers, validation_score, finish)


def validation_score(config: FinetuneConfig) -> float:
    """Train the first seed of a configuration, and return its validation score."""
    with TemporaryDirectory() as folder:
        return fit(config, prepared_of(config), config.seeds[0], Path(folder)).score


def progress_of(config: FinetuneConfig) -> Path:
    """Return the folder of a run's checkpoints."""
    return config.output_folder.with_name(f".{config.output_folder.name}.progress")


def _run_alone(
    config: FinetuneConfig, *, resume: bool, rank: int, trials: Sequence[Trial] = ()
) -> dict[str, Any]:
    progress_folder = progress_of(config)
    if rank == 0:
        check_installed("matplotlib", "finetune")
        _check_output(config, progress_folder, resume)
    prepared = prepared_of(config)
    for line in prepared.notes if rank == 0 else ():
        say(line)
    if rank == 0:
        _record_identity(config, prepared, progress_folder)
    elif config.method.name == "probe":
        return {}  # the first process fits the probe
    try:
        return _run(config, prepared, progress_folder, resume=resume, rank=rank, trials=trials)
    except BaseException:
        if rank == 0:
            _say_what_remains(progress_folder)
        raise


def _run(
    config: FinetuneConfig,
    prepared: PreparedData,
    progress_folder: Path,
    *,
    resume: bool,
    rank: int,
    trials: Sequence[Trial],
) -> dict[str, Any]:
    members = [
        _member(config, prepared, seed, progress_folder, resume=resume, rank=rank)
        for seed in config.seeds
    ]
    _leave_group()
    if rank != 0:
        return {}
    validation = prepared.examples.split("validation")
    logits = {
        split: np.mean([member.logits[split] for member in members], axis=0)
        for split in ("validation", "test")
    }
    method = config.task.calibration
    task = prepared.task.calibrated(method, logits["validation"], validation.labels)
    notes = dict.fromkeys(note for member in members for note in member.notes)
    prepared = prepared._replace(
        task=task, notes=(*prepared.notes, *notes, *_calibration_notes(task, len(members)))
    )
    prepared = with_deltas(config, prepared)
    predictions = {split: task.predictions(each) for split, each in logits.items()}
    results = results_of(config, prepared, logits, [m.history for m in members])
    if len(members) > 1:
        of_seeds = [task.unsaturated(member.logits["test"]) for member in members]
        results["of_seeds"] = seed_scores(task, of_seeds, prepared.examples.split("test"))
    if trials:
        results["search"] = plain(list(trials))
    if config.method.cross_validate:
        results["cross_validation"] = plain(cross_validated(config, prepared))
    write_outcome(config, prepared, members, predictions, results)
    shutil.rmtree(progress_folder)
    return results


def _calibration_notes(task: LabelTask, num_seeds: int) -> list[str]:
    """Return sentences on what a recalibration was fitted to, and on its bounds."""
    if not task.calibration:
        return []
    notes = [
        "Scores of the validation split are too high: the recalibration was fitted to it.",
        *task.calibration.notes(task.output_names),
    ]
    if num_seeds > 1:
        notes.append(
            "The recalibration was fitted to the mean logits of all seeds. Scores and spread of "
            "single seeds use it too."
        )
    return notes


def _member(
    config: FinetuneConfig,
    prepared: PreparedData,
    seed: int,
    progress_folder: Path,
    *,
    resume: bool,
    rank: int,
) -> Member:
    """Train a seed, compute its logits, and write its folder into the progress folder."""
    trained = fit(config, prepared, seed, progress_folder, resume=resume)
    logits = {
        split: logits_of(trained.finetuned, prepared.examples.split(split), config.method)
        for split in ("validation", "test")
    }
    name, manifest = f"seed-{seed}", trained.finetuned.manifest
    if rank == 0:
        folder = progress_folder / _MODELS / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_finetuned(folder, trained.finetuned.network, trained.opened, manifest)
    history = {"seed": seed, "score": trained.score, **trained.history}
    return Member(name, manifest, logits, history, trained.notes, trained.micro_batch)


def with_deltas(config: FinetuneConfig, prepared: PreparedData) -> PreparedData:
    """Return the data of a VCF with the base model's zero-shot deltas, in windows of equal size.

    They are computed only for the baseline `delta` or a cross-validation.
    """
    if not _reads_deltas(config, prepared.examples):
        return prepared
    variants = prepared.examples.variants
    model = load(config.model, dtype="float32")
    with Reference(config.data.reference) as reference:
        scores = model.score_variants(
            reference,
            [each.variant for each in variants],
            protocol="centered",
            window_bp=min(config.data.window_bp, _context_bp(config)),
            strands=config.method.strands,
        )
        shown = track(scores, "baseline: delta, variants", len(variants))
        deltas = [np.nan if score.delta is None else score.delta for score in shown]
    missing = int(np.isnan(deltas).sum())
    note = f"{missing} variants have no delta; it counts as 0."
    scored = [each._replace(delta=delta) for each, delta in zip(variants, deltas, strict=True)]
    examples = replace(prepared.examples, variants=tuple(scored))
    return prepared._replace(examples=examples, notes=(*prepared.notes, *(note,) * bool(missing)))


def _reads_deltas(config: FinetuneConfig, examples: Examples) -> bool:
    """Return whether a run computes the zero-shot deltas of its variants."""
    is_used = "delta" in config.baselines or config.method.cross_validate
    return is_used and has_deltas(examples)


def _context_bp(config: FinetuneConfig) -> int:
    """Return the bases that the base model reads to score a variant."""
    return _room_bp(config, "mean")


def write_outcome(
    config: FinetuneConfig,
    prepared: PreparedData,
    members: Sequence[Member],
    predictions: Mapping[str, Floats32],
    results: dict[str, Any],
) -> None:
    """Write the folder, which appears when it is complete.

    A single seed is at the top of the folder; several have folders of their own inside.
    """
    models = progress_of(config) / _MODELS
    is_ensemble = len(members) > 1
    manifest = replace(
        members[0].manifest,
        task=prepared.task,
        members=tuple(member.name for member in members) if is_ensemble else (),
        results={"chosen_by": results["chosen_by"], "test": results["test"]["model"]},
    )
    with atomic_folder(config.output_folder) as folder:
        for member in members:
            source = models / member.name
            shutil.copytree(
                source, folder / member.name if is_ensemble else folder, dirs_exist_ok=True
            )
        write_manifest(folder, manifest)
        text = json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False)
        (folder / RESULTS).write_text(text + "\n", encoding="utf-8")
        whole = resolved(config, prepared, members[0].micro_batch)
        (folder / CONFIG).write_text(whole.to_toml(), encoding="utf-8")
        if not prepared.task.per_base:
            spreads = _spreads(prepared.task, members) if is_ensemble else None
            write_predictions(folder / PREDICTIONS, prepared, predictions, spreads)
        if "search" in results:
            write_search(folder / SEARCH, results)
        write_pages(folder, read_findings(folder, config.output_folder.name))


def _spreads(task: LabelTask, members: Sequence[Member]) -> dict[str, Floats32]:
    """Return the SD over seeds of each prediction, with Bessel's correction, for each split."""
    return {
        split: np.std([task.predictions(each.logits[split]) for each in members], axis=0, ddof=1)
        for split in members[0].logits
    }


def _check_output(config: FinetuneConfig, progress: Path, resume: bool) -> None:
    output = config.output_folder
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"{output}: exists already; remove it or name another output")
    if (progress / IDENTITY).is_file() and not resume:
        raise UserError(
            f"{output}: an earlier run was stopped; continue it with --resume, or remove {progress}"
        )


def _record_identity(config: FinetuneConfig, prepared: PreparedData, progress: Path) -> None:
    """Write the run's identity; if an earlier run wrote one, compare them first."""
    identity = run_identity(config, prepared)
    if (progress / IDENTITY).exists() or any(progress.glob("seed-*")):
        check_identity(progress, identity, str(config.output_folder))
    progress.mkdir(parents=True, exist_ok=True)
    write_identity(progress, identity)


def _say_what_remains(progress: Path) -> None:
    """Report how to resume if there are checkpoints; otherwise remove the progress folder."""
    if any(progress.glob("*/checkpoint-*")):
        say(f"checkpoints are in {progress}; continue with --resume")
    else:
        shutil.rmtree(progress, ignore_errors=True)


def prepared_of(config: FinetuneConfig) -> PreparedData:
    """Read the data, and check that the model, the baselines and a cross-validation can too."""
    vocabulary = _checked_vocabulary(config)
    prepared = prepare(config.data, config.task, vocabulary.k)
    room = _room_bp(config, config.method.pool)
    prepared = fit_to_context(prepared, config.task, config.method, room, vocabulary.k)
    if config.method.cross_validate:
        checked_examples(prepared.examples)
    return _with_delta_window(config, prepared)


def _checked_vocabulary(config: FinetuneConfig) -> KmerVocabulary:
    """Return the vocabulary of the base model, which the method and the pool can read.

    Raises:
        UserError: they need a Carbon model.
    """
    vocabulary = model_folder(config.model).vocabulary
    check_pool(vocabulary, config.method.pool)
    if config.method.name != "probe" and not isinstance(vocabulary, Vocabulary):
        raise UserError(
            f"method.name = '{config.method.name}': {config.model} is a model of "
            f"{vocabulary.k}-mers that Carbon did not train; set method.name to 'probe'"
        )
    return vocabulary


def _room_bp(config: FinetuneConfig, pool: Pool) -> int:
    """Return the bases that the base model reads."""
    folder = model_folder(config.model)
    return room_bp(int(folder.config["max_position_embeddings"]), pool, folder.vocabulary)


def _with_delta_window(config: FinetuneConfig, prepared: PreparedData) -> PreparedData:
    """Return the data, with a note if the deltas need a shorter window.

    Raises:
        UserError: the window is too short for a delta.
    """
    if not _reads_deltas(config, prepared.examples):
        return prepared
    window_bp, context_bp = config.data.window_bp, _context_bp(config)
    try:
        k = model_folder(config.model).vocabulary.k
        check_window(min(window_bp, context_bp), context_bp, k)
    except UserError as error:
        raise UserError(f"data.window_bp, baseline delta: {error}, or take delta out") from None
    note = f"The deltas are of {context_bp} bp around each variant, which the model reads."
    return prepared._replace(notes=(*prepared.notes, *(note,) * (window_bp > context_bp)))


def _manifest(config: FinetuneConfig, prepared: PreparedData, folder: Path) -> Manifest:
    lengths_bp = {len(s) for s in prepared.examples.sequences}
    common_bp = lengths_bp.pop() if len(lengths_bp) == 1 else 0
    method: Any = config.method
    return Manifest(
        method=method.name,
        base=str(folder.resolve()) if Path(config.model).exists() else config.model,
        base_sha256=weights_sha256(folder),
        task=prepared.task,
        pool=method.pool,
        layer=method.layer,
        norm=method.name != "probe",
        strands=method.strands,
        too_long=method.too_long,
        variant_input=config.data.variant_input if prepared.examples.variants else "alt",
        k=model_folder(config.model).vocabulary.k,
        window_bp=config.data.window_bp or common_bp,
        data={
            "files": list(prepared.files),
            "split_sha256": prepared.split_sha256,
            "notes": list(prepared.notes),
        },
    )


def _fit_probe(
    config: FinetuneConfig, prepared: PreparedData, seed: int, folder: Path, resume: bool
) -> TrainedSeed:
    del folder, resume  # a probe has no checkpoints
    source = model_folder(config.model).path
    examples = prepared.examples
    manifest = _manifest(config, prepared, source)
    result = probe(
        OpenedModel(load(source, dtype="float32").model),
        prepared.task,
        examples.split("train"),
        examples.split("validation"),
        config.method,
        seed,
        manifest.variant_input,
    )
    for line in result.notes:
        say(line)
    prepared = prepared._replace(notes=(*prepared.notes, *result.notes))
    manifest = replace(_manifest(config, prepared, source), layer=result.best.layer)
    finetuned, opened = with_linear(load(source, dtype="float32").model, result.linear, manifest)
    history = {
        "layers": [layer._asdict() for layer in result.layers],
        "layer": result.best.layer,
        "sizes": [size._asdict() for size in result.sizes],
    }
    return TrainedSeed(finetuned, opened, result.best.score, history, result.notes)


def _fit_weights(
    config: FinetuneConfig, prepared: PreparedData, seed: int, folder: Path, resume: bool
) -> TrainedSeed:
    source = model_folder(config.model).path
    finetuned, opened = begin(
        load(source, dtype="float32").model,
        _manifest(config, prepared, source),
        config.method,
        seed,
    )
    examples = prepared.examples
    training = train_weights(
        finetuned,
        truncated(examples.split("train"), finetuned.room_bp),
        examples.split("validation"),
        config.method,
        seed,
        folder / f"seed-{seed}",
        resume=resume,
    )
    history = {
        "validations": [validation_step._asdict() for validation_step in training.validations],
        "step": training.best.step,
    }
    return TrainedSeed(
        finetuned, opened, training.best.score, history, micro_batch=training.micro_batch
    )


_FITS = {"probe": _fit_probe, "lora": _fit_weights, "full": _fit_weights}


def fit(
    config: FinetuneConfig, prepared: PreparedData, seed: int, folder: Path, *, resume: bool = False
) -> TrainedSeed:
    """Return the model of one seed; its checkpoints are in `folder`."""
    return _FITS[config.method.name](config, prepared, seed, folder, resume)


def begin(
    model: Any, manifest: Manifest, method: MethodConfig, seed: int
) -> tuple[FinetunedModel, OpenedModel]:
    """Return a model with a new head, and new adapters, initialised by the seed."""
    torch.manual_seed(seed)
    opened = OpenedModel(model, method.layer)
    backbone: Any = opened.backbone
    if method.name == "lora":
        backbone = with_lora(backbone, method, manifest.base)
    head = head_for(manifest, opened.backbone.config.hidden_size)
    network = network_for(backbone, head, manifest)
    network = network.to(model.network.device)
    return FinetunedModel(network.eval(), model.vocabulary, manifest), opened


def truncated(examples: Examples, room_bp: int) -> Examples:
    """Return examples with every sequence truncated to the context."""
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
