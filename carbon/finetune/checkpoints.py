"""Checkpoints of trainable weights, and the result of each seed.

Weights are safetensors and the validation steps are JSON. Optimizer and scheduler states are the
files of transformers.
"""

import json
import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import TrainerState
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from carbon.finetune.network import FinetunedNetwork
from carbon.io.files import atomic_folder

FINISHED = "finished"
_WEIGHTS, _HISTORY = "trained.safetensors", "history.json"


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
    """

    validations: tuple[ValidationStep, ...]
    best: ValidationStep


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
        int(path.name.rpartition("-")[2]): path
        for path in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*")
    }
    for step in sorted(checkpoints, reverse=True):
        if _is_whole(checkpoints[step]):
            return checkpoints[step]
        shutil.rmtree(checkpoints[step], ignore_errors=True)
    return None


def _is_whole(checkpoint: Path) -> bool:
    """Return whether all files exist; the trainer's state is written last."""
    names = (_WEIGHTS, OPTIMIZER_NAME, SCHEDULER_NAME)
    if not all((checkpoint / name).is_file() for name in names):
        return False
    return any(checkpoint.glob("rng_state*.pth")) and state_of(checkpoint) is not None


def state_of(checkpoint: Path) -> TrainerState | None:
    """Return the trainer's state at a checkpoint; None if it is absent or truncated."""
    try:
        state: TrainerState = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
        return state
    except (OSError, ValueError):
        return None


def has_ended(state: TrainerState) -> bool:
    """Return whether the state was written after training had ended, by steps or patience."""
    callbacks: Any = state.stateful_callbacks
    return bool(callbacks["TrainerControl"]["args"]["should_training_stop"])


def finish(network: FinetunedNetwork, training: TrainingHistory, folder: Path) -> None:
    """Write the result of a training run, and remove its checkpoints."""
    with atomic_folder(folder / FINISHED) as finished:
        save_trained(network, finished)
        steps = [[None if math.isnan(x) else x for x in step] for step in training.validations]
        history = {"validations": steps, "best": training.validations.index(training.best)}
        (finished / _HISTORY).write_text(json.dumps(history), encoding="utf-8")
    for checkpoint in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        shutil.rmtree(checkpoint, ignore_errors=True)


def restore_finished(network: FinetunedNetwork, folder: Path) -> TrainingHistory | None:
    """Load the result of an earlier process into a network; None if there is none."""
    if not (folder / FINISHED).is_dir():
        return None
    restore_trained(network, folder / FINISHED)
    history = json.loads((folder / FINISHED / _HISTORY).read_text(encoding="utf-8"))
    steps: list[list[Any]] = [
        [math.nan if x is None else x for x in step] for step in history["validations"]
    ]
    validations = tuple(ValidationStep(*step) for step in steps)
    return TrainingHistory(validations=validations, best=validations[history["best"]])
