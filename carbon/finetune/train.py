"""Train adapters or all weights with transformers.Trainer."""

import logging
import re
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from pydantic import NonNegativeInt
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler
from transformers import (
    EarlyStoppingCallback,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from typing_extensions import TypedDict

from carbon.errors import UserError
from carbon.finetune.config import LINEAR, MethodConfig
from carbon.finetune.network import (
    OF_A_WHOLE_BATCH,
    FinetunedNetwork,
    batches,
    rows_of,
    turned,
)
from carbon.finetune.predict import FinetunedModel, validate
from carbon.finetune.split import Examples, Input, input_bp, sequences_of
from carbon.finetune.tasks import LabelTask
from carbon.io.structured import read_json
from carbon.progress import progress

_WEIGHTS = "trained.safetensors"  # of a checkpoint; other files are the trainer's
_CHECKPOINT = re.compile(rf"{PREFIX_CHECKPOINT_DIR}-(\d{{1,12}})", re.ASCII)


class _Stops(TypedDict):
    should_training_stop: bool


class _Control(TypedDict):
    args: _Stops


class _Callbacks(TypedDict):
    TrainerControl: _Control


class _State(TypedDict):
    """The part of the trainer's state that a resumed run depends on."""

    global_step: NonNegativeInt
    log_history: list[dict[str, Any]]
    best_model_checkpoint: str | None
    stateful_callbacks: _Callbacks


class ValidationStep(NamedTuple):
    """A validation during training.

    Attributes:
        step: optimizer steps so far.
        epoch: passes over the train split so far.
        loss: mean training loss since the previous validation.
        score: score on the validation split; higher is better.
        validation_loss: loss on the validation split, without dropout and with all strands.
    """

    step: int
    epoch: float
    loss: float
    score: float
    validation_loss: float


@dataclass(frozen=True, kw_only=True)
class TrainingHistory:
    """Validations of a training run; the network has the weights of the best one.

    Attributes:
        validations: in order.
        best: the one with the highest score.
        micro_batch: sequences per forward pass of a process.
    """

    validations: tuple[ValidationStep, ...]
    best: ValidationStep
    micro_batch: int


def trained_of(network: FinetunedNetwork) -> dict[str, Tensor]:
    """Return the trainable weights, on the CPU."""
    parameters = network.named_parameters()
    return {n: p.detach().cpu().contiguous() for n, p in parameters if p.requires_grad}


def save_trained(network: FinetunedNetwork, folder: Path) -> None:
    """Write the trainable weights."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(trained_of(network), folder / _WEIGHTS)


def restore_trained(network: FinetunedNetwork, folder: Path) -> None:
    """Load the weights that `save_trained` wrote."""
    keys = network.load_state_dict(load_file(folder / _WEIGHTS), strict=False)
    assert not keys.unexpected_keys and not set(keys.missing_keys) & set(trained_of(network))


def checkpoint_of(folder: Path, step: int | None) -> Path:
    """Return the folder of the checkpoint after a step."""
    return folder / f"{PREFIX_CHECKPOINT_DIR}-{step}"


def last_checkpoint(folder: Path) -> Path | None:
    """Return the last complete checkpoint, and remove incomplete ones that a kill left."""
    checkpoints = {
        int(match[1]): path
        for path in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*")
        if (match := _CHECKPOINT.fullmatch(path.name))
    }
    for step in sorted(checkpoints, reverse=True):
        if _is_whole(checkpoints[step]):
            return checkpoints[step]
        shutil.rmtree(checkpoints[step], ignore_errors=True)
    return None


def _is_whole(checkpoint: Path) -> bool:
    """Return whether all files exist; the trainer's state is written last."""
    state = state_of(checkpoint)
    if state is None or not (checkpoint / _WEIGHTS).is_file():
        return False
    files = [*checkpoint.glob(OPTIMIZER_NAME), *checkpoint.glob(SCHEDULER_NAME)]
    return has_ended(state) or (len(files) == 2 and any(checkpoint.glob("rng_state*.pth")))


def state_of(checkpoint: Path) -> TrainerState | None:
    """Return the trainer's state at a checkpoint; None if it is absent or truncated."""
    try:
        read_json(checkpoint / TRAINER_STATE_NAME, _State, finite=False)
        state: TrainerState = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
        return state
    except (OSError, ValueError, TypeError):
        return None


def has_ended(state: TrainerState) -> bool:
    """Return whether the state was written after training had ended, by steps or patience."""
    callbacks: Any = state.stateful_callbacks
    return bool(callbacks["TrainerControl"]["args"]["should_training_stop"])


class ExampleKey(NamedTuple):
    """How a step reads an example.

    Attributes:
        example: its number.
        is_turned: whether it is read as its reverse complement.
        counts: False if it pads a microbatch that would be empty; its targets are then unknown.
    """

    example: int
    is_turned: bool
    counts: bool = True


@dataclass(kw_only=True)
class StepSampler(Sampler[list[ExampleKey]]):
    """Batch sampler: the microbatches of one process in an epoch, none of them empty.

    Attributes:
        num_examples: examples of the train split.
        batch: examples per step over all processes and microbatches; the last step of an epoch has
            the remainder.
        seed: seed of order and strands.
        augment: whether half of the examples are turned, different ones in each epoch.
        microbatches: microbatches per step.
        rank: of this process.
        num_processes: of all processes.
        epoch: from 0; the trainer sets it.
    """

    num_examples: int
    batch: int
    seed: int
    augment: bool
    microbatches: int = 1
    rank: int = 0
    num_processes: int = 1
    epoch: int = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-self.num_examples // self.batch) * self.microbatches

    def __iter__(self) -> Iterator[list[ExampleKey]]:
        random = np.random.default_rng([self.seed, self.epoch])
        order = random.permutation(self.num_examples)
        turned = random.random(self.num_examples) < (0.5 if self.augment else 0.0)
        keys = [ExampleKey(int(n), bool(turned[n])) for n in order]
        for first in range(0, self.num_examples, self.batch):
            step = keys[first : first + self.batch]
            for number in range(
                self.rank, self.microbatches * self.num_processes, self.num_processes
            ):
                share = step[number :: self.microbatches * self.num_processes]
                yield share or [step[0]._replace(counts=False)]


_TRAINING_SHARE = 0.1  # tokens of a pass with gradients / without
_BEST_BY, _LOSS = "eval_score", "eval_loss"


def with_lora(backbone: Any, method: MethodConfig, base: str) -> Any:
    """Return a decoder with low-rank adapters, its only trainable weights (Hu et al. 2021).

    Args:
        backbone: of an `OpenedModel`.
        method: rank, scale, dropout and targets.
        base: name of the model, for the adapter's files.

    Raises:
        UserError: peft is not installed, or the decoder has no module of a target's name.
    """
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError:
        raise UserError("method 'lora' needs peft; install carbon-dna[finetune]") from None
    targets = list(method.targets or LINEAR)
    names = {name.rpartition(".")[2] for name, _ in backbone.named_modules()}
    if unknown := [name for name in targets if name not in names]:
        raise UserError(
            f"method.targets: no module is named '{unknown[0]}'; modules are {', '.join(LINEAR)}"
        )
    config = LoraConfig(
        r=method.rank,
        lora_alpha=method.scale,  # type: ignore[arg-type]
        lora_dropout=method.dropout,
        target_modules=(
            targets if method.layer is None else _below(backbone, method.layer, targets)
        ),
        task_type="FEATURE_EXTRACTION",
        base_model_name_or_path=base,
    )
    backbone.name_or_path = base  # a bare decoder has no name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft uses an old name of transformers
        return get_peft_model(backbone, config)


def _below(backbone: nn.Module, layer: int, targets: Sequence[str]) -> list[str]:
    """Return the names of the target modules of the first layers, which every stock class finds.

    peft's `layers_to_transform` does not find the layers of a bare decoder, and loading a folder
    refuses a pattern in place of names.
    """
    names = (name.split(".") for name, _ in backbone.named_modules())
    return [
        ".".join(parts)
        for parts in names
        if parts[-1] in targets and parts[0] == "layers" and int(parts[1]) < layer
    ]


def train_weights(
    finetuned: FinetunedModel,
    train: Examples,
    validation: Examples,
    method: MethodConfig,
    seed: int,
    folder: Path,
    *,
    resume: bool = False,
) -> TrainingHistory:
    """Train a network until its validation score stops improving, and load the best weights.

    Args:
        finetuned: its network is trained, all weights that require a gradient.
        train: examples to fit.
        validation: examples that select the checkpoint.
        method: hyperparameters.
        seed: seed of order, strands and dropout.
        folder: folder for checkpoints.
        resume: continue from the last checkpoint, or load the best one if training had ended.

    Raises:
        UserError: no validation step has a score, or the loss needs a whole batch and a step has
            several microbatches.
    """
    trainer = _Trainer(finetuned, train, validation, method, seed, folder)
    trainer.train_from(last_checkpoint(folder) if resume else None)
    validations, best_step = _validations(trainer.state.log_history), trainer.state.best_global_step
    if not best_step:
        raise UserError(
            "the validation split has no score at any validation step; are its labels all equal?"
        )
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        for state in folder.glob(f"*/{OPTIMIZER_NAME}"):
            state.unlink()  # two of the three parts of a checkpoint, which nothing reads again
    finetuned.network.eval()
    best = next(each for each in validations if each.step == best_step)
    return TrainingHistory(
        validations=tuple(validations),
        best=best,
        micro_batch=trainer.args.per_device_train_batch_size,
    )


def _validations(log: Sequence[dict[str, float]]) -> list[ValidationStep]:
    validations, losses = [], [float("nan")]
    for row in log:
        if "loss" in row:
            losses.append(row["loss"])
        if _BEST_BY in row:
            mean = float(np.mean(losses[1:])) if len(losses) > 1 else losses[0]
            seen = row[_BEST_BY], row[_LOSS]
            validations.append(ValidationStep(int(row["step"]), row["epoch"], mean, *seen))
            losses = [float("nan")]
    return validations


class _Rows(Dataset[tuple[Input, Tensor]]):
    """Training examples: bases and targets."""

    def __init__(self, examples: Examples, task: LabelTask) -> None:
        self.examples, self.inputs = examples, examples.inputs
        self.targets = torch.from_numpy(task.targets(examples.labels))

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, key: ExampleKey) -> tuple[Input, Tensor]:
        item = self.inputs[key.example]
        targets = self.targets[self.examples.rows_of(key.example)]
        if key.is_turned:
            item, targets = turned(item), targets.flip(0)
        return item, targets if key.counts else torch.full_like(targets, torch.nan)


