"""Whole weights on the first process, one at a time; the others hold their shards and no more."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard
from torch.nn.functional import pad

from carbon.model.save import OnDemand
from train.distributed.mesh import Ranks, local, named_parameters
from train.distributed.stage import DecoderStage, stock_name

_END = -1


def shapes_of_stages(held: Mapping[str, Tensor], ranks: Ranks) -> list[dict[str, tuple[int, ...]]]:
    """Return the whole shapes of the weights that each rank of a pipeline holds."""
    own = {name: tuple(weight.shape) for name, weight in held.items()}
    found: list[dict[str, tuple[int, ...]]] = [{}] * ranks.shape.pipeline
    dist.all_gather_object(found, own, group=ranks.mesh.get_group("pipeline"))
    return found


@contextmanager
def gather_full_state_dict(
    parts: list[DecoderStage], ranks: Ranks
) -> Iterator[Mapping[str, Tensor]]:
    """Yield all weights, including adapters, on the first process; none on the others.

    One is gathered when it is asked for, fp32 on the CPU. All processes come here together, and the
    others continue when the first one is done.

    Args:
        parts: of this process.
        ranks: the processes.
    """
    gathering = _Gathering(parts, ranks)
    if not ranks.is_first:
        gathering.serve()
        yield {}
        return
    try:
        yield OnDemand(gathering.names, gathering.ask)
    finally:
        gathering.end()


class _Gathering:
    """A process's part in it.

    A weight goes from the shards of one copy to the first of them, and from there through the
    pipeline's group to the first process.

    Attributes:
        names: of all weights in a stock network.
    """

    def __init__(self, parts: list[DecoderStage], ranks: Ranks) -> None:
        network = parts[0].config
        self._held = {stock_name(n, network): p for n, p in named_parameters(parts).items()}
        self._ranks = ranks
        self._pipeline, self._shards = (ranks.mesh.get_group(n) for n in ("pipeline", "shard"))
        self._places: dict[str, tuple[int, tuple[int, ...]]] = {}
        for place, of_place in enumerate(shapes_of_stages(self._held, ranks)):
            for name, shape in of_place.items():
                self._places.setdefault(name, (place, shape))
        self.names = list(self._places)

    def ask(self, name: str) -> Tensor:
        """Gather a weight; of the first process."""
        self._announce(self.names.index(name))
        found = self._moved(name)
        assert found is not None
        return found.cpu()

    def end(self) -> None:
        """Let the others continue."""
        self._announce(_END)

    def serve(self) -> None:
        """Take part in each request of the first process, until it ends."""
        while (number := self._announce(_END)) != _END:
            self._moved(self.names[number])

    def _announce(self, number: int) -> int:
        """Return the number that the first process has given."""
        announced = torch.tensor(number, device=self._ranks.device)
        dist.broadcast(announced, group=self._ranks.group, group_src=0)
        return int(announced)

    def _moved(self, name: str) -> Tensor | None:
        """Take this process's part; return the whole weight on the first process."""
        place, shape = self._places[name]
        mine = self._ranks.pipeline_rank
        copy, shard, slice_ = map(self._ranks.mesh.get_local_rank, ("replicate", "shard", "tensor"))
        if copy:
            return None
        whole = self._of_slices(self._held[name]) if mine == place else None
        if place == 0 or shard or slice_:
            return whole
        if mine == place:
            assert whole is not None
            dist.send(whole, group=self._pipeline, group_dst=0)
        elif mine == 0:
            whole = torch.empty(shape, device=self._ranks.device)
            dist.recv(whole, group=self._pipeline, group_src=place)
        return whole

    def _of_slices(self, parameter: Tensor) -> Tensor | None:
        """Return a weight from its slices on the tensor axis, on the first process that has one."""
        num_slices = self._ranks.shape.tensor
        if num_slices == 1:
            return self._of_shards(parameter, parameter.shape[0])
        assert isinstance(parameter, DTensor)
        placement = parameter.placements[-1]
        if not isinstance(placement, Shard):
            return self._of_shards(parameter, parameter.shape[0])
        rows = parameter.shape[0] // (1 if placement.dim else num_slices)
        mine = self._of_shards(parameter, rows)
        if mine is None:
            return None
        group = self._ranks.mesh.get_group("tensor")
        if self._ranks.tensor_rank:
            dist.gather(mine.contiguous(), group=group, group_dst=0)
            return None
        slices = [torch.empty_like(mine) for _ in range(num_slices)]
        dist.gather(mine.contiguous(), slices, group=group, group_dst=0)
        return torch.cat(slices, dim=placement.dim)

    def _of_shards(self, parameter: Tensor, num_rows: int) -> Tensor | None:
        """Return a weight, or its slice of `num_rows`, from its shards on the first of them."""
        mine = local(parameter.detach())
        num_shards = self._shards.size()
        rows = -(-num_rows // num_shards)  # of each, but for those at the end
        filled = pad(mine, (*(0, 0) * (mine.ndim - 1), 0, rows - len(mine)))
        if self._shards.rank():
            dist.gather(filled, group=self._shards, group_dst=0)
            return None
        whole = mine.new_empty(num_shards * rows, *mine.shape[1:])
        dist.gather(filled, list(torch.split(whole, rows)), group=self._shards, group_dst=0)
        return whole[:num_rows]
