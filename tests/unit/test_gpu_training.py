"""What a run does otherwise on GPUs, or on a network disk, held by fakes."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch._subclasses import FakeTensorMode

from train.checkpoint import Checkpoints
from train.config import OptimizerConfig, ParallelConfig
from train.distributed import pipeline as pipeline_module
from train.distributed.pipeline import Pipeline
from train.optim import make_optimizers, optimizer_state
from train.saved import Shards


def module_on(device: str) -> nn.Module:
    return nn.ParameterDict({
        "matrix": nn.Parameter(torch.ones(4, 3, device=device)),
        "norm": nn.Parameter(torch.ones(3, device=device)),
    })  # fmt: skip


def adamw_of(module: nn.Module) -> torch.optim.Optimizer:
    (optimizer,) = make_optimizers(OptimizerConfig(), dict(module.named_parameters()))
    return optimizer


def test_an_update_of_adamw_is_one_kernel_on_a_gpu_only():
    with FakeTensorMode():
        module = module_on("cuda")
        optimizer = adamw_of(module)
        optimizer_state(module, [optimizer], 3)
    assert [group["fused"] for group in optimizer.param_groups] == [True, True]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]
    assert {state["step"].device.type for state in optimizer.state.values()} == {"cuda"}
    on_cpu = adamw_of(module_on("cpu"))
    assert [group["fused"] for group in on_cpu.param_groups] == [None, None]


@pytest.mark.parametrize("fused", [True, None])
def test_state_that_was_loaded_goes_on(fused):
    """The kernel of the CPU stands in for that of a GPU."""
    modules = [nn.ParameterDict({"p": nn.Parameter(torch.ones(4))}) for _ in range(2)]
    left, right = (module["p"] for module in modules)
    first, second = (torch.optim.AdamW([p], lr=0.1, fused=fused) for p in (left, right))
    left.grad = torch.full((4,), 0.5)
    first.step()
    state = optimizer_state(modules[1], [second], 1)
    for name, moment in state["p"].items():
        moment.copy_(first.state[left][name])
    right.data.copy_(left.data)
    left.grad, right.grad = torch.full((4,), -2.0), torch.full((4,), -2.0)
    first.step()
    second.step()
    assert torch.equal(left, right)


def checkpoints_of(rank: int, monkeypatch, first_sees: list[str]) -> Checkpoints:
    """Return those of one of two processes, which hears what the first one sees."""

    def broadcast(names, group, group_src):
        if rank:
            names[0] = first_sees

    monkeypatch.setattr("torch.distributed.broadcast_object_list", broadcast)
    found = object.__new__(Checkpoints)
    found._ranks = SimpleNamespace(rank=rank, world_size=2, is_first=rank == 0, quiet_group=None)
    return found


@pytest.mark.parametrize(("rank", "mine"), [(0, ["a", "c"]), (1, ["b", "d"])])
def test_shards_are_those_that_the_first_process_sees(rank, mine, tmp_path: Path, monkeypatch):
    """A network disk shows files of other nodes late; then a shard had no checksum."""
    names = [f"{name}.safetensors" for name in "abcd"]
    for name in names if rank == 0 else names[:1]:
        (tmp_path / name).touch()
    found = checkpoints_of(rank, monkeypatch, names)
    assert found._mine(found._names_in(tmp_path)) == [f"{name}.safetensors" for name in mine]


def test_what_shards_hold_is_what_the_first_process_has_read(tmp_path: Path, monkeypatch):
    """Another one sees none of them yet, and does not look."""
    (tmp_path / "late").mkdir()
    save_file({"model.a": torch.ones(4, 3)}, tmp_path / "shard-1.safetensors")
    told = []

    def broadcast(found, group, group_src):
        if found[0] is None:
            found[0] = told[0]
        told.append(found[0])

    monkeypatch.setattr("torch.distributed.broadcast_object_list", broadcast)
    first, other = (SimpleNamespace(is_first=n == 0, quiet_group=None) for n in (0, 1))
    seen = Shards(tmp_path, first).read_metadata()
    assert seen.state_dict_metadata["model.a"].size == (4, 3)
    assert Shards(tmp_path / "late", other).read_metadata() is seen


@pytest.mark.parametrize(("each", "reduced"), [(False, [False, False, True]), (True, [True] * 3)])
def test_when_gradients_are_reduced(each, reduced, monkeypatch):
    told = []
    found = object.__new__(Pipeline)
    found._config = SimpleNamespace(parallel=ParallelConfig(reduce_each_microbatch=each))
    found._parts = [SimpleNamespace(set_requires_gradient_sync=told.append)]
    loss = torch.ones((), requires_grad=True)
    monkeypatch.setattr(pipeline_module, "_call", lambda part, batch: 2 * loss)
    found._run_loop([None] * 3)
    assert told == reduced and float(loss.grad) == 6
