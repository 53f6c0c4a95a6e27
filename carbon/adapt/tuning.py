"""`lora` and `full`: weights tuned by `transformers.Trainer`.

Ours are: which examples a step reads on which process (`plan`), the loss, normalised over all parts
and processes of a step, and the score that a checkpoint is chosen by. Of a checkpoint only what is
trained is kept, as safetensors.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from transformers import (
    EarlyStoppingCallback,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint

from carbon.adapt.batches import MakeBatch, batches
from carbon.adapt.config import WayConfig
from carbon.adapt.examples import Examples
from carbon.adapt.network import AdaptedNetwork
from carbon.adapt.plan import Key, Steps, StepSampler
from carbon.adapt.predictor import Adapted
from carbon.adapt.question import Question
from carbon.console import progress
from carbon.errors import UserError
from carbon.genome import reverse_complement

LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Every linear module of a layer: they have an adapter unless others are named."""

_WEIGHTS = "trained.safetensors"
_TRAINING_SHARE = 0.1  # of the tokens that one pass without gradients holds
_BEST_BY = "eval_score"


class Look(NamedTuple):
    """One look at the validation part.

    Attributes:
        step: after so many.
        epoch: after so many readings of what is learned from.
        loss: mean of the steps since the look before.
        score: of the validation part; higher is better.
    """

    step: int
    epoch: float
    loss: float
    score: float


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What came of it; the network has the weights of the best look.

    Attributes:
        looks: at the validation part, in order.
        best: that was kept.
    """

    looks: tuple[Look, ...]
    best: Look


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
        raise UserError("way 'lora' needs peft; install carbon-dna[adapt]") from None
    targets = list(way.targets or LINEAR)
    names = {name.rpartition(".")[2] for name, _ in backbone.named_modules()}
    if strange := [name for name in targets if name not in names]:
        raise UserError(f"way.targets: no module is called '{strange[0]}'; {', '.join(LINEAR)} are")
    layers = list(range(way.layer)) if way.layer is not None else None
    config = LoraConfig(
        r=way.rank,
        lora_alpha=way.scale,  # type: ignore[arg-type]
        lora_dropout=way.dropout,
        target_modules=targets,
        layers_to_transform=layers,
        task_type="FEATURE_EXTRACTION",
        base_model_name_or_path=base,
    )
    backbone.name_or_path = base  # of the decoder inside the model it would have none
    return get_peft_model(backbone, config)


def tune(
    adapted: Adapted,
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
        adapted: whose network is tuned; all of it that requires a gradient.
        train: learned from.
        validation: chosen by.
        way: how.
        seed: of order, strands and dropout.
        folder: for checkpoints, removed in the end.
        resume: go on with the last checkpoint that is there.

    Raises:
        UserError: the validation part has no score.
    """
    trainer = _Trainer(adapted, train, validation, way, seed, folder)
    last: str | None = None
    if resume and folder.is_dir():
        last = get_last_checkpoint(str(folder))  # type: ignore[no-untyped-call]
    trainer.train(resume_from_checkpoint=last)
    looks = _looks(trainer.state.log_history)
    if not trainer.state.best_global_step:
        raise UserError("the validation part has no score at any look; are its labels all alike?")
    best = next(look for look in looks if look.step == trainer.state.best_global_step)
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        shutil.rmtree(folder, ignore_errors=True)
    adapted.network.eval()
    return Tuned(looks=tuple(looks), best=best)


def _looks(log: Sequence[dict[str, float]]) -> list[Look]:
    looks, losses = [], [float("nan")]
    for row in log:
        if "loss" in row:
            losses.append(row["loss"])
        if _BEST_BY in row:
            mean = float(np.mean(losses[1:])) if len(losses) > 1 else losses[0]
            looks.append(Look(int(row["step"]), row["epoch"], mean, row[_BEST_BY]))
            losses = [float("nan")]
    return looks


class _Rows(Dataset[tuple[str, Tensor, float]]):
    """What the parts of a step are made of."""

    def __init__(self, examples: Examples, question: Question, steps: Steps) -> None:
        self.examples, self.steps, self.epoch = examples, steps, -1
        self.targets = torch.from_numpy(question.targets(examples.labels))
        of_rows = question.weights_of(self.targets).sum(dim=1).double().numpy()
        sums = np.concatenate([[0.0], np.cumsum(of_rows)])
        self.weights = np.diff(sums[examples.starts])

    def set_epoch(self, epoch: int) -> None:
        """Weigh the steps of an epoch."""
        if epoch != self.epoch:
            numbers = range(self.steps.num_steps)
            keys = [self.steps.step(epoch, n) for n in numbers]
            self.totals = [float(sum(self.weights[k.example] for k in some)) for some in keys]
            self.epoch = epoch

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, key: Key) -> tuple[str, Tensor, float]:
        sequence = self.examples.sequences[key.example]
        targets = self.targets[self.examples.rows_of(key.example)]
        if key.is_turned:
            sequence, targets = reverse_complement(sequence), targets.flip(0)
        if not key.counts:
            targets = torch.full_like(targets, torch.nan)
        return sequence, targets, self.totals[key.step]


