"""What this process is among the others, read from torchrun's environment once."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process, its device and the mesh of all of them."""

    rank: int
    world_size: int
    device: torch.device
    mesh: DeviceMesh

    @property
    def is_first(self) -> bool:
        """Whether this process speaks and writes for all."""
        return self.rank == 0


@contextmanager
def joined_ranks() -> Iterator[Ranks]:
    """Join the group that torchrun started; nccl with GPUs, gloo without."""
    on_gpu = torch.cuda.is_available()
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if "RANK" not in os.environ:  # started without torchrun: a group of one
        store = HashStore()
        dist.init_process_group("nccl" if on_gpu else "gloo", store=store, rank=0, world_size=1)
    else:
        dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield ranks_of_group(torch.device("cuda", local_rank) if on_gpu else torch.device("cpu"))
    finally:
        dist.destroy_process_group()


def ranks_of_group(device: torch.device) -> Ranks:
    """Describe this process in the default group, which exists."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),), mesh_dim_names=("shard",))
    return Ranks(dist.get_rank(), dist.get_world_size(), device, mesh)
