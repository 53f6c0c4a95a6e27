"""What this process is among the others, read from torchrun's environment once."""

import os
import resource
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import _get_default_store, _set_pg_timeout
from torch.distributed.tensor import DTensor

from carbon.devices import uses_gpu
from carbon.errors import UserError
from train.config import ParallelConfig
from train.distributed.context import ContextShard
from train.distributed.failures import SharedFate
from train.distributed.recipes import check_one_recipe
from train.planning.mesh import Mesh

_OTHER_FILES = 512
_MOST_GROUPS = 4
"""Of gloo, that all processes are in, at most: the first, one of the mesh, and the two beside."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process, its device, and the process groups along the axes of its worker's mesh.

    Attributes:
        rank: of this process, in its worker.
        shape: the processes of a worker.
        group: of the worker; None: all.
        quiet_group: for the checkpoint that a thread writes during training, on the CPU; its
            operations never wait for the training's.
        talk_group: for messages of the first process between steps, on the CPU. The
            thread that writes a checkpoint must not meet it in `quiet_group`.
        share: what this process has of its rows.
        context_group: processes that share them; None: it has them alone.
        worker: number of this process's worker in this launch.
        num_workers: of this launch.
        sync_group: over gloo, the processes that hold what this one holds in their workers.
    """

    rank: int
    shape: Mesh
    device: torch.device
    mesh: DeviceMesh
    quiet_group: dist.ProcessGroup
    talk_group: dist.ProcessGroup
    share: ContextShard
    context_group: dist.ProcessGroup | None
    group: dist.ProcessGroup | None = None
    worker: int = 0
    num_workers: int = 1
    sync_group: dist.ProcessGroup | None = None

    @property
    def is_first(self) -> bool:
        """Whether this process speaks and writes for its worker."""
        return self.rank == 0

    @property
    def world_size(self) -> int:
        """Processes of the worker."""
        return self.shape.size

    @property
    def pipeline_rank(self) -> int:
        """This process's place in its pipeline."""
        return self.mesh.get_local_rank("pipeline")

    @property
    def tensor_rank(self) -> int:
        """This process's rank on the tensor axis."""
        return self.rank % self.shape.tensor

    @property
    def data_mesh(self) -> DeviceMesh:
        """Processes that share this one's layers by FSDP."""
        return self.mesh["replicate", "shard"] if self.shape.replicate > 1 else self.mesh["shard"]

    def largest(self, value: int) -> torch.Tensor:
        """Return the largest value of any process, of all workers, a number on the device."""
        found = torch.tensor(value, dtype=torch.int64, device=self.device)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return found

    def shared(self, value: Any) -> Any:
        """Return the value of the worker's first process."""
        found = [value]
        dist.broadcast_object_list(found, group=self.talk_group, group_src=0)
        return found[0]


@contextmanager
def joined_ranks(
    parallel: ParallelConfig,
    device: str = "auto",
    num_workers: int = 1,
    settings: Mapping[str, Any] | None = None,
) -> Iterator[Ranks]:
    """Join the group that torchrun started; nccl with GPUs, gloo without.

    Args:
        parallel: how processes of a worker are laid out.
        device: that is asked for, `auto`, `cpu` or `cuda`.
        num_workers: that the processes are.
        settings: that all processes must have alike, compared before the group begins.

    Raises:
        ConfigError: the processes cannot be laid out as asked for.
        UserError: the device cannot be used, settings differ, or too few files may be open.
    """
    on_gpu = uses_gpu(device)
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    # A process of a gloo group has a connection to each other one: on GPUs only two groups are.
    backend = "nccl" if on_gpu else "gloo"
    timeout = timedelta(seconds=parallel.timeout_seconds)
    allow_connections(int(os.environ.get("WORLD_SIZE", "1")))
    if "RANK" not in os.environ:  # started without torchrun: a group of one
        store = HashStore()
        dist.init_process_group(backend, store=store, rank=0, world_size=1, timeout=timeout)
    else:
        kept = check_one_recipe(settings, timeout) if settings else None
        dist.init_process_group(backend, timeout=timeout)
        del kept
    used = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    with ExitStack() as ending:
        if dist.get_world_size() == 1:
            ending.callback(dist.destroy_process_group)
        else:
            store = _get_default_store().clone()  # type: ignore[attr-defined]
            ending.enter_context(SharedFate(store, dist.get_rank()))
        yield ranks_of_group(used, parallel, num_workers)
        if dist.get_world_size() > 1:  # after a failure it would wait for the others
            dist.destroy_process_group()


