"""What this process is among the others, read from torchrun's environment once."""

import os
import resource
from collections.abc import Iterable, Iterator
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
from carbon.errors import ConfigError, UserError
from train.config import ParallelConfig
from train.distributed.context import ContextShard
from train.distributed.failures import SharedFate

_OTHER_FILES = 512
_MOST_GROUPS = 4
"""Of gloo, that all processes are in, at most: the first, one of the mesh, and the two beside."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process, its device, and the mesh of its learner: pipeline, replicate, shard.

    Mostly there is one learner, which all processes of a launch are. Processes that share rows are
    neighbours among those that share weights.

    Attributes:
        rank: of this process, in its learner.
        world_size: processes of a learner.
        group: of the learner; None: all.
        quiet_group: for the checkpoint that a thread writes during training, on the CPU; its
            operations never wait for those of the training.
        talk_group: for what the first process tells the others between steps, on the CPU. The
            thread that writes a checkpoint must not meet it in `quiet_group`.
        share: what this process has of its rows.
        context_group: processes that share them; None: it has them alone.
        learner: that this process is of, of those of this launch.
        num_learners: of this launch.
        meeting_group: over gloo, the processes that hold what this one holds in their learners.
    """

    rank: int
    world_size: int
    device: torch.device
    mesh: DeviceMesh
    quiet_group: dist.ProcessGroup
    talk_group: dist.ProcessGroup
    share: ContextShard
    context_group: dist.ProcessGroup | None
    group: dist.ProcessGroup | None = None
    learner: int = 0
    num_learners: int = 1
    meeting_group: dist.ProcessGroup | None = None

    @property
    def is_first(self) -> bool:
        """Whether this process speaks and writes for its learner."""
        return self.rank == 0

    @property
    def pipeline_size(self) -> int:
        """Processes that the layers are divided over."""
        return _size(self.mesh, "pipeline")

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
        """Return the largest value of any process, of all learners, a number on the device."""
        found = torch.tensor(value, dtype=torch.int64, device=self.device)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return found

    def shared(self, value: Any) -> Any:
        """Return what the first process of the learner has."""
        found = [value]
        dist.broadcast_object_list(found, group=self.talk_group, group_src=0)
        return found[0]


@contextmanager
def joined_ranks(
    parallel: ParallelConfig, device: str = "auto", num_learners: int = 1
) -> Iterator[Ranks]:
    """Join the group that torchrun started; nccl with GPUs, gloo without.

    Args:
        parallel: how processes of a learner are laid out.
        device: that is asked for, `auto`, `cpu` or `cuda`.
        num_learners: that the processes are.

    Raises:
        ConfigError: the processes cannot be laid out as asked for.
        UserError: the device cannot be used, or too few files may be open.
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
        dist.init_process_group(backend, timeout=timeout)
    used = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    with ExitStack() as ending:
        if dist.get_world_size() == 1:
            ending.callback(dist.destroy_process_group)
        else:
            store = _get_default_store().clone()  # type: ignore[attr-defined]
            ending.enter_context(SharedFate(store, dist.get_rank()))
        yield ranks_of_group(used, parallel, num_learners)
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


def ranks_of_group(device: torch.device, parallel: ParallelConfig, num_learners: int = 1) -> Ranks:
    """Describe this process in the default group, which exists.

    Raises:
        ConfigError: the processes cannot be laid out as asked for.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
    world_size, left = divmod(dist.get_world_size(), num_learners)
    if left:
        raise ConfigError(
            f"learners.count = {num_learners}: {dist.get_world_size()} processes are no multiple "
            "of it; change one of them"
        )
    fixed = parallel.pipeline * parallel.replicate
    if world_size % fixed or not world_size:
        raise ConfigError(
            f"parallel: {world_size} processes are no multiple of pipeline x replicate = {fixed}; "
            "change one of them"
        )
    parallel.check_context(world_size // fixed)
    shape = (parallel.pipeline, parallel.replicate, world_size // fixed)
    names = ("pipeline", "replicate", "shard")
    if num_learners > 1:
        shape, names = (num_learners, *shape), ("learner", *names)  # type: ignore[assignment]
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=names)
    share, context_group = ContextShard(dist.get_rank() % parallel.context, parallel.context), None
    if parallel.context > 1:
        context_group, _ = dist.new_subgroups(parallel.context)  # type: ignore[no-untyped-call]
    timeout = timedelta(seconds=parallel.timeout_seconds)
    learner, rank = divmod(dist.get_rank(), world_size)
    group = meeting_group = None
    if num_learners > 1:
        all_ranks = torch.arange(num_learners * world_size).view(num_learners, world_size)
        group = _one_of(all_ranks.tolist(), timeout)
        quiet_group = _one_of(all_ranks.tolist(), timeout, "gloo")
        talk_group = _one_of(all_ranks.tolist(), timeout, "gloo")
        meeting_group = _one_of(all_ranks.T.tolist(), timeout, "gloo")
    else:
        quiet_group = dist.new_group(backend="gloo", timeout=timeout)
        talk_group = dist.new_group(backend="gloo", timeout=timeout)
    # The groups of a mesh have torch's own timeout, half an hour, whatever the first group has.
    for one in (*mesh.get_all_groups(), context_group, None):
        _set_pg_timeout(timeout, one)
    return Ranks(
        rank,
        world_size,
        device,
        mesh,
        quiet_group,
        talk_group,
        share,
        context_group,
        group,
        learner,
        num_learners,
        meeting_group,
    )


def _one_of(
    divisions: list[list[int]], timeout: timedelta, backend: str | None = None
) -> dist.ProcessGroup:
    """Make a group of each division of the processes, and return this process's."""
    mine, _ = dist.new_subgroups_by_enumeration(divisions, timeout, backend)  # type: ignore[no-untyped-call]
    assert isinstance(mine, dist.ProcessGroup)
    return mine


def _of_data(mesh: DeviceMesh) -> DeviceMesh:
    return mesh["replicate", "shard"] if _size(mesh, "replicate") > 1 else mesh["shard"]


def _size(mesh: DeviceMesh, name: str) -> int:
    assert mesh.mesh_dim_names is not None
    return mesh.size(mesh.mesh_dim_names.index(name))


def local(tensor: Tensor | None) -> Tensor:
    """Return this process's shard of a tensor, the same memory."""
    assert tensor is not None
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def named_parameters(parts: Iterable[nn.Module]) -> dict[str, nn.Parameter]:
    """Return this process's parameters by their names in a stock network.

    The copy of tied embeddings that a last part has goes by its own name, `lm_head.weight`.
    """
    return {name: p for part in parts for name, p in part.named_parameters()}


def trained_parameters(parts: Iterable[nn.Module]) -> dict[str, nn.Parameter]:
    """Return those of this process's parameters that are trained."""
    return {name: p for name, p in named_parameters(parts).items() if p.requires_grad}
