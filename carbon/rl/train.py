"""Run RL fine-tuning: train adapters by GRPO (arXiv 2402.03300) and write the merged model.

trl's trainer is adapted to DNA: during training a bias on the head gives probability only to
6-mers, as our engine does during generation; prompts consist of our tokens; LoRA adapters are on
every linear layer. Rewards are the values of scoring functions. The saved model has the files of
the starting model, without changes that trl makes in memory.
"""

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig, PrinterCallback

from carbon.__version__ import __version__
from carbon.design.functions import (
    ScoringFunction,
    finetuned_digests,
    functions_text,
    parse_function,
    running_functions,
)
from carbon.design.goals import goal_texts, goals_for
from carbon.errors import UserError
from carbon.finetune.folder import weights_sha256
from carbon.finetune.train import LINEAR
from carbon.io.files import atomic_folder, behind_links, free_folder
from carbon.io.locks import locked_output
from carbon.model import LoadedModel, load_model, model_folder
from carbon.parallel.options import workers_of
from carbon.progress import progress
from carbon.rl.config import RLConfig, RLJob
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
from carbon.rl.rewards import Rewards
from carbon.rl.rollouts import (
    Draw,
    OwnRollouts,
    Sampler,
    VllmServer,
    WorkerRollouts,
    draw_locally,
    off_policy,
)
from carbon.tokenizer import NATIVE, K, Vocabulary
from carbon.tokenizer.tokenizers import HybridDNATokenizer, NativeDNATokenizer

_LIBRARIES = ("accelerate", "datasets", "matplotlib", "peft", "trl")


