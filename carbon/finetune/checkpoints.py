"""What is kept of a tuning: checkpoints of what is trained, and the end of each seed.

Weights are safetensors, all else is JSON; nothing is a pickle of ours.
"""

import json
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
_WEIGHTS, _LOOKS = "trained.safetensors", "looks.json"


class Look(NamedTuple):
    """One look at the validation part.

    Attributes:
        step: after so many.
        epoch: after so many readings of what is learned from.
        loss: mean of the steps since the look before.
        score: of the validation part; higher is better.
        validation_loss: of the validation part, as predicted: without dropout, of all strands.
    """

    step: int
    epoch: float
    loss: float
    score: float
    validation_loss: float


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What came of it; the network has the weights of the best look.

    Attributes:
        looks: at the validation part, in order.
        best: that was kept.
    """

    looks: tuple[Look, ...]
    best: Look


def trained_of(network: FinetunedNetwork) -> dict[str, Tensor]:
    """Return what is trained, on the CPU."""
    parameters = network.named_parameters()
    return {n: p.detach().cpu().contiguous() for n, p in parameters if p.requires_grad}


def save_trained(network: FinetunedNetwork, folder: Path) -> None:
    """Write what is trained."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(trained_of(network), folder / _WEIGHTS)


def restore_trained(network: FinetunedNetwork, folder: Path) -> None:
    """Read what `save_trained` wrote."""
    found = network.load_state_dict(load_file(folder / _WEIGHTS), strict=False)
    assert not found.unexpected_keys and not set(found.missing_keys) & set(trained_of(network))


def checkpoint_of(folder: Path, step: int | None) -> Path:
    """Return the folder of the checkpoint after a step."""
    return folder / f"{PREFIX_CHECKPOINT_DIR}-{step}"


def last_checkpoint(folder: Path) -> Path | None:
    """Return the last whole checkpoint, and remove those that a kill left incomplete."""
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
    """Tell whether every file is there; the state of the trainer is written last."""
    names = (_WEIGHTS, OPTIMIZER_NAME, SCHEDULER_NAME)
    if not all((checkpoint / name).is_file() for name in names):
        return False
    return any(checkpoint.glob("rng_state*.pth")) and state_of(checkpoint) is not None


def state_of(checkpoint: Path) -> TrainerState | None:
    """Return the state of the trainer at a checkpoint; None if it is absent or torn."""
    try:
        state: TrainerState = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
        return state
    except (OSError, ValueError):
        return None


def has_ended(state: TrainerState) -> bool:
    """Tell whether training had ended when the state was written: by its steps or by patience."""
    callbacks: Any = state.stateful_callbacks
    return bool(callbacks["TrainerControl"]["args"]["should_training_stop"])


def finish(network: FinetunedNetwork, tuned: Tuned, folder: Path) -> None:
    """Keep the end of a tuning, and remove its checkpoints."""
    with atomic_folder(folder / FINISHED) as finished:
        save_trained(network, finished)
        told = {"looks": tuned.looks, "best": tuned.best}
        (finished / _LOOKS).write_text(json.dumps(told), encoding="utf-8")
    for checkpoint in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        shutil.rmtree(checkpoint, ignore_errors=True)


def restore_finished(network: FinetunedNetwork, folder: Path) -> Tuned | None:
    """Give a network what an earlier process ended with; None if none has ended."""
    if not (folder / FINISHED).is_dir():
        return None
    restore_trained(network, folder / FINISHED)
    told = json.loads((folder / FINISHED / _LOOKS).read_text(encoding="utf-8"))
    return Tuned(looks=tuple(Look(*look) for look in told["looks"]), best=Look(*told["best"]))
