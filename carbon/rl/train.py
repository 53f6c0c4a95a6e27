"""Run RL fine-tuning: train adapters by GRPO (arXiv 2402.03300) and write the merged model.

The trainer is in `carbon.rl.grpo`; rewards are the values of scoring functions. The saved model has
the files of the starting model, without changes that trl makes in memory.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from itertools import count
from typing import Any

from carbon.__version__ import __version__
from carbon.design.functions import (
    ScoringFunction,
    file_digests,
    functions_text,
    running_functions,
)
from carbon.design.goals import goal_texts, goals_for
from carbon.errors import UserError
from carbon.finetune.folder import weights_sha256
from carbon.io.files import atomic_folder, behind_links
from carbon.io.locks import locked_output
from carbon.model import LoadedModel, load_model, model_folder
from carbon.parallel.options import workers_of
from carbon.progress import progress
from carbon.rl.config import RLConfig, RLJob, num_processes, rank
from carbon.rl.folder import (
    COLUMNS,
    MODEL,
    RunWriter,
    begin_folder,
    first_and_last,
    last_checkpoint,
    remove_checkpoints,
    save_like,
    step_of,
)
from carbon.rl.grpo import (
    has_adapter,
    kmers_only,
    make_trainer,
    prompt_of,
    tokenizer_of,
    with_adapters,
)
from carbon.rl.rewards import Rewards
from carbon.rl.rollouts import Draw, Sampler, VllmServer, WorkerRollouts, draw_locally
from carbon.tokenizer import K, Vocabulary


def run_rl(job: RLJob) -> dict[str, Any]:
    """Train, write the run folder, and return a summary.

    Raises:
        UserError: an option does not fit the model, or a scoring function fails; the files written
            so far remain.
    """
    lock = locked_output(job.output) if rank() == 0 else nullcontext()
    with lock, _prepared(job) as (loaded, tokenizer, functions):
        return _run(job, loaded, tokenizer, functions)


def sampler(job: RLJob) -> Sampler:
    """Return a worker that draws and scores groups.

    Raises:
        UserError: an option does not fit the model, or a scoring function or the server fails.
    """
    stack = ExitStack()
    loaded, tokenizer, functions = stack.enter_context(_prepared(job))
    stack.enter_context(kmers_only(loaded))
    network = with_adapters(job, loaded, tokenizer)
    (prompt,) = tokenizer(text=[prompt_of(job.config)])["input_ids"]
    draw = stack.enter_context(_drawing(job, network, loaded.six_mers, prompt))
    return Sampler(
        about=_shared(_settings(job)),
        network=network,
        vocabulary=loaded.six_mers,
        draw=draw,
        functions=functions,
        stack=stack,
    )


@contextmanager
def _drawing(
    job: RLJob, network: Any, vocabulary: Vocabulary, prompt: Sequence[int]
) -> Iterator[Draw]:
    """Yield the function by which a worker draws: by a vLLM server, or in its own process."""
    config, url = job.config, job.samplers.vllm
    if not url:
        yield draw_locally(network.get_base_model(), vocabulary, prompt, config)
        return
    with closing(VllmServer(url, network, vocabulary, prompt, config)) as server:
        yield server.draw


@contextmanager
def _prepared(job: RLJob) -> Iterator[tuple[LoadedModel, Any, list[ScoringFunction]]]:
    """Yield the starting model, its tokenizer and running scoring functions."""
    loaded = load_model(job.model)
    _check_fit(loaded, job.config)
    tokenizer = tokenizer_of(job.model, loaded.six_mers)
    reserved = (*COLUMNS, "name", "bases")
    with (
        running_functions(job.functions, job.config.timeout_seconds, reserved) as functions,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", FutureWarning)  # trl uses old names of transformers
        yield loaded, tokenizer, functions


def _check_fit(loaded: LoadedModel, config: RLConfig) -> None:
    prefix = loaded.six_mers.prefix(tuple(config.tags))
    tokens = len(prefix) + (len(config.prompt) + config.length_bp) // K
    positions: int = loaded.network.config.max_position_embeddings
    if tokens > positions:
        raise UserError(
            f"prompt and length take {tokens} tokens, the model has {positions}; give a shorter "
            "--length"
        )


def _run(
    job: RLJob, loaded: LoadedModel, tokenizer: Any, functions: Sequence[ScoringFunction]
) -> dict[str, Any]:
    goals = goals_for(job.config.goals, len(functions))
    rewards = Rewards(functions, goals, loaded.six_mers, rank())
    settings, folder, resume = _settings(job), behind_links(job.output), job.samplers.resume
    with _rollouts(job, settings) as rollouts:
        if rank() == 0:
            folder = begin_folder(job.output, settings, resume=resume)
        if not (resume and (folder / MODEL).is_dir()):
            _train(job, loaded, tokenizer, rewards, settings, rollouts)
    if rank() == 0:
        remove_checkpoints(folder)
        from carbon.rl.report import write_page

        write_page(folder, job.config, rewards.names)
    means = first_and_last(folder, rewards.names) if rank() == 0 else {}
    return {"output": str(job.output), "steps": job.config.steps, **means}


@contextmanager
def _rollouts(job: RLJob, settings: dict[str, Any]) -> Iterator[WorkerRollouts | None]:
    """Yield the rollouts of workers, or None if this process draws.

    Raises:
        UserError: workers have other settings or weights.
    """
    if not job.has_workers:
        yield None
        return
    with workers_of(job.samplers, partial(sampler, job), most_in_flight=1) as workers:
        about, ours = workers.about(count()), _shared(settings)
        if differing := sorted(n for n in {*about, *ours} if about.get(n) != ours.get(n)):
            raise UserError(f"workers have another {', '.join(differing)}; give all the same")
        yield WorkerRollouts(workers, job.config)


def _shared(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that workers must share; the model's path may differ, its weights not."""
    return {name: value for name, value in settings.items() if name != "model"}


def _train(
    job: RLJob,
    loaded: LoadedModel,
    tokenizer: Any,
    rewards: Rewards,
    settings: dict[str, Any],
    rollouts: WorkerRollouts | None,
) -> None:
    """Run the remaining steps; rank 0 writes metrics, samples, the adapter and the model."""
    config, folder = job.config, behind_links(job.output)
    checkpoint = last_checkpoint(folder, num_processes()) if job.samplers.resume else None
    with (
        kmers_only(loaded),
        progress("training, steps", config.steps, step_of(checkpoint)) as advance,
    ):
        trainer = make_trainer(job, loaded, tokenizer, rewards, rollouts)
        if rank() == 0:
            more = rollouts.metrics if rollouts else dict
            writer = RunWriter(folder, config, settings, rewards, trainer.model, advance, more)
            trainer.add_callback(writer)
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        merged = trainer.model.merge_and_unload().state_dict()
    if rank() == 0:
        changed = {name: merged[name] for name in merged if has_adapter(name)}
        with atomic_folder(folder / MODEL) as temporary:
            save_like(model_folder(job.model).path, changed, temporary)
    trainer.accelerator.wait_for_everyone()  # other ranks read the model afterwards


def _settings(job: RLJob) -> dict[str, Any]:
    """Return all settings that determine the result."""
    config = asdict(job.config)
    del config["timeout_seconds"]
    return {
        "carbon": __version__,
        "model": job.model,
        "weights_file_sha256": weights_sha256(model_folder(job.model).path),
        "functions": functions_text(job.functions),
        "function_files": file_digests(job.functions),
        "processes": num_processes(),
        **config,
        "goals": ",".join(goal_texts(job.config.goals, len(job.functions))),
        "tags": "".join(job.config.tags),
    }
