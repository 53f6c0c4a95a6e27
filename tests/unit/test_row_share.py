"""A row that processes share: together they compute what one does that has all of it."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AttentionInterface

from carbon.errors import ConfigError
from tests.helpers.attention import kernels_on_cpu
from tests.helpers.packed import batch, part
from train.config import ParallelConfig
from train.distributed.attention import attention_arguments
from train.distributed.context import ContextShard
from train.planning.compute import ATTENTIONS
from train.planning.mesh import Mesh

ROW_TOKENS = 24  # of slices of 6, 3 and 2


@pytest.fixture(scope="module", autouse=True)
def kernels():
    with kernels_on_cpu():
        yield


@pytest.fixture(scope="module")
def llamas():
    return {name: part(name).config for name in ATTENTIONS}


def attended(llama, given, share, query, key, value):
    """Attend as a layer does, with the arguments that a part gives it."""
    _, positions, _, _, *told = given
    more = attention_arguments(positions, *told, llama, share)
    mask = more.pop("attention_mask", None)
    attend = AttentionInterface()[llama._attn_implementation]
    module = torch.nn.Module()
    module.num_key_value_groups = 2
    module.is_causal = True
    return attend(module, query, key, value, mask, scaling=0.5, **more)[0]


@pytest.mark.parametrize("name", ATTENTIONS)
@settings(max_examples=4, deadline=None)
@given(
    lengths=st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=2), min_size=1, max_size=2),
    size=st.sampled_from([2, 4, 6]),
)
def test_the_parts_of_attention_are_the_whole(llamas, name, lengths, size):
    """Values and gradients, of pieces that begin and end anywhere, padding among them."""
    whole = batch([*lengths, [ROW_TOKENS]])
    generator = torch.Generator().manual_seed(0)
    query, key, value, up = (
        torch.randn(
            len(whole.input_ids), heads, ROW_TOKENS, 4, generator=generator, dtype=torch.float64
        )
        for heads in (4, 2, 2, 4)
    )
    given = [x.requires_grad_() for x in (query, key, value)]
    expected = attended(llamas["sdpa"], whole, ContextShard(), *given)
    expected_gradients = torch.autograd.grad(expected, given, up.transpose(1, 2))
    sums = [torch.zeros_like(x) for x in given]
    for share in (ContextShard(rank, size) for rank in range(size)):
        mine, order = share.places(ROW_TOKENS), share.gathered_places(ROW_TOKENS)
        keys, values = key[:, :, order], value[:, :, order]
        local = share.shared(whole)
        assert torch.equal(local.targets, whole.targets[:, mine])
        found = attended(llamas[name], local, share, query[:, :, mine], keys, values)
        torch.testing.assert_close(found, expected[:, mine])
        parts = torch.autograd.grad(found, given, up[:, :, mine].transpose(1, 2))
        sums = [sum_ + part_ for sum_, part_ in zip(sums, parts, strict=True)]
    torch.testing.assert_close(sums, list(expected_gradients))


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_shares_are_a_row_and_of_equal_work(size):
    shares = [ContextShard(rank, size) for rank in range(size)]
    places = [share.places(ROW_TOKENS).tolist() for share in shares]
    assert sorted(itertools.chain(*places)) == list(range(ROW_TOKENS))
    assert len({sum(mine) for mine in places}) == 1  # keys that a causal row asks
    assert [*itertools.chain(*places)] == shares[0].gathered_places(ROW_TOKENS).tolist()


def test_processes_that_share_rows_are_left_for_shards():
    assert Mesh.of(ParallelConfig(context=2), 4) == Mesh(shard=2, context=2)
    with pytest.raises(ConfigError, match="4 processes are not a multiple of pipeline x replicate"):
        Mesh.of(ParallelConfig(context=3), 4)
