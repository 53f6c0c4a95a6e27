"""Dropout before adapters, of 16 bits a draw on a CPU.

Seven modules a layer have one. Torch's takes longer there than the matrices of a small model.
"""

import re
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
    Look,
    Tuned,
    checkpoint_of,
    finish,
    has_ended,
    last_checkpoint,
    restore_finished,
    restore_trained,
    save_trained,
    state_of,
)
from carbon.finetune.config import WayConfig
from carbon.finetune.data import Examples
from carbon.finetune.losses import OF_A_WHOLE_BATCH
from carbon.finetune.predict import FinetunedModel, measured
from carbon.finetune.tasks import Question
from carbon.genome import reverse_complement
from carbon.progress import progress

_STEPS = 2**16


class Dropout(nn.Module):
    """Zeros for a share of the numbers, in training; the others grow, so that the mean stays.

    Of the share the nearest multiple of 2^-16 is taken. On a GPU it is torch's own.
    """

    def __init__(self, share: float) -> None:
        """Take the share, from 0 to less than 1."""
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
        found: Tensor = _Masked.apply(values, dropped, _STEPS / (_STEPS - self._steps))  # type: ignore[no-untyped-call]
        return found


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


class Key(NamedTuple):
    """An example as a step reads it.

    Attributes:
        example: its number.
        is_turned: it is read as its reverse complement.
        counts: otherwise it fills a part that would be empty, and its targets are unknown.
        epoch: from 0.
        step: of the epoch, from 0.
    """

    example: int
    is_turned: bool
    counts: bool
    epoch: int
    step: int


