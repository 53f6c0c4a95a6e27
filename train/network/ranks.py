"""What this process is among the others, read from torchrun's environment once."""

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import _get_default_store, _set_pg_timeout

from carbon.devices import uses_gpu
from carbon.errors import ConfigError, UserError
from train.config import ParallelConfig
from train.network.failures import SharedFate
from train.network.row_share import RowShare

_OTHER_FILES = 512
_MOST_GROUPS = 3
"""Of gloo, that all processes are in, at most: the first, one of the mesh, the quiet one."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process, its device, and the mesh of all: pipeline, replicate, shard.

    Processes that share rows are neighbours among those that share weights.

    Attributes:
        quiet_group: for what goes on beside the training, on the CPU; its operations never wait
            for those of the training.
        share: what this process has of its rows.
        context_group: processes that share them; None: it has them alone.
    """

    rank: int
    world_size: int
    device: torch.device
    mesh: DeviceMesh
    quiet_group: dist.ProcessGroup
    share: RowShare
    context_group: dist.ProcessGroup | None

    @property
    def is_first(self) -> bool:
        """Whether this process speaks and writes for all."""
        return self.rank == 0

    @property
    def pipeline_size(self) -> int:
        """Processes that the layers are divided over."""
        return self.mesh.size(0)

    @property
    def pipeline_rank(self) -> int:
        """This process's place among them."""
        return self.mesh.get_local_rank("pipeline")

    @property
    def num_readers(self) -> int:
        """Groups that read rows of their own; a pipeline's, and those that share rows, are one."""
        return self.world_size // self.pipeline_size // self.share.size

    @property
    def reader(self) -> int:
        """This process's place among them."""
        return self.rank // self.share.size % self.num_readers

    @property
    def data_mesh(self) -> DeviceMesh:
        """Processes that share this one's layers."""
        return _of_data(self.mesh)

    @property
    def data_mesh_on_cpu(self) -> DeviceMesh:
        """The same, for what is held in the memory of the CPU: it has places, and no groups."""
        there = self.data_mesh
        names = there.mesh_dim_names
        return DeviceMesh("cpu", there.mesh, mesh_dim_names=names, _init_backend=False)

    def largest(self, value: int) -> torch.Tensor:
        """Return the largest value of any process, a number on the device."""
        found = torch.full((), float(value), device=self.device)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return found


@contextmanager
def joined_ranks(parallel: ParallelConfig, device: str = "auto") -> Iterator[Ranks]:
    """Join the group that torchrun started; nccl with GPUs, gloo without.

    Args:
        parallel: how processes are laid out.
        device: that is asked for, `auto`, `cpu` or `cuda`.

    Raises:
        ConfigError: the processes cannot be laid out as asked for.
        UserError: the device cannot be used, or too few files may be open.
    """
    on_gpu = uses_gpu(device)
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    # A process of a gloo group has a connection to each other one: on GPUs only the quiet group is.
    backend = "nccl" if on_gpu else "gloo"
    timeout = timedelta(seconds=parallel.timeout_seconds)
    allow_connections(int(os.environ.get("WORLD_SIZE", "1")))
    if "RANK" not in os.environ:  # started without torchrun: a group of one
        store = HashStore()
        dist.init_process_group(backend, store=store, rank=0, world_size=1, timeout=timeout)
    else:
        dist.init_process_group(backend, timeout=timeout)
    used = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    with ExitStack() as ending:
        if dist.get_world_size() == 1:
            ending.callback(dist.destroy_process_group)
        else:
            store = _get_default_store().clone()  # type: ignore[attr-defined]
            ending.enter_context(SharedFate(store, dist.get_rank()))
        yield ranks_of_group(used, parallel)
        if dist.get_world_size() > 1:  # after a failure it would wait for the others
            dist.destroy_process_group()


def allow_connections(world_size: int) -> None:
    """Let this process have open what a run of so many takes, if it has not.

    Raises:
        UserError: the system does not allow it.
    """
    wanted = _OTHER_FILES + _MOST_GROUPS * world_size
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if now == resource.RLIM_INFINITY or now >= wanted:
        return
    if most != resource.RLIM_INFINITY and most < wanted:
        raise UserError(
            f"{world_size} processes: each may need {wanted} open files, and the system allows "
            f"{most} (ulimit -Hn); raise that, as in /etc/security/limits.conf"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def ranks_of_group(device: torch.device, parallel: ParallelConfig) -> Ranks:
    """Describe this process in the default group, which exists."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    world_size = dist.get_world_size()
    fixed = parallel.pipeline * parallel.replicate
    if world_size % fixed:
        raise ConfigError(
            f"parallel: {world_size} processes are no multiple of pipeline x replicate = {fixed}; "
            "change one of them"
        )
    parallel.check_context(world_size // fixed)
    shape = (parallel.pipeline, parallel.replicate, world_size // fixed)
    names = ("pipeline", "replicate", "shard")
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=names)
    share, context_group = RowShare(dist.get_rank() % parallel.context, parallel.context), None
    if parallel.context > 1:
        context_group, _ = dist.new_subgroups(parallel.context)  # type: ignore[no-untyped-call]
    timeout = timedelta(seconds=parallel.timeout_seconds)
    quiet_group = dist.new_group(backend="gloo", timeout=timeout)
    # The groups of a mesh have torch's own timeout, half an hour, whatever the first group has.
    for group in (*mesh.get_all_groups(), context_group, None):
        _set_pg_timeout(timeout, group)
    return Ranks(dist.get_rank(), world_size, device, mesh, quiet_group, share, context_group)


def _of_data(mesh: DeviceMesh) -> DeviceMesh:
    return mesh["replicate", "shard"] if mesh.size(1) > 1 else mesh["shard"]