def check_rl(job: RLJob) -> None:
    """Check a job before the model is loaded.

    Raises:
        UserError: an option is invalid, the output exists, or a library is not installed.
    """
    if rank() == 0:
        with locked_output(job.output):  # the folder of a running job must not be removed
            if not job.samplers.resume:
                free_folder(job.output)
    if job.has_workers and (job.samplers.resume or num_processes() > 1):
        raise UserError(
            "workers: one process trains, and cannot be resumed; omit --resume and torchrun"
        )
    if job.has_workers and not all(isinstance(function, str) for function in job.functions):
        raise UserError(
            "workers are other processes; name scoring functions: python:MODULE:FUNCTION"
        )
    if job.samplers.vllm and not job.has_workers:
        raise UserError("--vllm: a server draws for a worker; give --processes 1")
    for function in job.functions:
        parse_function(function)
    goals_for(job.config.goals, len(job.functions))
    if job.config.group % num_processes():
        raise UserError(
            f"group {job.config.group}: give a multiple of the {num_processes()} processes, which "
            "share it"
        )
    try:
        for library in _LIBRARIES:
            import_module(library)
    except ImportError:
        raise UserError(
            f"carbon rl needs {', '.join(_LIBRARIES)}; pip install 'carbon-dna[rl]'"
        ) from None


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
    draw = stack.enter_context(_drawing(job, network, loaded.vocabulary, prompt))
    return Sampler(
        about=_shared(_settings(job)),
        network=network,
        vocabulary=loaded.vocabulary,
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
    tokenizer = tokenizer_of(job.model, loaded.vocabulary)
    reserved = (*COLUMNS, "name", "bases")
    with (
        running_functions(job.functions, job.config.timeout_seconds, reserved) as functions,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", FutureWarning)  # trl uses old names of transformers
        yield loaded, tokenizer, functions


def _check_fit(loaded: LoadedModel, config: RLConfig) -> None:
    prefix = loaded.vocabulary.prefix(tuple(config.tags))
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
    rewards = Rewards(functions, goals, loaded.vocabulary, rank())
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
        about, ours = workers.about(), _shared(settings)
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
        "model_sha256": weights_sha256(model_folder(job.model).path),
        "functions": functions_text(job.functions),
        "finetuned": finetuned_digests(job.functions),
        "processes": num_processes(),
        **config,
        "goals": ",".join(goal_texts(job.config.goals, len(job.functions))),
        "tags": "".join(job.config.tags),
    }


# Added to the logits of rows that are not 6-mers: gives probability 0 in every dtype, and a
# finite product with 0 in the entropy, unlike infinity.
_EXCLUDED = -1e9


def rank() -> int:
    """Return the rank of this process under torchrun."""
    return int(os.environ.get("RANK", "0"))


def num_processes() -> int:
    """Return the number of processes that torchrun started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def kmers_only(loaded: LoadedModel) -> Iterator[None]:
    """Add a bias to the head that gives probability only to 6-mers; remove it at the end."""
    head: Any = loaded.network.lm_head
    bias = torch.full_like(head.weight[:, 0], _EXCLUDED)
    bias[loaded.vocabulary.kmer_rows] = 0
    head.bias = nn.Parameter(bias, requires_grad=False)
    try:
        yield
    finally:
        head.bias = None


def make_trainer(
    job: RLJob,
    loaded: LoadedModel,
    tokenizer: Any,
    rewards: Rewards,
    rollouts: WorkerRollouts | None = None,
) -> Any:
    """Return trl's trainer with new adapters, for a model inside `kmers_only`."""
    from datasets import Dataset
    from trl.trainer.grpo_trainer import GRPOTrainer

    config, network = job.config, loaded.network
    _set_names(network, job.model, tokenizer)
    trainer_class: Any = off_policy(GRPOTrainer) if rollouts else GRPOTrainer
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*rollout_func")  # trl marks it as experimental
        trainer: Any = trainer_class(
            model=network,
            reward_funcs=rewards.reward_functions(),
            args=_arguments(job),
            train_dataset=Dataset.from_list([{"prompt": prompt_of(config)}] * config.steps),
            processing_class=tokenizer,
            peft_config=_adapters(job),
            rollout_func=rollouts or OwnRollouts(config, loaded.vocabulary, rank()),
        )
    # Otherwise peft looks up the vocabulary of the starting model on the Hub at each checkpoint.
    trainer.model.save_pretrained = partial(
        trainer.model.save_pretrained, save_embedding_layers=False
    )
    trainer.create_model_card = lambda *_, **__: None  # an empty form at each checkpoint
    trainer.remove_callback(PrinterCallback)
    return trainer


def prompt_of(config: RLConfig) -> str:
    """Return the prompt of all samples: tags, `<dna>` and bases."""
    return "".join(config.tags) + "<dna>" + config.prompt.upper()


def tokenizer_of(model: str, vocabulary: Vocabulary) -> Any:
    """Return our tokenizer, with the end token that trl requires; the head never predicts it.

    Raises:
        ModelError: the folder of a hybrid lacks its byte pairs.
    """
    tokenizer_class = NativeDNATokenizer if vocabulary.name == NATIVE.name else HybridDNATokenizer
    tokenizer: Any = tokenizer_class.from_pretrained(model_folder(model).path, padding_side="left")
    tokenizer.eos_token = "</dna>"
    return tokenizer


def with_adapters(job: RLJob, loaded: LoadedModel, tokenizer: Any) -> Any:
    """Return the network with new adapters, in evaluation mode, for a worker that draws."""
    from peft import get_peft_model

    _set_names(loaded.network, job.model, tokenizer)
    network = get_peft_model(loaded.network, _adapters(job)).eval()
    return network.to("cuda" if torch.cuda.is_available() and not job.on_cpu else "cpu")


def _set_names(network: Any, model: str, tokenizer: Any) -> None:
    """Set the base model's name for the adapter, and the special tokens of trl in memory only.

    transformers would set the tokens with a warning.
    """
    network.name_or_path = model
    special_tokens = {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    network.config.update(special_tokens)
    network.generation_config = GenerationConfig(**special_tokens)  # type: ignore[no-untyped-call]


def _adapters(job: RLJob) -> Any:
    from peft import LoraConfig

    return LoraConfig(
        r=job.config.rank,
        lora_alpha=2 * job.config.rank,
        lora_dropout=0.0,
        target_modules=list(LINEAR),
        task_type="CAUSAL_LM",
        base_model_name_or_path=job.model,
    )


def _arguments(job: RLJob) -> Any:
    from trl.trainer.grpo_config import GRPOConfig

    config = job.config
    has_gpu = torch.cuda.is_available() and not job.on_cpu
    arguments = GRPOConfig(
        output_dir=str(job.output),
        use_cpu=not has_gpu,
        bf16=has_gpu,
        seed=config.seed,
        data_seed=config.seed,
        max_steps=config.steps,
        per_device_train_batch_size=config.group // num_processes(),
        ddp_find_unused_parameters=False,
        gradient_accumulation_steps=1,
        num_generations=config.group,
        max_completion_length=config.length_bp // K,
        beta=config.kl,
        learning_rate=config.rate,
        multi_objective_aggregation="normalize_then_sum",  # units differ between functions
        gradient_checkpointing=False,
        save_steps=config.probe_steps,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
    )
    _ = arguments.device  # counts all GPUs of the machine; a process uses one
    arguments._n_gpu = min(arguments._n_gpu, 1)
    return arguments


def has_adapter(name: str) -> bool:
    """Return whether training changes the weight of this name."""
    return name.removesuffix(".weight").rpartition(".")[2] in LINEAR
