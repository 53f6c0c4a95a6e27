"""Reward tuning: the generator itself learns to draw what oracles like (GRPO, arXiv 2402.03300).

trl's trainer is taken as it is. Three things make it one of DNA: the head gets a bias that leaves
probability to 6-mers alone, in what is drawn and in what is learned from; the rewards are those of
the oracles of `carbon design`; and what is written holds nothing of what trl changes.
"""

import json
import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import GenerationConfig, PrinterCallback, TrainerCallback

from carbon.__version__ import __version__
from carbon.adapt.folder import weights_sha256
from carbon.adapt.tuning import LINEAR
from carbon.console import progress
from carbon.design.goals import goals_for
from carbon.design.oracles import Oracle, named_oracle, started
from carbon.design.rewards import Rewards
from carbon.design.tuned_model import save_as_start
from carbon.design.writers import DESIGN_WRITERS
from carbon.errors import UserError
from carbon.files import free_folder
from carbon.model import LoadedModel, load_model, model_folder
from carbon.run_folder import METRICS
from carbon.tokenizer import NATIVE, K, Vocabulary
from carbon.tokenizer.pretrained import HybridDNATokenizer, NativeDNATokenizer

SETTINGS, SAMPLES, ADAPTER, MODEL = "tune.json", "samples", "adapter", "model"
# Added to the logit of a row that is no 6-mer: its probability is 0 in every dtype, and 0 times
# this is 0 where an entropy is summed, as it is not for an infinity.
_NEVER = -1e9
_MOST = 10**6
_LIBRARIES = ("accelerate", "datasets", "peft", "trl")
# Columns of `metrics.jsonl`, beside one for the mean value of each oracle.
_METRICS = (
    *("step", "reward", "reward_std", "kl_nats_per_base", "nats_per_base"),
    *("loss", "grad_norm", "learning_rate"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneTask:
    """What is asked for.

    Attributes:
        length_bp: of a sample; whole 6-mers.
        prompt: DNA before every sample, which conditions it; whole 6-mers.
        tags: metadata tags to condition on.
        goals: of each oracle `most`, `least` or a number to aim at; the most of all if none.
        steps: of learning; each draws a group.
        group: samples that a step compares with one another.
        kl: weight of the divergence from the start.
        rate: of learning, which falls to 0 in a line.
        rank: of the adapters.
        probe_steps: from one file of samples, and one writing of the adapter, to the next.
        seed: of samples and adapters.
        timeout_seconds: for a group, and for the start of an oracle's process.

    Raises:
        UserError: a value makes no sense.
    """

    length_bp: int
    prompt: str = ""
    tags: Sequence[str] = ()
    goals: Sequence[str | float] = ()
    steps: int = 200
    group: int = 16
    kl: float = 0.04
    rate: float = 1e-4
    rank: int = 16
    probe_steps: int = 20
    seed: int = 0
    timeout_seconds: float = 600.0

    def __post_init__(self) -> None:
        least = {"length": (self.length_bp, K), "steps": (self.steps, 1), "group": (self.group, 2)}
        more = {"rank": (self.rank, 1), "probe": (self.probe_steps, 1), "seed": (self.seed, 0)}
        for name, (number, fewest) in (least | more).items():
            if not fewest <= number <= _MOST:
                raise UserError(f"{name} {number}: give {fewest} to {_MOST:,}")
        for name, length_bp in (("length", self.length_bp), ("prompt", len(self.prompt))):
            if length_bp % K:
                raise UserError(f"{name} of {length_bp} bp: give a multiple of {K}, whole {K}-mers")
        if set(self.prompt.upper()) - set("ACGT"):
            raise UserError("the prompt: give bases A, C, G and T alone")
        if not 0 <= self.kl < math.inf:
            raise UserError(f"kl {self.kl}: give 0 or more")
        if not 0 < self.rate < math.inf:
            raise UserError(f"rate {self.rate}: give more than 0")
        if not self.timeout_seconds > 0:
            raise UserError(f"timeout {self.timeout_seconds}: give more than 0 seconds")


class TuneJob(NamedTuple):
    """What to write.

    Attributes:
        model: as it was named.
        oracles: `NAME=KIND:WHAT` or `KIND:WHAT`.
        task: what is asked for.
        output: folder to write.
        on_cpu: leave a GPU alone.
    """

    model: str
    oracles: Sequence[str]
    task: TuneTask
    output: Path
    on_cpu: bool = False


def check_tuning(job: TuneJob) -> None:
    """Look for all that can be wrong before a model is loaded.

    Raises:
        UserError: something is.
    """
    free_folder(job.output)
    for oracle in job.oracles:
        named_oracle(oracle)
    goals_for(job.task.goals, len(job.oracles))
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("carbon tune is one process; start it without torchrun")
    try:
        for library in _LIBRARIES:
            import_module(library)
    except ImportError:
        raise UserError(
            f"carbon tune needs {', '.join(_LIBRARIES)}; pip install 'carbon-dna[tune]'"
        ) from None


def run_tuning(job: TuneJob) -> dict[str, Any]:
    """Tune, write the run folder, and return a summary.

    Raises:
        UserError: something does not fit the model, or an oracle fails; what was written until
            then stays.
    """
    loaded = load_model(job.model)
    _check_fit(loaded, job.task)
    tokenizer = tokenizer_of(job.model, loaded.vocabulary)
    oracles = started(job.oracles, job.task.timeout_seconds, (*_METRICS, "name", "bases"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # trl's, of what transformers renames
            return _tuned(job, loaded, tokenizer, oracles)
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
    rewards = Rewards(oracles, goals_for(job.task.goals, len(oracles)), loaded.vocabulary)
    settings = _settings(job)
    folder = free_folder(job.output)
    (folder / SAMPLES).mkdir(parents=True)
    (folder / SETTINGS).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    with six_mers_alone(loaded), progress("tuning, steps", job.task.steps) as advance:
        trainer = trainer_of(job, loaded, tokenizer, rewards)
        trainer.add_callback(_Written(folder, job.task, settings, rewards, trainer.model, advance))
        trainer.train()
        merged = trainer.model.merge_and_unload().state_dict()
    tuned = {name: merged[name] for name in merged if _has_adapter(name)}
    (folder / MODEL).mkdir()
    save_as_start(model_folder(job.model).path, tuned, folder / MODEL)
    first, last = rewards.means[0], rewards.means[-1]
    return {"output": str(job.output), "steps": job.task.steps, "first": first, "last": last}


def _settings(job: TuneJob) -> dict[str, Any]:
    named = [named_oracle(each) for each in job.oracles]
    return {
        "carbon": __version__,
        "model": job.model,
        "model_sha256": weights_sha256(model_folder(job.model).path),
        "oracles": ",".join(f"{each.name}={each.kind}:{each.what}" for each in named),
        **asdict(job.task),
        "goals": ",".join(map(str, job.task.goals or ["most"] * len(named))),
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


def trainer_of(job: TuneJob, loaded: LoadedModel, tokenizer: Any, rewards: Rewards) -> Any:
    """Return trl's trainer of a model whose head is held to 6-mers, with adapters that are new."""
    from datasets import Dataset
    from trl.trainer.grpo_trainer import GRPOTrainer

    task, network = job.task, loaded.network
    _name_ends(network, tokenizer)
    network.name_or_path = job.model
    prompt = "".join(task.tags) + "<dna>" + task.prompt.upper()
    trainer: Any = GRPOTrainer(
        model=network,
        reward_funcs=rewards.functions(),
        args=_arguments(job),
        train_dataset=Dataset.from_list([{"prompt": prompt}] * task.steps),
        processing_class=tokenizer,
        peft_config=_adapters(job),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


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
        per_device_train_batch_size=task.group,
        gradient_accumulation_steps=1,
        num_generations=task.group,
        max_completion_length=task.length_bp // K,
        beta=task.kl,
        learning_rate=task.rate,
        multi_objective_aggregation="normalize_then_sum",  # oracles have units of their own
        gradient_checkpointing=False,
        save_strategy="no",
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
    )
    _ = arguments.device  # counts the GPUs; of a process it is one, whatever the machine has
    arguments._n_gpu = min(arguments._n_gpu, 1)
    return arguments


class _Written(TrainerCallback):
    """A line of metrics a step; samples and the adapter at every probe."""

    def __init__(
        self,
        folder: Path,
        task: TuneTask,
        settings: dict[str, Any],
        rewards: Rewards,
        adapted: Any,
        advance: Callable[[int], None],
    ) -> None:
        self._folder, self._task, self._settings = folder, task, settings
        self._rewards, self._adapted, self._advance = rewards, adapted, advance

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Write what a step was; what trl tells in the end is of none."""
        if "reward" not in logs:
            return
        step = state.global_step
        with (self._folder / METRICS).open("a", encoding="utf-8") as sink:
            sink.write(json.dumps(self._line(step, logs)) + "\n")
        if step % self._task.probe_steps == 0 or step == self._task.steps:
            self._write_samples(step)
            save_adapter(self._adapted, self._folder / ADAPTER)
        self._advance(1)

    def _line(self, step: int, logs: dict[str, Any]) -> dict[str, Any]:
        """Return a step; trl's means are of tokens, and a token is six bases."""
        rewards = self._rewards.gains.sum(axis=1)
        found = {
            "step": step,
            "reward": float(rewards.mean()),
            "reward_std": float(rewards.std()),
            "kl_nats_per_base": logs["kl"] / K if "kl" in logs else None,
            "nats_per_base": logs["entropy"] / K,
            **{name: logs.get(name) for name in ("loss", "grad_norm", "learning_rate")},
        }
        return found | self._rewards.means[-1]

    def _write_samples(self, step: int) -> None:
        rewards = self._rewards
        names = [oracle.name for oracle in rewards.oracles]
        columns = {"name": str, **dict.fromkeys(names, float), "bases": str}
        path = self._folder / SAMPLES / f"step_{step:06d}.fa"
        with DESIGN_WRITERS[".fa"](path, columns, {"step": step} | self._settings) as write:
            for number, (bases, values) in enumerate(
                zip(rewards.sequences, rewards.values, strict=True), start=1
            ):
                write((f"sample_{number}", *values, bases))


def save_adapter(adapted: Any, folder: Path) -> None:
    """Write the adapter as `peft.PeftModel.from_pretrained` loads it, in the place of an earlier.

    Args:
        adapted: network of peft.
        folder: to write or to replace.
    """
    config = adapted.peft_config["default"]
    targets, config.target_modules = config.target_modules, sorted(config.target_modules)
    adapted.save_pretrained(folder, save_embedding_layers=False)
    config.target_modules = targets
    (folder / "README.md").unlink(missing_ok=True)  # peft's card, which nobody has filled in
