"""Groups of 512 processes, by fakes: which are made, over what, and the files that they take."""

import resource
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from carbon.errors import UserError
from train.config import ParallelConfig
from train.distributed import mesh as ranks_module
from train.distributed.mesh import allow_connections, joined_ranks

PROCESSES = 512


@pytest.fixture
def made(monkeypatch):
    """Be process 37 of 512 with a GPU each; note backend and processes of every group."""
    groups = []
    monkeypatch.setenv("RANK", "37")
    monkeypatch.setenv("WORLD_SIZE", str(PROCESSES))
    monkeypatch.setattr(ranks_module, "uses_gpu", lambda device: True)
    monkeypatch.setattr(ranks_module, "SharedFate", lambda *_: SimpleFate())
    monkeypatch.setattr(ranks_module, "_get_default_store", lambda: SimpleNamespace(clone=int))
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    begin, new = dist.init_process_group, dist.new_group

    def init(backend, timeout):
        groups.append((backend, PROCESSES))
        begin("fake", store=FakeStore(), rank=37, world_size=PROCESSES)

    def new_group(ranks=None, *, backend=None, **kwargs):
        groups.append((backend or groups[0][0], PROCESSES if ranks is None else len(ranks)))
        return new(ranks)

    monkeypatch.setattr(dist, "init_process_group", init)
    monkeypatch.setattr(dist, "new_group", new_group)
    monkeypatch.setattr("torch.distributed.device_mesh.new_group", new_group)
    monkeypatch.setattr("torch.distributed.distributed_c10d.new_group", new_group)
    yield groups
    if dist.is_initialized():
        dist.destroy_process_group()


class SimpleFate:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.mark.parametrize(
    "parallel",
    [ParallelConfig(), ParallelConfig(replicate=64), ParallelConfig(pipeline=4, replicate=2),
     ParallelConfig(replicate=8, context=4)],
)  # fmt: skip
def test_on_gpus_two_groups_have_connections_among_all(made, parallel):
    with joined_ranks(parallel):
        gloo = [size for backend, size in made if "gloo" in backend]
        assert gloo == [PROCESSES, PROCESSES]  # for checkpoints, and for what is said between steps
        assert len(made) > 1 or parallel == ParallelConfig()
    assert [size for backend, size in made if "gloo" in backend] == [PROCESSES, PROCESSES]


def test_open_files_are_raised_or_named(monkeypatch):
    limits, told = [1024, 4096], []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: told.append(pair))
    allow_connections(8)
    assert not told
    allow_connections(PROCESSES)
    assert told == [(2560, 4096)]
    with pytest.raises(UserError, match=r"4096 processes: each may need 16896 open files, and the"):
        allow_connections(4096)
    limits[:] = [1024, resource.RLIM_INFINITY]
    allow_connections(4096)
    assert told[1:] == [(16896, resource.RLIM_INFINITY)]
