"""Reward tuning: the generator itself learns to draw what oracles like (GRPO, arXiv 2402.03300).

The trainer is that of `carbon.rl.grpo`; the rewards are those of the oracles of `carbon
design`; and the model that is written holds nothing of what trl changes.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from importlib import import_module
from typing import Any

from carbon.__version__ import __version__
from carbon.design.functions import Oracle, finetuned_contents, named_oracle, started
from carbon.design.goals import goals_for
from carbon.errors import UserError
from carbon.finetune.folder import weights_sha256
from carbon.io.files import atomic_folder, behind_links, free_folder
from carbon.io.locks import locked_output
from carbon.model import LoadedModel, load_model, model_folder
from carbon.parallel.driver import Workers
from carbon.parallel.engines import MakeWorker
from carbon.parallel.options import WorkerOptions, workers_of
from carbon.progress import progress
from carbon.rl.config import TuneJob, TuneTask
from carbon.rl.folder import (
    COLUMNS,
    MODEL,
    Written,
    begin_folder,
    first_and_last,
    last_checkpoint,
    remove_checkpoints,
    save_as_start,
    step_of,
)
from carbon.rl.grpo import (
    finetuned,
    has_adapter,
    num_processes,
    prompt_of,
    rank,
    six_mers_alone,
    tokenizer_of,
    trainer_of,
)
from carbon.rl.rewards import Rewards
from carbon.rl.rollouts import Draw, Rollouts, Sampler, by_our_engine
from carbon.tokenizer import K, Vocabulary

_LIBRARIES = ("accelerate", "datasets", "matplotlib", "peft", "trl")


StartWorkers = Callable[[MakeWorker], AbstractContextManager[Workers]]


def started_by(options: WorkerOptions) -> StartWorkers:
    """Return what starts the workers that a command line asks for; each draws one group a time."""
    return partial(workers_of, options, most_in_flight=1)


def check_tuning(job: TuneJob) -> None:
    """Look for all that can be wrong before a model is loaded.

    Raises:
        UserError: something is.
    """
    if rank() == 0:
        with locked_output(job.output):  # a run that is going on is no folder to remove
            if not job.resume:
                free_folder(job.output)
    if job.has_workers and (job.resume or num_processes() > 1):
        raise UserError("workers: one process learns, and cannot be resumed; take the other out")
    if job.has_workers and not all(isinstance(oracle, str) for oracle in job.oracles):
        raise UserError("workers are other processes; name oracles: python:MODULE:FUNCTION")
    if job.vllm and not job.has_workers:
        raise UserError("--vllm: a server draws for a worker; give --processes 1")
    for oracle in job.oracles:
        named_oracle(oracle)
    goals_for(job.task.goals, len(job.oracles))
    if job.task.group % num_processes():
        raise UserError(
            f"group {job.task.group}: give a multiple of the {num_processes()} processes, which "
            "share it"
        )
    try:
        for library in _LIBRARIES:
            import_module(library)
    except ImportError:
        raise UserError(
            f"carbon rl needs {', '.join(_LIBRARIES)}; pip install 'carbon-dna[rl]'"
        ) from None


def run_tuning(job: TuneJob, start: StartWorkers | None = None) -> dict[str, Any]:
    """Tune, write the run folder, and return a summary.

    Args:
        job: of the run.
        start: starts workers that draw, given how to make one; None to draw in this process.

    Raises:
        UserError: something does not fit the model, or an oracle fails; what was written until
            then stays.
    """
    with _locked(job), _ready(job) as (loaded, tokenizer, oracles):
        return _tuned(job, loaded, tokenizer, oracles, start)


def _locked(job: TuneJob) -> AbstractContextManager[None]:
    """Hold the lock of the output on the first process."""
    return locked_output(job.output) if rank() == 0 else nullcontext()


def sampler(job: TuneJob, vllm: str = "") -> Sampler:
    """Return a worker that draws and measures.

    Args:
        job: of the run.
        vllm: address of a vLLM server that draws; "" to draw in this process.

    Raises:
        UserError: something does not fit the model, or an oracle or the server fails.
    """
    opened = ExitStack()
    loaded, tokenizer, oracles = opened.enter_context(_ready(job))
    opened.enter_context(six_mers_alone(loaded))
    network = finetuned(job, loaded, tokenizer)
    (prompt,) = tokenizer(text=[prompt_of(job.task)])["input_ids"]
    draw = opened.enter_context(_drawing(vllm, network, loaded.vocabulary, prompt, job.task))
    about = _shared(_settings(job, oracles))
    return Sampler(network, loaded.vocabulary, draw, oracles, about, opened)


@contextmanager
def _drawing(
    vllm: str,
    finetuned: Any,
    vocabulary: Vocabulary,
    prompt: Sequence[int],
    task: TuneTask,
) -> Iterator[Draw]:
    """Yield what draws for a worker."""
    if not vllm:
        yield by_our_engine(finetuned.get_base_model(), vocabulary, prompt, task)
        return
    from carbon.rl.rollouts import VllmServer

    with closing(VllmServer(vllm, finetuned, vocabulary, prompt, task)) as server:
        yield server.drawn


@contextmanager
def _ready(job: TuneJob) -> Iterator[tuple[LoadedModel, Any, list[Oracle]]]:
    """Yield the start, its tokenizer, and oracles that can be asked."""
    loaded = load_model(job.model)
    _check_fit(loaded, job.task)
    tokenizer = tokenizer_of(job.model, loaded.vocabulary)
    oracles = started(job.oracles, job.task.timeout_seconds, (*COLUMNS, "name", "bases"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # trl's, of what transformers renames
            yield loaded, tokenizer, oracles
    finally:
        for oracle in oracles:
            oracle.close()


def _check_fit(loaded: LoadedModel, task: TuneTask) -> None:
    prefix = loaded.vocabulary.prefix(tuple(task.tags))
    tokens = len(prefix) + (len(task.prompt) + task.length_bp) // K
    positions: int = loaded.network.config.max_position_embeddings
    if tokens > positions:
        raise UserError(
            f"prompt and length take {tokens} tokens, the model has {positions}; give a lesser "
            "--length"
        )


def _tuned(
    job: TuneJob,
    loaded: LoadedModel,
    tokenizer: Any,
    oracles: Sequence[Oracle],
    start: StartWorkers | None,
) -> dict[str, Any]:
    goals = goals_for(job.task.goals, len(oracles))
    rewards = Rewards(oracles, goals, loaded.vocabulary, rank())
    settings, folder = _settings(job, oracles), behind_links(job.output)
    with _rollouts(job, settings, start) as rollouts:
        if rank() == 0:
            folder = begin_folder(job.output, settings, resume=job.resume)
        if not (job.resume and (folder / MODEL).is_dir()):
            _train(job, loaded, tokenizer, rewards, settings, rollouts)
    if rank() == 0:
        remove_checkpoints(folder)
        from carbon.rl.report import write_page

        write_page(folder, job.task, rewards.names)
    means = first_and_last(folder, rewards.names) if rank() == 0 else {}
    return {"output": str(job.output), "steps": job.task.steps, **means}


@contextmanager
def _rollouts(
    job: TuneJob, settings: dict[str, Any], start: StartWorkers | None
) -> Iterator[Rollouts | None]:
    """Yield what workers draw, if they do.

    Raises:
        UserError: workers have other settings or weights.
    """
    if start is None:
        yield None
        return
    with start(partial(sampler, job, job.vllm)) as workers:
        about, ours = workers.about(), _shared(settings)
        if other := sorted(n for n in {*about, *ours} if about.get(n) != ours.get(n)):
            raise UserError(f"workers have another {', '.join(other)}; give all the same")
        yield Rollouts(workers, job.task)


def _shared(settings: dict[str, Any]) -> dict[str, Any]:
    """Return what learner and workers must have alike: the weights, wherever they lie."""
    return {name: value for name, value in settings.items() if name != "model"}


def _train(
    job: TuneJob,
    loaded: LoadedModel,
    tokenizer: Any,
    rewards: Rewards,
    settings: dict[str, Any],
    rollouts: Rollouts | None,
) -> None:
    """Take the steps that are left; the first process writes what they were, and the model."""
    task, folder = job.task, behind_links(job.output)
    checkpoint = last_checkpoint(folder, num_processes()) if job.resume else None
    with (
        six_mers_alone(loaded),
        progress("tuning, steps", task.steps, step_of(checkpoint)) as advance,
    ):
        trainer = trainer_of(job, loaded, tokenizer, rewards, rollouts)
        if rank() == 0:
            told = (rewards, trainer.model, advance, rollouts.told if rollouts else dict)
            trainer.add_callback(Written(folder, task, settings, *told))
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        merged = trainer.model.merge_and_unload().state_dict()
    if rank() == 0:
        tuned = {name: merged[name] for name in merged if has_adapter(name)}
        with atomic_folder(folder / MODEL) as temporary:
            save_as_start(model_folder(job.model).path, tuned, temporary)
    trainer.accelerator.wait_for_everyone()  # who goes on reads the model


def _settings(job: TuneJob, oracles: Sequence[Oracle]) -> dict[str, Any]:
    """Return all that what is learned follows from."""
    task = {name: value for name, value in asdict(job.task).items() if name != "timeout_seconds"}
    return {
        "carbon": __version__,
        "model": job.model,
        "model_sha256": weights_sha256(model_folder(job.model).path),
        "oracles": ",".join(f"{oracle.name}={oracle.spec}" for oracle in oracles),
        "finetuned": finetuned_contents(job.oracles),
        "processes": num_processes(),
        **task,
        "goals": ",".join(map(str, job.task.goals or ["most"] * len(oracles))),
        "tags": "".join(job.task.tags),
    }
