"""Reward tuning: the generator itself learns to draw what oracles like (GRPO, arXiv 2402.03300).

trl's trainer is taken as it is. Three things make it one of DNA: the head gets a bias that leaves
probability to 6-mers alone, in what is drawn and in what is learned from; the rewards are those of
the oracles of `carbon design`; and what is written holds nothing of what trl changes.
"""

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import nn
from transformers import GenerationConfig, PrinterCallback

from carbon.__version__ import __version__
from carbon.adapt.folder import weights_sha256
from carbon.adapt.tuning import LINEAR
from carbon.console import progress
from carbon.design.goals import goals_for
from carbon.design.mail import Mailbox
from carbon.design.oracles import Function, Oracle, named_oracle, started
from carbon.design.rewards import Rewards
from carbon.design.rollouts import Rollouts, corrected, work
from carbon.design.tune_folder import (
    COLUMNS,
    MODEL,
    Written,
    begin_folder,
    first_and_last,
    last_checkpoint,
    remove_checkpoints,
    step_of,
)
from carbon.design.tune_task import TuneJob, TuneOptions, TuneTask
from carbon.design.tuned_model import save_as_start
from carbon.errors import UserError
from carbon.files import atomic_folder, behind_links, free_folder
from carbon.inference import Carbon, load
from carbon.model import LoadedModel, load_model, model_folder
from carbon.tokenizer import NATIVE, K, Vocabulary
from carbon.tokenizer.pretrained import HybridDNATokenizer, NativeDNATokenizer

# Added to the logit of a row that is no 6-mer: its probability is 0 in every dtype, and 0 times
# this is 0 where an entropy is summed, as it is not for an infinity.
_NEVER = -1e9
_LIBRARIES = ("accelerate", "datasets", "peft", "trl")


def rank() -> int:
    """Return the number of this process among those that torchrun has started."""
    return int(os.environ.get("RANK", "0"))


def num_processes() -> int:
    """Return how many processes torchrun has started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def check_tuning(job: TuneJob) -> None:
    """Look for all that can be wrong before a model is loaded.

    Raises:
        UserError: something is.
    """
    if rank() == 0 and not job.resume:
        free_folder(job.output)
    if job.mailbox and (job.resume or num_processes() > 1):
        raise UserError("a mailbox: one process learns, and cannot be resumed; take the other out")
    if job.mailbox and not all(isinstance(oracle, str) for oracle in job.oracles):
        raise UserError(
            "a mailbox: workers are other commands; name oracles: python:MODULE:FUNCTION"
        )
    _check(job)


def check_worker(job: TuneJob) -> None:
    """Look for all that can be wrong with a worker before a model is loaded.

    Raises:
        UserError: something is.
    """
    if not job.mailbox:
        raise UserError("a worker needs the --mailbox of the one that learns")
    _check(job)


def _check(job: TuneJob) -> None:
    for oracle in job.oracles:
        if isinstance(oracle, str):
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
            f"carbon tune needs {', '.join(_LIBRARIES)}; pip install 'carbon-dna[tune]'"
        ) from None


def tune(
    model: str | Path,
    oracles: Sequence[str | Function],
    output: str | Path,
    *,
    device: str = "auto",
    resume: bool = False,
    mailbox: str = "",
    **options: Unpack[TuneOptions],
) -> Carbon:
    """Teach a model to draw what oracles like, write the run folder, and return the tuned model.

    Args:
        model: a model folder, or a name as `carbon.load` takes it.
        oracles: as of `Carbon.design`.
        output: folder to write.
        device: `auto`, a GPU if there is one; or `cpu`.
        resume: go on from the last checkpoint of a run that was stopped.
        mailbox: folder or URL by which `carbon tune --worker` draws; "" to draw in this process.
        **options: the fields of `TuneTask`; `length_bp` must be given.

    Raises:
        UserError: something does not fit the model, or an oracle fails; what was written until
            then stays.
    """
    task, on_cpu = TuneTask(**options), device == "cpu"
    job = TuneJob(str(model), oracles, task, Path(output), on_cpu, resume, mailbox)
    check_tuning(job)
    run_tuning(job)
    return load(job.output / MODEL, device=device)


def run_tuning(job: TuneJob) -> dict[str, Any]:
    """Tune, write the run folder, and return a summary.

    Raises:
        UserError: something does not fit the model, or an oracle fails; what was written until
            then stays.
    """
    with _ready(job) as (loaded, tokenizer, oracles):
        return _tuned(job, loaded, tokenizer, oracles)


def run_worker(job: TuneJob, worker: int) -> dict[str, Any]:
    """Draw and measure for the one that learns until it is done, and return a summary.

    Raises:
        UserError: something does not fit the model, the run has other settings, or an oracle fails.
    """
    from peft import get_peft_model

    with (
        _ready(job) as (loaded, tokenizer, oracles),
        six_mers_alone(loaded),
        closing(Mailbox(job.mailbox)) as mailbox,
    ):
        mailbox.join(_shared(_settings(job, oracles)))
        _name_ends(loaded.network, tokenizer)
        adapted = get_peft_model(loaded.network, _adapters(job)).eval()
        adapted.to("cuda" if torch.cuda.is_available() and not job.on_cpu else "cpu")
        (prompt,) = tokenizer(text=[_prompt_of(job.task)])["input_ids"]
        count = work(adapted, loaded.vocabulary, prompt, oracles, job.task, mailbox, worker)
    return {"worker": worker, "groups": count}


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
    job: TuneJob, loaded: LoadedModel, tokenizer: Any, oracles: Sequence[Oracle]
) -> dict[str, Any]:
    goals = goals_for(job.task.goals, len(oracles))
    rewards = Rewards(oracles, goals, loaded.vocabulary, rank())
    settings, folder = _settings(job, oracles), behind_links(job.output)
    with _rollouts(job, settings) as rollouts:
        if rank() == 0:
            folder = begin_folder(job.output, settings, resume=job.resume)
        if not (job.resume and (folder / MODEL).is_dir()):
            _train(job, loaded, tokenizer, rewards, settings, rollouts)
    if rank() == 0:
        remove_checkpoints(folder)
    means = first_and_last(folder, rewards.names) if rank() == 0 else {}
    return {"output": str(job.output), "steps": job.task.steps, **means}


@contextmanager
def _rollouts(job: TuneJob, settings: dict[str, Any]) -> Iterator[Rollouts | None]:
    """Yield what workers draw, if they do; they are told when the run is over."""
    if not job.mailbox:
        yield None
        return
    with closing(Mailbox(job.mailbox)) as mailbox:
        mailbox.begin(_shared(settings))
        try:
            yield Rollouts(mailbox, job.task.most_stale)
        finally:
            mailbox.end()


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
        tuned = {name: merged[name] for name in merged if _has_adapter(name)}
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
        "processes": num_processes(),
        **task,
        "goals": ",".join(map(str, job.task.goals or ["most"] * len(oracles))),
        "tags": "".join(job.task.tags),
    }


def _has_adapter(name: str) -> bool:
    return name.removesuffix(".weight").rpartition(".")[2] in LINEAR


@contextmanager
def six_mers_alone(loaded: LoadedModel) -> Iterator[None]:
    """Leave probability to the rows of 6-mers alone, by a bias of the head that is no weight.

    Both stock `generate` and trl's head add it. It is taken away in the end.
    """
    head: Any = loaded.network.lm_head
    bias = torch.full_like(head.weight[:, 0], _NEVER)
    bias[loaded.vocabulary.kmer_rows] = 0
    head.bias = nn.Parameter(bias, requires_grad=False)
    try:
        yield
    finally:
        head.bias = None


def trainer_of(
    job: TuneJob,
    loaded: LoadedModel,
    tokenizer: Any,
    rewards: Rewards,
    rollouts: Rollouts | None = None,
) -> Any:
    """Return trl's trainer of a model whose head is held to 6-mers, with adapters that are new."""
    from datasets import Dataset
    from trl.trainer.grpo_trainer import GRPOTrainer

    task, network = job.task, loaded.network
    _name_ends(network, tokenizer)
    network.name_or_path = job.model
    kind: Any = corrected(GRPOTrainer) if rollouts else GRPOTrainer
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*rollout_func")  # trl's, that it may change
        trainer: Any = kind(
            model=network,
            reward_funcs=rewards.functions(),
            args=_arguments(job),
            train_dataset=Dataset.from_list([{"prompt": _prompt_of(task)}] * task.steps),
            processing_class=tokenizer,
            peft_config=_adapters(job),
            rollout_func=rollouts,
        )
    trainer.create_model_card = lambda *_, **__: None  # one at each checkpoint, and none filled in
    trainer.remove_callback(PrinterCallback)
    return trainer