def allow_connections(world_size: int) -> None:
    """Raise the limit of open files to the number that a run of this size needs.

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


def ranks_of_group(device: torch.device, parallel: ParallelConfig, num_workers: int = 1) -> Ranks:
    """Describe this process in the default group, which exists.

    Raises:
        ConfigError: the processes cannot be laid out as asked for.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
    world_size = dist.get_world_size() // num_workers
    shape = Mesh.of(parallel, world_size)
    sizes = (shape.pipeline, shape.replicate, shape.fsdp, shape.tensor)
    names = ("pipeline", "replicate", "shard", "tensor")
    if num_workers > 1:
        sizes, names = (num_workers, *sizes), ("worker", *names)  # type: ignore[assignment]
    mesh = init_device_mesh(device.type, sizes, mesh_dim_names=names)
    timeout = timedelta(seconds=parallel.timeout_seconds)
    worker, rank = divmod(dist.get_rank(), world_size)
    share, context_group = ContextShard(shape.context_rank(rank), shape.context), None
    if shape.context > 1:
        rows = torch.arange(dist.get_world_size()).view(-1, shape.context, shape.tensor)
        context_group = _one_of(rows.mT.flatten(0, 1).tolist(), timeout)
    group = sync_group = None
    if num_workers > 1:
        all_ranks = torch.arange(num_workers * world_size).view(num_workers, world_size)
        group = _one_of(all_ranks.tolist(), timeout)
        quiet_group = _one_of(all_ranks.tolist(), timeout, "gloo")
        talk_group = _one_of(all_ranks.tolist(), timeout, "gloo")
        sync_group = _one_of(all_ranks.T.tolist(), timeout, "gloo")
    else:
        quiet_group = dist.new_group(backend="gloo", timeout=timeout)
        talk_group = dist.new_group(backend="gloo", timeout=timeout)
    # The groups of a mesh have torch's own timeout, half an hour, whatever the first group has.
    for one in (*mesh.get_all_groups(), context_group, None):
        _set_pg_timeout(timeout, one)
    return Ranks(
        rank,
        shape,
        device,
        mesh,
        quiet_group,
        talk_group,
        share,
        context_group,
        group,
        worker,
        num_workers,
        sync_group,
    )


def _one_of(
    divisions: list[list[int]], timeout: timedelta, backend: str | None = None
) -> dist.ProcessGroup:
    """Make a group of each division of the processes, and return this process's."""
    mine, _ = dist.new_subgroups_by_enumeration(divisions, timeout, backend)  # type: ignore[no-untyped-call]
    assert isinstance(mine, dist.ProcessGroup)
    return mine


def as_placed(local_tensor: Tensor, like: Tensor) -> Tensor:
    """Return a shard in the memory of the CPU as part of a whole that is divided like another.

    The mesh of the result has places and no process groups.
    """
    if not isinstance(like, DTensor):
        return local_tensor
    there = like.device_mesh
    mesh = DeviceMesh("cpu", there.mesh, mesh_dim_names=there.mesh_dim_names, _init_backend=False)
    return DTensor.from_local(
        local_tensor, mesh, like.placements, shape=like.shape, stride=like.stride(), run_check=False
    )


def local(tensor: Tensor | None) -> Tensor:
    """Return this process's shard of a tensor, the same memory."""
    assert tensor is not None
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def named_parameters(parts: Iterable[nn.Module]) -> dict[str, nn.Parameter]:
    """Return this process's parameters by their names in a stock network.

    The copy of tied embeddings that a last stage has keeps its name, `lm_head.weight`.
    """
    return {name: p for part in parts for name, p in part.named_parameters()}


def trained_parameters(parts: Iterable[nn.Module]) -> dict[str, nn.Parameter]:
    """Return this process's trained parameters."""
    return {name: p for name, p in named_parameters(parts).items() if p.requires_grad}
