"""What is kept of a tuning: checkpoints of what is trained, and the end of each seed.

Weights are safetensors, all else is JSON; nothing is a pickle of ours.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from safetensors.torch import load_file, save_file
from torch import Tensor

from carbon.adapt.network import AdaptedNetwork
from carbon.files import atomic_folder

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


def trained_of(network: AdaptedNetwork) -> dict[str, Tensor]:
    """Return what is trained, on the CPU."""
    parameters = network.named_parameters()
    return {n: p.detach().cpu().contiguous() for n, p in parameters if p.requires_grad}


def save_trained(network: AdaptedNetwork, folder: Path) -> None:
    """Write what is trained."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(trained_of(network), folder / _WEIGHTS)


def restore_trained(network: AdaptedNetwork, folder: Path) -> None:
    """Read what `save_trained` wrote."""
    found = network.load_state_dict(load_file(folder / _WEIGHTS), strict=False)
    assert not found.unexpected_keys and not set(found.missing_keys) & set(trained_of(network))


def finish(network: AdaptedNetwork, tuned: Tuned, folder: Path) -> None:
    """Keep the end of a tuning, and remove its checkpoints."""
    with atomic_folder(folder / FINISHED) as finished:
        save_trained(network, finished)
        told = {"looks": tuned.looks, "best": tuned.best}
        (finished / _LOOKS).write_text(json.dumps(told), encoding="utf-8")
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint, ignore_errors=True)


def restore_finished(network: AdaptedNetwork, folder: Path) -> Tuned | None:
    """Give a network what an earlier process ended with; None if none has ended."""
    if not (folder / FINISHED).is_dir():
        return None
    restore_trained(network, folder / FINISHED)
    told = json.loads((folder / FINISHED / _LOOKS).read_text(encoding="utf-8"))
    return Tuned(looks=tuple(Look(*look) for look in told["looks"]), best=Look(*told["best"]))
