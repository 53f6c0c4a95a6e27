"""The trained weights of a worker as synchronisation sees them: whole, or shards of a process."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from train.codecs import Tensors
from train.distributed.gather import gather_full_state_dict, shapes_of_stages
from train.distributed.mesh import Ranks, as_placed, local, named_parameters
from train.distributed.parallelize import fill
from train.distributed.stage import DecoderStage, stock_name


class Weights(ABC):
    """Trained weights by their stock names.

    Attributes:
        held: parameters of this process; of tied ones both ends.
        sizes: numbers in each weight, whole, on all processes alike.
        shapes: of the outer parameters that this process keeps.
        counted: names whose sums of squares this process contributes.
    """

    shapes: Mapping[str, Sequence[int]]
    counted: Sequence[str]

    def __init__(self, parts: list[DecoderStage], ranks: Ranks) -> None:
        """Look at a network, which all processes do together."""
        self._parts, self._ranks = parts, ranks
        self.held: dict[str, list[nn.Parameter]] = {}
        for name, parameter in named_parameters(parts).items():
            if parameter.requires_grad:
                self.held.setdefault(stock_name(name, parts[0].config), []).append(parameter)
        own = {name: ends[0] for name, ends in self.held.items()}
        self._shapes = {n: s for stage in shapes_of_stages(own, ranks) for n, s in stage.items()}
        self.sizes = {name: torch.Size(shape).numel() for name, shape in self._shapes.items()}

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Restore this process's parameters at the end, from copies on the CPU."""
        shards = [local(p.detach()) for ends in self.held.values() for p in ends]
        copies = [shard.to("cpu", copy=True) for shard in shards]
        try:
            yield
        finally:
            for shard, copy in zip(shards, copies, strict=True):
                shard.copy_(copy)

    @abstractmethod
    def read(self, names: Iterable[str]) -> Tensors:
        """Return copies of the weights that this process keeps outer parameters of, on the CPU."""

    @abstractmethod
    def write(self, names: Iterable[str], values: Mapping[str, Tensor], alpha: float) -> None:
        """Mix alpha of the present weights with 1 - alpha of these, on all processes."""

    @abstractmethod
    def summed(self, sums: Tensor) -> Tensor:
        """Return sums over the `counted` weights of all processes, from this process's sums."""

    def as_saved(self, kinds: Mapping[str, Tensors]) -> Tensors:
        """Return the kept tensors of each kind, by their names in a checkpoint."""
        return {
            f"worker.{kind}.{name}": self._placed(name, tensor)
            for kind, tensors in kinds.items()
            for name, tensor in tensors.items()
        }

    def _placed(self, name: str, value: Tensor) -> Tensor:
        """Return a kept tensor in the form that a checkpoint takes: here unchanged."""
        return value


class WholeWeights(Weights):
    """Whole weights, which the first process keeps for all; layouts may differ between workers."""

    def __init__(self, parts: list[DecoderStage], ranks: Ranks) -> None:
        """Look at a network, which all processes do together."""
        super().__init__(parts, ranks)
        self.shapes = self._shapes if ranks.is_first else {}
        self.counted = list(self.shapes)

    def read(self, names: Iterable[str]) -> Tensors:
        """Return whole weights on the first process, nothing on the others."""
        with gather_full_state_dict(self._parts, self._ranks) as weights:
            if not self._ranks.is_first:
                return {}
            return {name: weights[name].clone() for name in names}

    def write(self, names: Iterable[str], values: Mapping[str, Tensor], alpha: float) -> None:
        """Send each from the first process to all."""
        for name in names:
            whole = torch.empty(self._shapes[name], device=self._ranks.device)
            if self._ranks.is_first:
                whole.copy_(values[name])
            dist.broadcast(whole, group=self._ranks.group, group_src=0)
            for parameter in self.held.get(name, ()):
                with _mixed(parameter, alpha):
                    fill(parameter, whole)

    def summed(self, sums: Tensor) -> Tensor:
        """Return the sums of the first process, which keeps all weights."""
        return sums


class ShardWeights(Weights):
    """The shards of each process; all workers have one layout."""

    def __init__(self, parts: list[DecoderStage], ranks: Ranks) -> None:
        """Look at a network, which all processes do together."""
        super().__init__(parts, ranks)
        self.shapes = {name: local(ends[0]).shape for name, ends in self.held.items()}
        own = set(named_parameters(parts))  # a copy of tied embeddings counts at the other end
        self.counted = [name for name in self.held if name in own]

    def read(self, names: Iterable[str]) -> Tensors:
        """Return the shards of this process."""
        own = {name: self.held[name][0] for name in names if name in self.held}
        return {
            name: local(p.detach()).to("cpu", torch.float32, copy=True) for name, p in own.items()
        }

    def write(self, names: Iterable[str], values: Mapping[str, Tensor], alpha: float) -> None:
        """Copy each shard."""
        for name in names:
            for parameter in self.held.get(name, ()):
                with _mixed(parameter, alpha):
                    local(parameter.detach()).copy_(values[name])

    def summed(self, sums: Tensor) -> Tensor:
        """Add up over the processes that share the weights."""
        for name in ("pipeline", "shard"):
            total = sums.to(self._ranks.device)
            dist.all_reduce(total, group=self._ranks.mesh.get_group(name))
            sums = total.cpu()
        return sums

    def _placed(self, name: str, value: Tensor) -> Tensor:
        """Return it as a shard of a whole, which another layout can read."""
        return as_placed(value, self.held[name][0])


@contextmanager
def _mixed(parameter: nn.Parameter, alpha: float) -> Iterator[None]:
    """Mix alpha of the weights before with 1 - alpha of those that are written meanwhile."""
    shard = local(parameter.detach())
    before = shard.clone() if alpha else None
    yield
    if before is not None:
        shard.mul_(1 - alpha)
        shard.add_(before.mul_(alpha))
