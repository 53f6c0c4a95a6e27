"""The trained weights of a learner as its meetings see them: whole, or the shards of a process."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from train.diloco.outer import Tensors
from train.distributed.gather import gather_full_state_dict
from train.distributed.mesh import Ranks, as_placed, local, named_parameters
from train.distributed.parallelize import fill
from train.distributed.stage import DecoderStage, stock_name


class Weights(Protocol):
    """Trained weights by their stock names.

    Attributes:
        sizes: numbers in each of them, whole, on all processes alike.
        shapes: of what this process keeps an anchor of.
        counted: names whose sums of squares this process contributes.
    """

    sizes: Mapping[str, int]
    shapes: Mapping[str, Sequence[int]]
    counted: Collection[str]

    def copies(self) -> list[Tensor]:
        """Return copies of this process's parameters."""

    def restore(self, copies: list[Tensor]) -> None:
        """Restore the parameters from copies."""

    def read(self, names: Iterable[str]) -> Tensors:
        """Return copies of what this process keeps an anchor of, on the CPU."""

    def write(self, names: Iterable[str], values: Mapping[str, Tensor], alpha: float) -> None:
        """Mix alpha of the present weights with 1 - alpha of these, on all processes."""

    def summed(self, sums: Tensor) -> Tensor:
        """Return sums over the `counted` weights of all processes, from this process's sums."""

    def as_saved(self, name: str, value: Tensor) -> Tensor:
        """Return a kept tensor in the form that a checkpoint takes."""


class _Held:
    """Parameters of this process, by stock names; of tied ones both ends."""

    sizes: Mapping[str, int]
    shapes: Mapping[str, Sequence[int]]
    counted: Collection[str]

    def __init__(self, parts: list[DecoderStage], ranks: Ranks) -> None:
        self._ranks = ranks
        self._held = _held(parts)
        self._shapes = _shapes(self._held, ranks)
        self.sizes = {name: torch.Size(shape).numel() for name, shape in self._shapes.items()}

    def copies(self) -> list[Tensor]:
        """Return copies of this process's parameters, on the CPU."""
        return [local(p.detach()).to("cpu", copy=True) for p in self._all()]

    @torch.no_grad()
    def restore(self, copies: list[Tensor]) -> None:
        """Restore the parameters from copies."""
        for parameter, copy in zip(self._all(), copies, strict=True):
            local(parameter.detach()).copy_(copy)

    def _all(self) -> list[nn.Parameter]:
        return [parameter for parameters in self._held.values() for parameter in parameters]


class WholeWeights(_Held):
    """Whole weights, which the first process keeps for all; layouts may differ between learners."""

    def __init__(self, parts: list[DecoderStage], ranks: Ranks) -> None:
        """Look at a network, which all processes do together."""
        super().__init__(parts, ranks)
        self._parts = parts
        self.shapes = self._shapes if ranks.is_first else {}
        self.counted = list(self.sizes) if ranks.is_first else []

    def read(self, names: Iterable[str]) -> Tensors:
        """Return whole weights on the first process, nothing on the others."""
        with gather_full_state_dict(self._parts, self._ranks) as weights:
            if not self._ranks.is_first:
                return {}
            return {name: weights[name].clone() for name in names}

    def write(self, names: Iterable[str], values: Mapping[str, Tensor], alpha: float) -> None:
        """Send each from the first process to all."""
        device = self._ranks.device
        for name in names:
            whole = torch.empty(self._shapes[name], device=device)
            if self._ranks.is_first:
                whole.copy_(values[name])
            dist.broadcast(whole, group=self._ranks.group, group_src=0)
            for parameter in self._held.get(name, ()):
                before = local(parameter.detach()).clone() if alpha else None
                fill(parameter, whole)
                _mix(parameter, before, alpha)

    def summed(self, sums: Tensor) -> Tensor:
        """Return the sums of the first process, which keeps all weights."""
        return sums

    def as_saved(self, name: str, value: Tensor) -> Tensor:
        """Return it unchanged."""
        return value


class ShardWeights(_Held):
    """What each process has of the weights; all learners have one layout."""

    def __init__(self, parts: list[DecoderStage], ranks: Ranks) -> None:
        """Look at a network, which all processes do together."""
        super().__init__(parts, ranks)
        self.shapes = {name: local(held[0]).shape for name, held in self._held.items()}
        own = set(named_parameters(parts))  # a copy of tied embeddings counts at the other end
        self.counted = [name for name in self._held if name in own]

    def read(self, names: Iterable[str]) -> Tensors:
        """Return the shards of this process."""
        mine = {name: self._held[name][0] for name in names if name in self._held}
        return {
            name: local(p.detach()).to("cpu", torch.float32, copy=True) for name, p in mine.items()
        }

    @torch.no_grad()
    def write(self, names: Iterable[str], values: Mapping[str, Tensor], alpha: float) -> None:
        """Copy each shard."""
        for name in names:
            for parameter in self._held.get(name, ()):
                before = local(parameter.detach()).clone() if alpha else None
                local(parameter.detach()).copy_(values[name])
                _mix(parameter, before, alpha)

    def summed(self, sums: Tensor) -> Tensor:
        """Add up over the processes that share the weights."""
        for name in ("pipeline", "shard"):
            there = sums.to(self._ranks.device)
            dist.all_reduce(there, group=self._ranks.mesh.get_group(name))
            sums = there.cpu()
        return sums

    def as_saved(self, name: str, value: Tensor) -> Tensor:
        """Return it as a shard of a whole, which another layout can read."""
        return as_placed(value, self._held[name][0])


@torch.no_grad()
def _mix(parameter: nn.Parameter, before: Tensor | None, alpha: float) -> None:
    if before is not None:
        shard = local(parameter.detach())
        shard.mul_(1 - alpha)
        shard.add_(before.mul_(alpha))


def _held(parts: list[DecoderStage]) -> dict[str, list[nn.Parameter]]:
    """Return trained parameters of this process by stock names, of tied ones both ends."""
    held: dict[str, list[nn.Parameter]] = {}
    for name, parameter in named_parameters(parts).items():
        if parameter.requires_grad:
            held.setdefault(stock_name(name, parts[0].config), []).append(parameter)
    return held


def _shapes(held: Mapping[str, list[nn.Parameter]], ranks: Ranks) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all trained weights of a learner, in one order on all processes."""
    mine = {name: tuple(parameters[0].shape) for name, parameters in held.items()}
    found: list[dict[str, tuple[int, ...]]] = [{}] * ranks.shape.pipeline
    dist.all_gather_object(found, mine, group=ranks.mesh.get_group("pipeline"))
    return {name: shape for of_place in found for name, shape in of_place.items()}
