"""Train adapters or all weights with transformers.Trainer."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler
from transformers import (
    EarlyStoppingCallback,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from carbon.errors import UserError
from carbon.finetune.batches import MakeBatch, batches
from carbon.finetune.checkpoints import (
    TrainingHistory,
    ValidationStep,
    checkpoint_of,
    finish,
    has_ended,
    last_checkpoint,
    restore_finished,
    restore_trained,
    save_trained,
    state_of,
)
from carbon.finetune.config import MethodConfig
from carbon.finetune.data import Examples
from carbon.finetune.losses import OF_A_WHOLE_BATCH
from carbon.finetune.predict import FinetunedModel, validate
from carbon.finetune.tasks import LabelTask
from carbon.genome import reverse_complement
from carbon.progress import progress

_STEPS = 2**16


class Dropout(nn.Module):
    """Dropout with 16 random bits per element on a CPU.

    Each layer has seven of these modules; there torch's dropout takes longer than the matrix
    products of a small model. The rate is rounded to a multiple of 2^-16. Other devices use torch's
    dropout.
    """

    def __init__(self, share: float) -> None:
        """Store the dropout rate, from 0 to less than 1."""
        super().__init__()
        self._share = share
        self._steps = round(share * _STEPS)

    def forward(self, values: Tensor) -> Tensor:
        """Return values of the same shape and type."""
        if not self.training:
            return values
        if values.device.type != "cpu":
            return nn.functional.dropout(values, self._share)
        words = torch.empty(-(-values.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        draws = words.view(torch.int16)[: values.numel()].view(values.shape)
        dropped = draws < self._steps - _STEPS // 2
        result: Tensor = _Masked.apply(values, dropped, _STEPS / (_STEPS - self._steps))  # type: ignore[no-untyped-call]
        return result


class _Masked(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, values: Tensor, dropped: Tensor, scale: float) -> Tensor:
        context.save_for_backward(dropped)
        context.scale = scale
        return values.masked_fill(dropped, 0).mul_(scale)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (dropped,) = context.saved_tensors
        return gradient.masked_fill(dropped, 0).mul_(context.scale), None, None


class ExampleKey(NamedTuple):
    """How a step reads an example.

    Attributes:
        example: its number.
        is_turned: whether it is read as its reverse complement.
        counts: False if it pads a microbatch that would be empty; its targets are then unknown.
        epoch: from 0.
        step: step of the epoch, from 0.
    """

    example: int
    is_turned: bool
    counts: bool
    epoch: int
    step: int


@dataclass(frozen=True, kw_only=True)
class BatchSchedule:
    """Assigns examples to steps, microbatches and processes.

    Attributes:
        num_examples: examples of the train split.
        batch: examples per step over all processes and microbatches; the last step of an epoch has
            the remainder.
        seed: seed of order and strands.
        augment: whether half of the examples are turned, different ones in each epoch.
        microbatches: microbatches per step.
        rank: of this process.
        num_processes: of all processes.
    """

    num_examples: int
    batch: int
    seed: int
    augment: bool
    microbatches: int = 1
    rank: int = 0
    num_processes: int = 1

    @property
    def num_steps(self) -> int:
        """Steps per epoch."""
        return -(-self.num_examples // self.batch)

    def step(self, epoch: int, step: int) -> list[ExampleKey]:
        """Return the examples of a step, over all processes."""
        numbers = np.random.default_rng([self.seed, epoch])
        order = numbers.permutation(self.num_examples)
        turned = numbers.random(self.num_examples) < (0.5 if self.augment else 0.0)
        return [
            ExampleKey(int(n), bool(turned[n]), True, epoch, step)
            for n in order[step * self.batch : (step + 1) * self.batch]
        ]

    def for_this_process(self, epoch: int) -> Iterator[list[ExampleKey]]:
        """Yield the microbatches of this process in an epoch, none of them empty."""
        for step in range(self.num_steps):
            keys = self.step(epoch, step)
            for number in range(self.microbatches):
                first = number * self.num_processes + self.rank
                microbatch = keys[first :: self.microbatches * self.num_processes]
                yield microbatch or [keys[0]._replace(counts=False)]


class StepSampler(Sampler[list[ExampleKey]]):
    """Batch sampler of `BatchSchedule.for_this_process`, for the epoch that the trainer sets."""

    def __init__(self, steps: BatchSchedule) -> None:
        """Start with the first epoch."""
        self.steps, self.epoch = steps, 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.steps.num_steps * self.steps.microbatches

    def __iter__(self) -> Iterator[list[ExampleKey]]:
        return self.steps.for_this_process(self.epoch)


LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The linear modules of a layer, which get adapters by default."""

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
    finetuned: Any = get_peft_model(backbone, config)
    for module in list(finetuned.modules()):
        if method.dropout and hasattr(module, "lora_dropout"):
            module.lora_dropout["default"] = Dropout(method.dropout)
    return finetuned


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
        folder: folder for checkpoints, and in the end for the result.
        resume: continue from the last checkpoint, or load the result if training had ended.

    Raises:
        UserError: no validation step has a score, or the loss needs a whole batch and a step has
            several microbatches.
    """
    if resume and (ended := restore_finished(finetuned.network, folder)):
        finetuned.network.eval()
        return ended
    trainer = _Trainer(finetuned, train, validation, method, seed, folder)
    trainer.train_from(last_checkpoint(folder) if resume else None)
    validations = _validations(trainer.state.log_history)
    if not trainer.state.best_global_step:
        raise UserError(
            "the validation split has no score at any validation step; are its labels all equal?"
        )
    best = next(
        validation_step
        for validation_step in validations
        if validation_step.step == trainer.state.best_global_step
    )
    training = TrainingHistory(validations=tuple(validations), best=best)
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        finish(finetuned.network, training, folder)
    finetuned.network.eval()
    return training


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


class _Rows(Dataset[tuple[str, Tensor, float]]):
    """Training examples, each with the total weight of its step.

    A key names its epoch, so a loader that resumes within an epoch needs no state.
    """

    def __init__(self, examples: Examples, task: LabelTask, steps: BatchSchedule) -> None:
        self.examples, self.steps = examples, steps
        self.targets = torch.from_numpy(task.targets(examples.labels))
        of_rows = task.weights_of(self.targets).sum(dim=1).double().numpy()
        sums = np.concatenate([[0.0], np.cumsum(of_rows)])
        self.weights = np.diff(sums[examples.starts])
        self._epoch, self._totals = -1, [0.0]

    def total_weight(self, epoch: int, step: int) -> float:
        """Return the total weight of a step over all microbatches and processes."""
        if epoch != self._epoch:
            keys = [self.steps.step(epoch, n) for n in range(self.steps.num_steps)]
            self._totals = [float(sum(self.weights[k.example] for k in step)) for step in keys]
            self._epoch = epoch
        return self._totals[step]

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, key: ExampleKey) -> tuple[str, Tensor, float]:
        sequence = self.examples.sequences[key.example]
        targets = self.targets[self.examples.rows_of(key.example)]
        if key.is_turned:
            sequence, targets = reverse_complement(sequence), targets.flip(0)
        if not key.counts:
            targets = torch.full_like(targets, torch.nan)
        return sequence, targets, self.total_weight(key.epoch, key.step)


class _Loader(DataLoader[Any]):
    def set_epoch(self, epoch: int) -> None:
        """Pass the epoch to the batch sampler, which the trainer does not do."""
        self.batch_sampler.set_epoch(epoch)  # type: ignore[union-attr]


def _collate(make: MakeBatch) -> Callable[[Sequence[tuple[str, Tensor, float]]], dict[str, Any]]:
    def collate(rows: Sequence[tuple[str, Tensor, float]]) -> dict[str, Any]:
        sequences, targets, totals = zip(*rows, strict=True)
        return {
            "batch": make(sequences),
            "targets": torch.cat(targets),
            "total_weight": totals[0],
        }

    return collate


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
        self.steps = BatchSchedule(
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
            train_dataset=_Rows(train, finetuned.task, self.steps),
            eval_dataset=validation,  # read by `evaluate`
            # With a loss function, transformers does not divide the loss by the microbatches; this
            # loss is divided by the weight of the whole step. `compute_loss` calls it.
            compute_loss_func=finetuned.task.loss_of,
            callbacks=[EarlyStoppingCallback(method.patience), _StepProgress(self.steps.num_steps)],
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
        self.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the microbatches of this process, which are already sharded."""
        task = self.finetuned.task
        make = batches(
            self.finetuned.vocabulary, self.finetuned.manifest.pool, per_base=task.per_base
        )
        rows: Any = self.train_dataset
        return _Loader(rows, batch_sampler=StepSampler(self.steps), collate_fn=_collate(make))

    def _prepare_inputs(self, inputs: Any) -> Any:
        device = self.args.device
        moved = {name: inputs[name].to(device) for name in ("batch", "targets")}
        return inputs | moved

    def compute_loss(  # type: ignore[override]
        self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any
    ) -> Any:
        """Return a loss that, averaged over processes and summed over microbatches, is the mean."""
        logits = model(inputs["batch"])
        task = self.finetuned.task
        loss = task.loss_of(logits, inputs["targets"], inputs["total_weight"])
        return (loss, logits) if return_outputs else loss

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
    longest = max(map(len, train.sequences)) // 6 + 2
    share = _TRAINING_SHARE if torch.cuda.is_available() else 1.0
    return max(
        1,
        int(share * finetuned.averager.batch_tokens) // (longest * (1 + finetuned.task.per_base)),
    )


class _StepProgress(TrainerCallback):
    """Progress bar on stderr."""

    def __init__(self, steps_per_epoch: int) -> None:
        self._steps_per_epoch = steps_per_epoch

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Open the bar."""
        if state.is_world_process_zero:
            self._open = progress("training, steps", state.max_steps, state.global_step)
            self._advance = self._open.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count a step."""
        if state.is_world_process_zero:
            self._advance(1)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Close the bar."""
        if state.is_world_process_zero:
            self._open.__exit__(None, None, None)