class _Loader(DataLoader[Any]):
    def set_epoch(self, epoch: int) -> None:
        """Be told the epoch by the trainer, which tells no batch sampler by itself."""
        self.batch_sampler.set_epoch(epoch)  # type: ignore[union-attr]
        self.dataset.set_epoch(epoch)  # type: ignore[attr-defined]


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

    # The loss is divided by the weight of the whole step, over all its parts: see finetuning of
    # heads under accumulation in transformers#47688.
    loss_is_scaled_for_ga = True

    def __init__(
        self,
        adapted: Adapted,
        train: Examples,
        validation: Examples,
        way: WayConfig,
        seed: int,
        folder: Path,
    ) -> None:
        self.adapted, self.validation, self.way = adapted, validation, way
        arguments = _arguments(adapted, train, way, seed, folder)
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
            model=adapted.network,
            args=arguments,
            train_dataset=_Rows(train, adapted.question, self.steps),
            eval_dataset=validation,  # `evaluate` reads it by itself
            callbacks=[EarlyStoppingCallback(way.patience), _Told(self.steps.num_steps)],
        )
        self.remove_callback(PrinterCallback)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the parts of this process; nobody shards them again."""
        question = self.adapted.question
        make = batches(
            self.adapted.vocabulary, self.adapted.manifest.pool, per_base=question.per_base
        )
        rows: Any = self.train_dataset
        rows.set_epoch(0)
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
        question = self.adapted.question
        loss = question.loss_of(logits, inputs["targets"], inputs["total_weight"])
        return (loss, logits) if return_outputs else loss

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Look at the validation part: predict it as `predict` does, each process its share."""
        score = score_of(self.adapted, self.validation, self.way)
        metrics = {_BEST_BY: score}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        del state_dict
        folder = Path(output_dir or str(self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        save_file(_trained(self.adapted.network), folder / _WEIGHTS)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        del model
        _restore(self.adapted.network, Path(resume_from_checkpoint))

    def _load_best_model(self) -> None:
        best = self.state.best_model_checkpoint
        assert best is not None
        _restore(self.adapted.network, Path(best))


def _trained(network: AdaptedNetwork) -> dict[str, Tensor]:
    parameters = network.named_parameters()
    return {n: p.detach().cpu().contiguous() for n, p in parameters if p.requires_grad}


def _restore(network: AdaptedNetwork, checkpoint: Path) -> None:
    found = network.load_state_dict(load_file(checkpoint / _WEIGHTS), strict=False)
    assert not found.unexpected_keys and not set(found.missing_keys) & set(_trained(network))


def score_of(adapted: Adapted, examples: Examples, way: WayConfig) -> float:
    """Return the score by which a model is chosen, over all processes; higher is better."""
    predictions = predictions_of(adapted, examples, way)
    return adapted.question.score(predictions, examples.labels)


def predictions_of(
    adapted: Adapted, examples: Examples, way: WayConfig
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return predictions of examples, (rows, outputs), each process reading its share."""
    import torch.distributed as dist

    is_shared = dist.is_available() and dist.is_initialized()
    rank, number = (dist.get_rank(), dist.get_world_size()) if is_shared else (0, 1)
    was_training = adapted.network.training
    adapted.network.eval()
    mine = adapted.logits(
        examples.sequences[rank::number],
        way.strands,  # type: ignore[arg-type]
        tile=way.too_long == "tile",
    )
    adapted.network.train(was_training)
    shares: list[Any] = [mine]
    if is_shared:
        shares = [None] * number
        dist.all_gather_object(shares, mine)
    width = adapted.question.num_outputs
    rows = [shares[n % number][n // number].reshape(-1, width) for n in range(len(examples))]
    return adapted.question.predictions(np.concatenate([np.zeros((0, width)), *rows]))


def _arguments(
    adapted: Adapted, train: Examples, way: WayConfig, seed: int, folder: Path
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
        raise UserError(f"way '{way.name}' needs accelerate; install carbon-dna[adapt]") from None
    _ = arguments.device  # counts the GPUs; of a process it is one, whatever the machine has
    arguments._n_gpu = min(arguments._n_gpu, 1)
    at_once = way.micro_batch or _at_once(adapted, train)
    arguments.gradient_accumulation_steps = max(
        1, -(-way.batch_sequences // (at_once * arguments.world_size))
    )
    arguments.per_device_train_batch_size = min(at_once, way.batch_sequences)
    return arguments


def _at_once(adapted: Adapted, train: Examples) -> int:
    """Return how many of the longest sequences a pass with gradients holds."""
    longest = max(map(len, train.sequences)) // 6 + 2
    share = _TRAINING_SHARE if torch.cuda.is_available() else 1.0
    return max(
        1, int(share * adapted.averager.batch_tokens) // (longest * (1 + adapted.question.per_base))
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