@dataclass(frozen=True, kw_only=True)
class Steps:
    """How examples are dealt out.

    Attributes:
        num_examples: to learn from.
        batch: of a step, over all processes and parts; of an epoch's last what is left.
        seed: of the order, and of the strands.
        augment: half of the examples are turned, each epoch others.
        parts: that a step is accumulated of.
        rank: of this process.
        num_processes: of all.
    """

    num_examples: int
    batch: int
    seed: int
    augment: bool
    parts: int = 1
    rank: int = 0
    num_processes: int = 1

    @property
    def num_steps(self) -> int:
        """Steps of an epoch."""
        return -(-self.num_examples // self.batch)

    def step(self, epoch: int, step: int) -> list[Key]:
        """Return the examples of a step, over all processes."""
        numbers = np.random.default_rng([self.seed, epoch])
        order = numbers.permutation(self.num_examples)
        turned = numbers.random(self.num_examples) < (0.5 if self.augment else 0.0)
        return [
            Key(int(n), bool(turned[n]), True, epoch, step)
            for n in order[step * self.batch : (step + 1) * self.batch]
        ]

    def mine(self, epoch: int) -> Iterator[list[Key]]:
        """Yield the parts that this process reads: `parts` a step, none of them empty."""
        for step in range(self.num_steps):
            keys = self.step(epoch, step)
            for part in range(self.parts):
                first = part * self.num_processes + self.rank
                mine = keys[first :: self.parts * self.num_processes]
                yield mine or [keys[0]._replace(counts=False)]


class StepSampler(Sampler[list[Key]]):
    """`Steps.mine` of the epoch that `transformers.Trainer` names."""

    def __init__(self, steps: Steps) -> None:
        """Begin with the first epoch."""
        self.steps, self.epoch = steps, 0

    def set_epoch(self, epoch: int) -> None:
        """Be told the epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.steps.num_steps * self.steps.parts

    def __iter__(self) -> Iterator[list[Key]]:
        return self.steps.mine(self.epoch)


LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Every linear module of a layer: they have an adapter unless others are named."""

_TRAINING_SHARE = 0.1  # of the tokens that one pass without gradients holds
_BEST_BY, _LOSS = "eval_score", "eval_loss"


def with_lora(backbone: Any, way: WayConfig, base: str) -> Any:
    """Return a decoder with low-rank adapters, which alone are trained (Hu et al. 2021).

    Args:
        backbone: of an `OpenedModel`.
        way: rank, scale, dropout and targets.
        base: name of the model, for the adapter's files.

    Raises:
        UserError: peft is not there, or the decoder has no such module.
    """
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError:
        raise UserError("way 'lora' needs peft; install carbon-dna[finetune]") from None
    targets = list(way.targets or LINEAR)
    names = {name.rpartition(".")[2] for name, _ in backbone.named_modules()}
    if strange := [name for name in targets if name not in names]:
        raise UserError(f"way.targets: no module is called '{strange[0]}'; {', '.join(LINEAR)} are")
    config = LoraConfig(
        r=way.rank,
        lora_alpha=way.scale,  # type: ignore[arg-type]
        lora_dropout=way.dropout,
        target_modules=targets if way.layer is None else _below(way.layer, targets),
        task_type="FEATURE_EXTRACTION",
        base_model_name_or_path=base,
    )
    backbone.name_or_path = base  # of the decoder inside the model it would have none
    finetuned: Any = get_peft_model(backbone, config)
    for module in list(finetuned.modules()):
        if way.dropout and hasattr(module, "lora_dropout"):
            module.lora_dropout["default"] = Dropout(way.dropout)
    return finetuned


def _below(layer: int, targets: Sequence[str]) -> str:
    """Return what matches target modules of the layers that are read, in any stock class.

    peft's own `layers_to_transform` does not find the layers of a decoder by itself.
    """
    layers = "|".join(map(str, range(layer)))
    return rf"(.*\.)?layers\.({layers})\..*\.({'|'.join(map(re.escape, targets))})"


def tune(
    finetuned: FinetunedModel,
    train: Examples,
    validation: Examples,
    way: WayConfig,
    seed: int,
    folder: Path,
    *,
    resume: bool = False,
) -> Tuned:
    """Tune a network until its score on the validation part is no longer better.

    Args:
        finetuned: whose network is tuned; all of it that requires a gradient.
        train: learned from.
        validation: chosen by.
        way: how.
        seed: of order, strands and dropout.
        folder: for checkpoints, and in the end for what came of it.
        resume: go on with the last checkpoint that is there, or take the end if it was reached.

    Raises:
        UserError: the validation part has no score, or the loss is of a whole batch and a step has
            parts.
    """
    if resume and (ended := restore_finished(finetuned.network, folder)):
        finetuned.network.eval()
        return ended
    trainer = _Trainer(finetuned, train, validation, way, seed, folder)
    trainer.go_on_from(last_checkpoint(folder) if resume else None)
    looks = _looks(trainer.state.log_history)
    if not trainer.state.best_global_step:
        raise UserError("the validation part has no score at any look; are its labels all alike?")
    best = next(look for look in looks if look.step == trainer.state.best_global_step)
    tuned = Tuned(looks=tuple(looks), best=best)
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        finish(finetuned.network, tuned, folder)
    finetuned.network.eval()
    return tuned


def _looks(log: Sequence[dict[str, float]]) -> list[Look]:
    looks, losses = [], [float("nan")]
    for row in log:
        if "loss" in row:
            losses.append(row["loss"])
        if _BEST_BY in row:
            mean = float(np.mean(losses[1:])) if len(losses) > 1 else losses[0]
            seen = row[_BEST_BY], row[_LOSS]
            looks.append(Look(int(row["step"]), row["epoch"], mean, *seen))
            losses = [float("nan")]
    return looks


class _Rows(Dataset[tuple[str, Tensor, float]]):
    """Training examples, each with the total weight of its step.

    A key names its epoch, so a loader that resumes in mid-epoch needs no state of its own.
    """

    def __init__(self, examples: Examples, question: Question, steps: Steps) -> None:
        self.examples, self.steps = examples, steps
        self.targets = torch.from_numpy(question.targets(examples.labels))
        of_rows = question.weights_of(self.targets).sum(dim=1).double().numpy()
        sums = np.concatenate([[0.0], np.cumsum(of_rows)])
        self.weights = np.diff(sums[examples.starts])
        self._epoch, self._totals = -1, [0.0]

    def total_weight(self, epoch: int, step: int) -> float:
        """Return the sum of the weights of a step over all parts and processes."""
        if epoch != self._epoch:
            keys = [self.steps.step(epoch, n) for n in range(self.steps.num_steps)]
            self._totals = [float(sum(self.weights[k.example] for k in some)) for some in keys]
            self._epoch = epoch
        return self._totals[step]

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, key: Key) -> tuple[str, Tensor, float]:
        sequence = self.examples.sequences[key.example]
        targets = self.targets[self.examples.rows_of(key.example)]
        if key.is_turned:
            sequence, targets = reverse_complement(sequence), targets.flip(0)
        if not key.counts:
            targets = torch.full_like(targets, torch.nan)
        return sequence, targets, self.total_weight(key.epoch, key.step)


