"""Attention over packed rows without a mask: as SDPA has it, in one graph, without waiting.

The kernels are stand-ins on the CPU; what calls them is what would call those of a GPU.
"""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._dynamo.utils import counters
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.distributed.pipelining.microbatch import split_args_kwargs_into_chunks

from carbon.errors import ConfigError, UserError
from tests.helpers.attention import kernels_on_cpu
from tests.helpers.compiled import Noted
from tests.helpers.packed import WITHOUT_MASK, batch, loss_and_gradients, part
from train.config import ComputeConfig
from train.distributed import attention
from train.distributed.attention import attention_arguments, chosen_attention
from train.distributed.context import ContextShard, stacked
from train.planning.compute import ATTENTIONS, attention_of

pieces_of_rows = st.lists(
    st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=3
)


@pytest.fixture(scope="module", autouse=True)
def kernels():
    with kernels_on_cpu():
        yield


@pytest.fixture(scope="module")
def networks():
    return {name: part(name).double() for name in ATTENTIONS}


@settings(max_examples=12, deadline=None)
@given(lengths=pieces_of_rows)
def test_it_is_that_of_sdpa_with_a_mask(networks, lengths):
    expected = loss_and_gradients(networks["sdpa"], batch(lengths))
    for name in WITHOUT_MASK:
        found = loss_and_gradients(networks[name], batch(lengths))
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@given(lengths=pieces_of_rows)
def test_bounds_are_counted_where_rows_are_stacked(lengths):
    rows = [[*row, max(map(sum, lengths)) - sum(row)] for row in lengths]
    flat = [length for row in rows for length in row if length]
    found = batch(lengths)
    assert found.bounds.tolist() == [[0, *itertools.accumulate(flat)]]
    assert (found.bounds.dtype, found.longest) == (torch.int32, max(flat))
    assert found.to(torch.device("cpu")).longest == found.longest


def test_microbatches_of_a_pipeline_have_bounds_of_one_length(networks):
    """Pieces that are added have no tokens; the sum over microbatches is that of each alone."""
    both = [batch([[3, 5]]), batch([[2, 2, 4]], seed=1)]
    together = stacked(both)
    assert together["bounds"].tolist() == [[0, 3, 8, 8], [0, 2, 4, 8]]
    _, divided = split_args_kwargs_into_chunks((), together, 2)
    for one, part_of_it in zip(both, divided, strict=True):
        padded = one._replace(**part_of_it)
        assert torch.equal(padded.targets, one.targets) and padded.longest == 5
        for found, expected in zip(
            loss_and_gradients(networks["varlen"], padded),
            loss_and_gradients(networks["varlen"], one),
            strict=True,
        ):
            assert torch.equal(found, expected)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["varlen", "flash_attention_2"])
def test_a_layer_is_one_graph_whatever_is_packed(name):
    """Compiled twice: once as it is met first, once for pieces of any number and length."""
    torch._dynamo.reset()
    counters.clear()
    network, noted = part(name), Noted()
    for layer in network.layers():
        layer.compile(backend=noted)
    for i in range(3):
        given = batch([[i + 2, *range(1, i + 3)], [20]], seed=i)
        found = loss_and_gradients(network, given)
    torch.testing.assert_close(found, loss_and_gradients(part(name), given), rtol=1e-4, atol=1e-5)
    assert dict(counters["graph_break"]) == {}
    assert noted.num_graphs <= 2


def test_bounds_of_queries_and_keys_are_two_tensors():
    """flash-attn takes both, and Dynamo breaks the graph at one tensor that is given twice."""
    given, llama = batch([[3, 5]]), part("varlen").config
    _, positions, _, _, *told = given
    found = attention_arguments(positions, *told, llama, ContextShard())
    assert found["bounds_q"] is not found["bounds_k"]
    assert found["bounds_q"].tolist() == found["bounds_k"].tolist() == [0, 3, 8]


def test_no_pass_waits_for_the_device():
    """Of tensors that are fakes nobody knows a value; whoever asks for one raises."""
    given = batch([[3, 5], [8]])
    tensors = {name: x for name, x in given._asdict().items() if name != "longest"}
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        network = part("varlen", range(1))
        told = given._replace(**{n: mode.from_tensor(x) for n, x in tensors.items()})._asdict()
        hidden = network(told.pop("input_ids"), **told)
        hidden.float().sum().backward()
        with pytest.raises(DataDependentOutputException):
            int(told["bounds"].diff().max())
    assert hidden.shape == (2, 8, 32)


@pytest.mark.parametrize(
    ("asked", "dtype", "on_gpu", "used"),
    [
        ("auto", "bfloat16", True, "varlen"),
        ("auto", "float32", True, "sdpa"),
        ("auto", "bfloat16", False, "sdpa"),
        ("sdpa", "bfloat16", True, "sdpa"),
        ("flash_attention_2", "bfloat16", True, "flash_attention_2"),
        ("varlen", "float32", True, None),
        ("varlen", "bfloat16", False, None),
    ],
)
def test_which_is_used(asked, dtype, on_gpu, used):
    if used is None:
        with pytest.raises(ConfigError, match="'varlen': needs a GPU and bfloat16"):
            attention_of(asked, dtype, on_gpu=on_gpu)
    else:
        assert attention_of(asked, dtype, on_gpu=on_gpu) == used


@pytest.mark.parametrize(
    ("lacks", "asked", "message"),
    [
        ("torch", "varlen", "PyTorch .* does not have it"),
        ("package", "flash_attention_2", "flash_attn is not installed"),
        ("package", "flash_attention_3", "flash_attn_interface is not installed"),
        ("gpu", "varlen", "the GPU is older than it"),
    ],
)
def test_what_cannot_be_used_is_told_and_auto_does_without(monkeypatch, lacks, asked, message):
    capability = (7, 5) if lacks == "gpu" else (9, 0)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: capability)
    monkeypatch.setattr(attention, "find_spec", lambda name: None if lacks == "package" else name)
    if lacks == "torch":
        monkeypatch.setattr(attention, "_OF_VARLEN", {})
    gpu = torch.device("cuda", 0)
    with pytest.raises(UserError, match=f"compute.attention = '{asked}': .*{message}; leave"):
        chosen_attention(ComputeConfig(attention=asked), "bfloat16", gpu)
    expected = "varlen" if lacks == "package" else "sdpa"
    assert chosen_attention(ComputeConfig(), "bfloat16", gpu) == expected
