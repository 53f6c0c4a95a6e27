"""Two learners of two shards each, by FSDP2 over gloo, against DiLoCo of torch in one process."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from tests.helpers.learners import Toy, batch_of, inner_step, load, new_state, weights_of
from tests.helpers.ranks import run_ranks
from train.diloco.outer import OuterStep, merged, outer_gradient

ROUNDS, EVERY = 6, 5
WEIGHTS = (3, 1)


def adamw(network):
    return torch.optim.AdamW(network.parameters(), lr=0.01)


def sharded(ranks):
    """Train on shards alone; return whole weights, and the numbers that this process sent."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("learner", "shard"))
    learner, others = mesh.get_local_rank("learner"), mesh.get_group("learner")
    network = Toy()
    fully_shard(network, mesh=mesh["shard"])
    optimizer = adamw(network)

    def shards():
        return {name: p.detach().to_local().clone() for name, p in network.named_parameters()}

    state, sent = new_state(shards()), 0
    for round_number in range(ROUNDS):
        for step in range(EVERY):
            inner_step(network, optimizer, batch_of(learner, round_number * EVERY + step))
        own = outer_gradient(state.anchor, shards())
        deltas = [{name: torch.empty_like(x) for name, x in own.items()} for _ in WEIGHTS]
        for name, delta in own.items():
            dist.all_gather([d[name] for d in deltas], delta.contiguous(), group=others)
            sent += delta.numel()
        OuterStep(0.7, 0.9).step(state, merged(deltas, WEIGHTS))
        for name, p in network.named_parameters():
            p.detach().to_local().copy_(state.anchor[name])
    whole = {name: p.detach().full_tensor().numpy() for name, p in network.named_parameters()}
    return whole, sent, {name: tuple(x.shape) for name, x in state.anchor.items()}


def in_one_process():
    """Do the same on whole weights, with torch's optimizer as the outer one."""
    networks = [Toy() for _ in WEIGHTS]
    optimizers = [adamw(network) for network in networks]
    anchor = Toy()
    outer = torch.optim.SGD(anchor.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    for round_number in range(ROUNDS):
        for learner, (network, optimizer) in enumerate(zip(networks, optimizers, strict=True)):
            for step in range(EVERY):
                inner_step(network, optimizer, batch_of(learner, round_number * EVERY + step))
        own = [dict(network.named_parameters()) for network in networks]
        for name, p in anchor.named_parameters():
            p.grad = p.detach() - (0.75 * own[0][name] + 0.25 * own[1][name]).detach()
        outer.step()
        for network in networks:
            load(network, weights_of(anchor))
    return weights_of(anchor)


def test_shards_of_learners_are_diloco_of_whole_weights():
    expected = in_one_process()
    by_rank = run_ranks(4, sharded, apart=True)
    for whole, _, _ in by_rank:
        for name, weight in expected.items():
            assert whole[name] == pytest.approx(weight.numpy(), rel=0, abs=1e-13)
    # Each number goes once a round from each learner: the two shards of one are the whole.
    numel = sum(weight.numel() for weight in expected.values())
    assert by_rank[0][1] + by_rank[1][1] == by_rank[2][1] + by_rank[3][1] == ROUNDS * numel
    assert by_rank[1][2]["4.weight"] == (0, 3)  # whose one row is the first process's
    for name in expected:
        assert (by_rank[0][0][name] == by_rank[2][0][name]).all()