class _Loader(DataLoader[Any]):
    def set_epoch(self, epoch: int) -> None:
        """Pass the epoch to the batch sampler, which the trainer does not do."""
        self.batch_sampler.set_epoch(epoch)  # type: ignore[union-attr]


class _Trainer(Trainer):
    """transformers.Trainer with this package's batches, loss, score and checkpoints."""

    def __init__(
        self,
        finetuned: FinetunedModel,
        train: Examples,
        validation: Examples,
        method: MethodConfig,
        seed: int,
        folder: Path,
    ) -> None:
        self.finetuned, self.validation, self.method, self.folder = (
            finetuned,
            validation,
            method,
            folder,
        )
        arguments = _arguments(finetuned, train, method, seed, folder)
        self.steps = StepSampler(
            num_examples=len(train),
            batch=method.batch_sequences,
            seed=seed,
            augment=method.augment,
            microbatches=arguments.gradient_accumulation_steps,
            rank=arguments.process_index,
            num_processes=arguments.world_size,
        )
        super().__init__(
            model=finetuned.network,
            args=arguments,
            train_dataset=_Rows(train, finetuned.task),
            eval_dataset=validation,  # read by `evaluate`
            # With a loss function, transformers does not divide the loss by the microbatches; this
            # loss is divided by the weight of the whole step. `compute_loss` calls it.
            compute_loss_func=finetuned.task.loss_of,
            callbacks=[EarlyStoppingCallback(method.patience), _StepProgress()],
        )
        self.remove_callback(PrinterCallback)

    def train_from(self, checkpoint: Path | None) -> None:
        """Train from the beginning or from a checkpoint, and load the best weights.

        The last checkpoint is written after training has ended. The loop of transformers would take
        one more step from there.
        """
        if checkpoint and (state := state_of(checkpoint)) and has_ended(state):
            self.state = state
            self._load_best_model()
            return
        with _without_notices_of_checkpoints():
            self.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the microbatches of this process, which are already sharded."""
        finetuned, rows = self.finetuned, cast("Any", self.train_dataset)
        per_base = finetuned.task.per_base
        make = batches(finetuned.vocabulary, finetuned.manifest.pool, per_base=per_base)

        def collate(examples: Sequence[tuple[Input, Tensor]]) -> dict[str, Any]:
            inputs, targets = zip(*examples, strict=True)
            return {"batch": make(rows_of(inputs)), "targets": torch.cat(targets)}

        return _Loader(rows, batch_sampler=self.steps, collate_fn=collate)

    def _prepare_inputs(self, inputs: Any) -> Any:
        return {name: value.to(self.args.device) for name, value in inputs.items()}

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> Tensor:
        """Return the total weight of a step, over all microbatches and processes."""
        weight_of = self.finetuned.task.weights_of
        weights = [weight_of(microbatch["targets"]).double().sum() for microbatch in batch_samples]
        total: Tensor = self.accelerator.gather(torch.stack(weights).sum().to(device)).sum()
        return total

    def compute_loss(  # type: ignore[override]
        self, model: Any, inputs: Any, *_: Any, num_items_in_batch: Tensor, **__: Any
    ) -> Tensor:
        """Return a loss that, averaged over processes and summed over microbatches, is the mean."""
        logits = model(inputs["batch"])
        return self.finetuned.task.loss_of(logits, inputs["targets"], num_items_in_batch)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Score the validation split with the predictions of `predict`, a share per process."""
        validation = validate(self.finetuned, self.validation, self.method)
        metrics = {_BEST_BY: validation.score, _LOSS: validation.loss}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        del state_dict
        save_trained(self.finetuned.network, Path(output_dir or str(self.args.output_dir)))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        del model
        restore_trained(self.finetuned.network, Path(resume_from_checkpoint))

    def _load_best_model(self) -> None:
        restore_trained(
            self.finetuned.network, checkpoint_of(self.folder, self.state.best_global_step)
        )