class _Loader(DataLoader[Any]):
    def set_epoch(self, epoch: int) -> None:
        """Pass the epoch on to the batch sampler, which the trainer does not do by itself."""
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
    """The trainer of transformers, with our batches, loss, score and checkpoints."""

    def __init__(
        self,
        finetuned: FinetunedModel,
        train: Examples,
        validation: Examples,
        way: WayConfig,
        seed: int,
        folder: Path,
    ) -> None:
        self.finetuned, self.validation, self.way, self.folder = finetuned, validation, way, folder
        arguments = _arguments(finetuned, train, way, seed, folder)
        self.steps = Steps(
            num_examples=len(train),
            batch=way.batch_sequences,
            seed=seed,
            augment=way.augment,
            parts=arguments.gradient_accumulation_steps,
            rank=arguments.process_index,
            num_processes=arguments.world_size,
        )
        super().__init__(
            model=finetuned.network,
            args=arguments,
            train_dataset=_Rows(train, finetuned.question, self.steps),
            eval_dataset=validation,  # `evaluate` reads it by itself
            # Where a loss is given, transformers does not divide it by the number of parts. Ours is
            # divided by the weight of the whole step; `compute_loss` calls it.
            compute_loss_func=finetuned.question.loss_of,
            callbacks=[EarlyStoppingCallback(way.patience), _Told(self.steps.num_steps)],
        )
        self.remove_callback(PrinterCallback)

    def go_on_from(self, checkpoint: Path | None) -> None:
        """Train to the end, from the beginning or from a checkpoint, and load the best weights.

        The last checkpoint is written when training has just ended. The loop of transformers would
        take one more step from there.
        """
        if checkpoint and (state := state_of(checkpoint)) and has_ended(state):
            self.state = state
            self._load_best_model()
            return
        self.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the parts of this process; nobody shards them again."""
        question = self.finetuned.question
        make = batches(
            self.finetuned.vocabulary, self.finetuned.manifest.pool, per_base=question.per_base
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
        """Return what, averaged over processes and summed over parts, is the mean of the step."""
        logits = model(inputs["batch"])
        question = self.finetuned.question
        loss = question.loss_of(logits, inputs["targets"], inputs["total_weight"])
        return (loss, logits) if return_outputs else loss

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Look at the validation part: predict it as `predict` does, each process its share."""
        found = measured(self.finetuned, self.validation, self.way)
        metrics = {_BEST_BY: found.score, _LOSS: found.loss}
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
    finetuned: FinetunedModel, train: Examples, way: WayConfig, seed: int, folder: Path
) -> TrainingArguments:
    has_gpu = torch.cuda.is_available()
    steps = -(-len(train) // way.batch_sequences)
    looks = max(1, steps // way.looks_per_epoch)
    try:
        arguments = TrainingArguments(
            output_dir=str(folder),
            use_cpu=not has_gpu,
            bf16=has_gpu,
            seed=seed,
            data_seed=seed,
            num_train_epochs=way.most_epochs,
            learning_rate=way.rate,
            weight_decay=way.weight_decay,
            warmup_steps=way.warmup_share,
            lr_scheduler_type="cosine",
            max_grad_norm=way.clip,
            eval_strategy="steps",
            eval_steps=looks,
            save_strategy="steps",
            save_steps=looks,
            save_total_limit=1,
            restore_callback_states_from_checkpoint=True,  # the patience that is used up
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
            f"way '{way.name}' needs accelerate; install carbon-dna[finetune]"
        ) from None
    _ = arguments.device  # counts the GPUs; of a process it is one, whatever the machine has
    arguments._n_gpu = min(arguments._n_gpu, 1)
    at_once = way.micro_batch or _at_once(finetuned, train)
    arguments.gradient_accumulation_steps = max(
        1, -(-way.batch_sequences // (at_once * arguments.world_size))
    )
    arguments.per_device_train_batch_size = min(at_once, way.batch_sequences)
    _check_parts(finetuned.question.loss, way, arguments)
    return arguments


def _check_parts(loss: str, way: WayConfig, arguments: TrainingArguments) -> None:
    """Raise UserError if a loss of a whole batch would be the mean of those of its parts."""
    if loss in OF_A_WHOLE_BATCH and arguments.gradient_accumulation_steps > 1:
        whole = -(-way.batch_sequences // arguments.world_size)
        raise UserError(
            f"loss '{loss}' is of a whole batch, and a step of {way.batch_sequences} sequences "
            f"would be read in {arguments.gradient_accumulation_steps} parts; set "
            f"way.micro_batch = {whole} if the memory holds it, or a smaller way.batch"
        )


def _at_once(finetuned: FinetunedModel, train: Examples) -> int:
    """Return how many of the longest sequences a pass with gradients holds."""
    longest = max(map(len, train.sequences)) // 6 + 2
    share = _TRAINING_SHARE if torch.cuda.is_available() else 1.0
    return max(
        1,
        int(share * finetuned.averager.batch_tokens)
        // (longest * (1 + finetuned.question.per_base)),
    )


class _Told(TrainerCallback):
    """Progress on stderr."""

    def __init__(self, steps_per_epoch: int) -> None:
        self._steps_per_epoch = steps_per_epoch

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin to count."""
        if state.is_world_process_zero:
            self._open = progress("tuning, steps", state.max_steps, state.global_step)
            self._advance = self._open.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count a step."""
        if state.is_world_process_zero:
            self._advance(1)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Close the bar."""
        if state.is_world_process_zero:
            self._open.__exit__(None, None, None)