def _prompt_of(task: TuneTask) -> str:
    return "".join(task.tags) + "<dna>" + task.prompt.upper()


def tokenizer_of(model: str, vocabulary: Vocabulary) -> Any:
    """Return our tokenizer with an end that trl wants and the head never gives.

    Raises:
        ModelError: the folder of a hybrid lacks its byte pairs.
    """
    kind = NativeDNATokenizer if vocabulary.name == NATIVE.name else HybridDNATokenizer
    tokenizer: Any = kind.from_pretrained(model_folder(model).path, padding_side="left")
    tokenizer.eos_token = "</dna>"
    return tokenizer


def _name_ends(network: Any, tokenizer: Any) -> None:
    """Name the ends as transformers would otherwise, with a warning; nothing of it is written."""
    ends = {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    network.config.update(ends)
    network.generation_config = GenerationConfig(**ends)  # type: ignore[no-untyped-call]


def _adapters(job: TuneJob) -> Any:
    from peft import LoraConfig

    return LoraConfig(
        r=job.task.rank,
        lora_alpha=2 * job.task.rank,
        lora_dropout=0.0,
        target_modules=list(LINEAR),
        task_type="CAUSAL_LM",
        base_model_name_or_path=job.model,
    )


def _arguments(job: TuneJob) -> Any:
    from trl.trainer.grpo_config import GRPOConfig

    task = job.task
    has_gpu = torch.cuda.is_available() and not job.on_cpu
    arguments = GRPOConfig(
        output_dir=str(job.output),
        use_cpu=not has_gpu,
        bf16=has_gpu,
        seed=task.seed,
        data_seed=task.seed,
        max_steps=task.steps,
        per_device_train_batch_size=task.group // num_processes(),
        ddp_find_unused_parameters=False,
        gradient_accumulation_steps=1,
        num_generations=task.group,
        max_completion_length=task.length_bp // K,
        beta=task.kl,
        learning_rate=task.rate,
        multi_objective_aggregation="normalize_then_sum",  # oracles have units of their own
        gradient_checkpointing=False,
        save_steps=task.probe_steps,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
    )
    _ = arguments.device  # counts the GPUs; of a process it is one, whatever the machine has
    arguments._n_gpu = min(arguments._n_gpu, 1)
    return arguments