def _arguments(
    finetuned: FinetunedModel, train: Examples, method: MethodConfig, seed: int, folder: Path
) -> TrainingArguments:
    has_gpu = torch.cuda.is_available()
    steps = -(-len(train) // method.batch_sequences)
    validations = max(1, steps // method.validations_per_epoch)
    try:
        arguments = TrainingArguments(
            output_dir=str(folder),
            use_cpu=not has_gpu,
            bf16=has_gpu,
            seed=seed,
            data_seed=seed,
            num_train_epochs=method.most_epochs,
            learning_rate=method.rate,
            weight_decay=method.weight_decay,
            warmup_steps=method.warmup_share,
            lr_scheduler_type="cosine",
            max_grad_norm=method.clip,
            eval_strategy="steps",
            eval_steps=validations,
            save_strategy="steps",
            save_steps=validations,
            save_total_limit=1,
            restore_callback_states_from_checkpoint=True,  # early stopping resumes its count
            load_best_model_at_end=True,
            metric_for_best_model=_BEST_BY,
            greater_is_better=True,
            logging_steps=1,
            logging_nan_inf_filter=False,
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
        )
    except ImportError:
        raise UserError(
            f"method '{method.name}' needs accelerate; install carbon-dna[finetune]"
        ) from None
    _ = arguments.device  # sets the GPU count, which is 1 for each process
    arguments._n_gpu = min(arguments._n_gpu, 1)
    micro_batch = method.micro_batch or _max_micro_batch(finetuned, train)
    arguments.gradient_accumulation_steps = max(
        1, -(-method.batch_sequences // (micro_batch * arguments.world_size))
    )
    arguments.per_device_train_batch_size = min(micro_batch, method.batch_sequences)
    _check_whole_batch(finetuned.task.loss, method, arguments)
    return arguments


def _check_whole_batch(loss: str, method: MethodConfig, arguments: TrainingArguments) -> None:
    """Raise UserError if a loss of a whole batch would be averaged over microbatches."""
    if loss in OF_A_WHOLE_BATCH and arguments.gradient_accumulation_steps > 1:
        needed = -(-method.batch_sequences // arguments.world_size)
        raise UserError(
            f"loss '{loss}' needs a whole batch, and a step of {method.batch_sequences} sequences "
            f"would have {arguments.gradient_accumulation_steps} microbatches; set "
            f"method.micro_batch = {needed} if memory allows, or a smaller method.batch"
        )


def _max_micro_batch(finetuned: FinetunedModel, train: Examples) -> int:
    """Return how many of the longest sequences fit a pass with gradients."""
    longest = max(map(input_bp, train.inputs)) // 6 + 2
    longest *= len(sequences_of(train.inputs[0]))
    share = _TRAINING_SHARE if torch.cuda.is_available() else 1.0
    return max(
        1,
        int(share * finetuned.averager.batch_tokens) // (longest * (1 + finetuned.task.per_base)),
    )


@contextmanager
def _without_notices_of_checkpoints() -> Iterator[None]:
    """Hide a notice about the file system if two checkpoints are written within a second."""
    logger = logging.getLogger("transformers.trainer_utils")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


class _StepProgress(TrainerCallback):
    """Progress bar on stderr."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Open the bar."""
        if state.is_world_process_zero:
            label = f"training with seed {args.seed}, steps"
            self._open = progress(label, state.max_steps, state.global_step)
            self._advance = self._open.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count a step."""
        if state.is_world_process_zero:
            self._advance(1)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Close the bar."""
        if state.is_world_process_zero:
            self._open.__exit__(None, None, None)
