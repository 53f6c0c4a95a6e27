"""Whole weights on the first process, against DTensor's own; what the others hold and pickle."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.helpers.ranks import run_ranks
from tests.helpers.runs import make_config
from train.config import ParallelConfig

LAYOUTS = {
    3: [ParallelConfig()],  # no side of a matrix is a multiple of it
    4: [ParallelConfig(pipeline=2, schedule="zbv"), ParallelConfig(replicate=2)],
}


class LargestResult(TorchDispatchMode):
    """Sees the bytes of the largest tensor that any operation has as its result."""

    def __init__(self):
        super().__init__()
        self.num_bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and not isinstance(result, DTensor):
            self.num_bytes = max(self.num_bytes, result.nbytes)
        return result


def gathered_twice(ranks, config, layouts):
    """Return per layout: weights both ways, bytes of the largest result, and of what is pickled."""
    import torch.distributed.distributed_c10d as c10d

    from train.distributed.gather import gather_full_state_dict
    from train.distributed.mesh import ranks_of_group
    from train.distributed.parallelize import build_stages

    pickled, to_tensor = [], c10d._object_to_tensor

    def counting(*arguments):
        tensor, size = to_tensor(*arguments)
        pickled.append(int(size))
        return tensor, size

    found = []
    for parallel in layouts:
        here = ranks_of_group(ranks.device, parallel)
        parts = build_stages(config.replace(parallel=parallel), here)
        held = {n: p.detach() for part in parts for n, p in part.named_parameters()}
        expected = {name: weight.full_tensor().numpy() for name, weight in held.items()}
        c10d._object_to_tensor = counting
        pickled.clear()
        with LargestResult() as largest, gather_full_state_dict(parts, here) as weights:
            ours = {name: weights[name].numpy() for name in reversed(list(weights))}
        c10d._object_to_tensor = to_tensor
        shard = max(weight.to_local().nbytes for weight in held.values())
        found.append((expected, ours, largest.num_bytes, shard, sum(pickled)))
        dist.barrier()
    return found


@pytest.mark.parametrize("world_size", LAYOUTS)
def test_the_first_has_all_and_the_others_their_shards(world_size, tmp_path):
    config = make_config(tmp_path / "none", tmp_path / "run")
    layouts = LAYOUTS[world_size]
    by_rank = run_ranks(world_size, gathered_twice, config, layouts, apart=True)
    for parallel, *results in zip(layouts, *by_rank, strict=True):
        whole = {name: t for expected, *_ in results for name, t in expected.items()}
        if parallel.pipeline > 1:
            assert np.array_equal(whole.pop("lm_head.weight"), whole["model.embed_tokens.weight"])
        assert results[0][1].keys() == whole.keys(), parallel
        for name, tensor in results[0][1].items():
            assert np.array_equal(tensor, whole[name]), (parallel, name)
        assert all(not weights for _, weights, *_ in results[1:])
        for rank, (expected, _, largest, shard, pickled) in enumerate(results):
            shards = world_size // parallel.pipeline // parallel.replicate
            if rank % (shards * parallel.replicate):  # no one hands whole weights on
                assert largest <= shard + 4096, (parallel, rank)
            elif rank:
                assert largest <= max(t.nbytes for t in expected.values()) + 4096
            assert pickled < 10_000, parallel
        total = sum(t.nbytes for t in whole.values())
        assert total > 1_000_000
