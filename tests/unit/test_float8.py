"""Products in float8: on the CPU torchao emulates them; off, nothing is touched."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from carbon.errors import ConfigError, UserError
from carbon.io.config import read_table
from tests.helpers.packed import batch, loss_and_gradients, part
from tests.helpers.runs import RECIPE
from train.config import TrainConfig
from train.distributed import float8
from train.distributed.context import ContextShard
from train.distributed.float8 import use_float8
from train.planning.mesh import Mesh

CPU = torch.device("cpu")
LENGTHS = [[20, 12], [7, 25]]


def rounded(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Return what float8 keeps of a factor: rows scaled by a power of two, then rounded to e4m3."""
    largest = x.abs().amax(dim, keepdim=True).double()
    scale = torch.exp2(torch.floor(torch.log2(448 / largest)))
    return ((x.double() * scale).float().to(torch.float8_e4m3fn).double() / scale).to(x.dtype)


def test_each_product_is_of_rounded_rows():
    pytest.importorskip("torchao", reason="scripts/test_float8 has torchao")
    torch.manual_seed(0)
    layer = nn.Sequential(nn.Linear(48, 32, bias=False))
    weight = layer[0].weight.detach().clone()
    use_float8([layer], CPU)
    x, grad = torch.randn(64, 48, requires_grad=True), torch.randn(64, 32)
    y = layer(x)
    y.backward(grad)
    w, given = weight, x.detach()
    torch.testing.assert_close(y.detach(), rounded(given, 1) @ rounded(w, 1).T)
    torch.testing.assert_close(x.grad, rounded(grad, 1) @ rounded(w, 0))
    torch.testing.assert_close(layer[0].weight.grad, rounded(grad, 0).T @ rounded(given, 0))
    assert not torch.equal(y.detach(), given @ w.T)


def test_a_network_learns_nearly_the_same_and_its_ends_are_not_touched():
    pytest.importorskip("torchao", reason="scripts/test_float8 has torchao")
    exact, network = part("sdpa"), part("sdpa")
    names = [name for name, _ in network.named_parameters()]
    use_float8(network.layers(), CPU)
    assert [name for name, _ in network.named_parameters()] == names
    kinds = {type(module) for layer in network.layers() for module in layer.modules()}
    assert nn.Linear not in kinds and type(network.lm_head) is nn.Linear
    given = batch(LENGTHS)
    expected = loss_and_gradients(exact, given)
    found = loss_and_gradients(network, given)
    assert found[0] != expected[0]
    torch.testing.assert_close(found[0], expected[0], rtol=0.02, atol=0)
    for ours, theirs in zip(found[1:], expected[1:], strict=True):
        # Weights of this network are ten times those of a run, and so is what rounding does.
        assert torch.cosine_similarity(ours.flatten(), theirs.flatten(), dim=0) > 0.9


def test_without_the_switch_every_matrix_is_a_stock_one():
    from train.distributed.parallelize import build_stages

    config = recipe()
    mesh = SimpleNamespace(
        shape=Mesh(), pipeline_rank=0, device=CPU, context_group=None, share=ContextShard(),
        world_size=1,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("train.distributed.parallelize._shard", lambda *given: None)
        (found,) = build_stages(config, mesh)
        linears = [m for m in found.modules() if isinstance(m, nn.Linear)]
        assert linears and {type(m) for m in linears} == {nn.Linear}
        if float8.find_spec("torchao"):
            (other,) = build_stages(recipe(float8=True), mesh)
            changed = sum(type(m) is not nn.Linear for m in other.modules())
            assert changed > len(list(found.modules())) - len(linears)
            for (name, ours), (_, theirs) in zip(
                found.named_parameters(), other.named_parameters(), strict=True
            ):
                assert torch.equal(ours, theirs), name


def recipe(tune: str = "whole", phase: dict | None = None, **compute) -> TrainConfig:
    table = read_table(RECIPE)
    table["compute"] = compute
    if tune != "whole":
        table["model"] = {"start": "somewhere", "tune": tune}
    table["phases"][0].update(phase or {})
    return TrainConfig.from_table(table, "recipe")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tune": "lora"}, "does not go with model.tune = 'lora'"),
        ({"phase": {"context_tokens": 24}}, r"read \[24\] tokens of a row .* give multiples of 16"),
    ],
)
def test_what_does_not_go_with_it(changes, message):
    with pytest.raises(ConfigError, match=message):
        recipe(float8=True, **changes)


def test_schedules_that_take_backward_apart_do_without():
    table = read_table(RECIPE)
    table["compute"] = {"float8": True}
    table["parallel"] = {"pipeline": 2, "schedule": "zbv"}
    with pytest.raises(ConfigError, match=r"compute\.float8"):
        TrainConfig.from_table(table, "recipe")


def test_what_is_missing_is_one_line(monkeypatch):
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (8, 0))
    with monkeypatch.context() as patch, pytest.raises(UserError, match="torchao is not installed"):
        patch.setattr(float8, "find_spec", lambda name: None)
        use_float8([], CPU)
    monkeypatch.setattr(float8, "find_spec", lambda name: name)
    with pytest.raises(UserError, match="the GPU is older than its kernel"):
        use_float8([], torch.device("cuda", 0))


def test_a_matrix_that_does_not_fit_is_named(monkeypatch):
    pytest.importorskip("torchao", reason="scripts/test_float8 has torchao")
    with pytest.raises(ConfigError, match=r"compute\.float8: 0 is \(20, 32\)"):
        use_float8([nn.Sequential(nn.Linear(32, 20, bias=False))], CPU)
