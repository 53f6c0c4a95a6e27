"""Activation checkpointing: the same numbers, and what is computed anew is counted."""

from collections import Counter

import pytest
import torch
from torch._dynamo.utils import counters
from torch.torch_version import TorchVersion
from torch.utils._python_dispatch import TorchDispatchMode

from tests.helpers.attention import kernels_on_cpu
from tests.helpers.compiled import Noted
from tests.helpers.packed import batch, loss_and_gradients, part
from train.planning.compute import ACTIVATION_CHECKPOINTINGS

GIVEN = batch([[3, 5], [2, 2, 4]])
LAYERS = 2
PRODUCTS = 7  # of a layer: q, k, v, o, gate, up, down
ATTENTION = {
    "sdpa": "aten::_scaled_dot_product_flash_attention_for_cpu",
    "varlen": "torch_attn::_varlen_attn",
    "flash_attention_2": "flash_attn::_flash_attn_varlen_forward",
}


@pytest.fixture(scope="module", autouse=True)
def kernels():
    with kernels_on_cpu():
        yield


class Count(TorchDispatchMode):
    """What is computed, by the names of operators."""

    def __init__(self):
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.found[func.name()] += 1
        return func(*args, **(kwargs or {}))


def products(found: Counter[str]) -> int:
    return sum(found[f"aten::{name}"] for name in ("mm", "addmm", "bmm"))


def backward_of(name: str, checkpointing: str) -> Counter[str]:
    """Return what backward computes of two layers, each by itself, and the head."""
    network = part(name, checkpointing=checkpointing)
    told = GIVEN._asdict()
    loss = network(told.pop("input_ids"), **told)
    with Count() as count:
        loss.backward()
    return count.found


def backward_of_compiled(name: str, checkpointing: str) -> Counter[str]:
    """Return the same of compiled layers, which have one graph, as inductor would divide it."""
    torch._dynamo.reset()
    counters.clear()
    noted = Noted()
    network, plain = part(name, checkpointing=checkpointing), part(name)
    for layer in network.layers():
        layer.compile(backend=noted)
    torch.testing.assert_close(
        loss_and_gradients(network, GIVEN), loss_and_gradients(plain, GIVEN), rtol=1e-4, atol=1e-5
    )
    assert (noted.num_graphs, dict(counters["graph_break"])) == (1, {})
    return noted.backward


@pytest.mark.parametrize("name", ATTENTION)
def test_numbers_are_the_same(name):
    expected = loss_and_gradients(part(name), GIVEN)
    for kind in ACTIVATION_CHECKPOINTINGS:
        assert all(
            torch.equal(found, value)
            for found, value in zip(
                loss_and_gradients(part(name, checkpointing=kind), GIVEN), expected, strict=True
            )
        ), kind


@pytest.mark.parametrize("name", ATTENTION)
def test_what_is_computed_anew(name):
    none, selective, full = (backward_of(name, kind) for kind in ("none", "selective", "full"))
    assert products(none) == products(selective) >= LAYERS * 2 * PRODUCTS
    assert none[ATTENTION[name]] == selective[ATTENTION[name]] == 0
    # The last product of a layer is not needed again.
    assert products(full) - products(none) == LAYERS * (PRODUCTS - 1)
    assert full[ATTENTION[name]] == LAYERS
    # What is neither: a norm's root, for one.
    assert none["aten::rsqrt"] == 0
    assert selective["aten::rsqrt"] == full["aten::rsqrt"] == LAYERS * 2


@pytest.mark.nightly  # tests/gpu/test_step.py compiles a step that recomputes
@pytest.mark.parametrize("name", ["varlen", "flash_attention_2"])
def test_what_a_compiled_layer_recomputes(name):
    """Of one layer. Where checkpointing is around what is compiled, `selective` is as `full`."""
    selective, full = (backward_of_compiled(name, kind) for kind in ("selective", "full"))
    assert products(selective) == 2 * PRODUCTS
    assert selective[ATTENTION[name]] == 0
    assert selective["aten::rsqrt"] > 0
    assert products(full) == 3 * PRODUCTS - 1
    # What an autograd.Function found PyTorch 2.11 keeps all the same.
    keeps = name == "flash_attention_2" and TorchVersion(torch.__version__) < "2.13"
    assert full[ATTENTION[name]] == (0 if keeps else 1)
