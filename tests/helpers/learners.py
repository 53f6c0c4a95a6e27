"""Learners of a toy network in one process: what they send and take goes by plain variables."""

import torch
from torch import nn

from train.diloco.outer import OuterState, merged, mixed, outer_gradient


class Toy(nn.Sequential):
    """A small network; its last layer has one row, so that some shards of it are empty."""

    def __init__(self, dtype=torch.float64):
        torch.manual_seed(0)
        super().__init__(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3), nn.Tanh(), nn.Linear(3, 1))
        self.to(dtype)


def batch_of(learner, step, dtype=torch.float64, rows=6):
    """Return inputs and targets, others for each learner and step."""
    generator = torch.Generator().manual_seed(1000 * learner + step)
    inputs = torch.randn(rows, 5, generator=generator, dtype=torch.float64)
    return inputs.to(dtype), inputs.prod(1, keepdim=True).sin().to(dtype)


def inner_step(network, optimizer, batch):
    inputs, targets = batch
    optimizer.zero_grad()
    ((network(inputs) - targets) ** 2).mean().backward()
    optimizer.step()


def weights_of(network):
    return {name: p.detach().clone() for name, p in network.named_parameters()}


def load(network, weights):
    with torch.no_grad():
        for name, p in network.named_parameters():
            if name in weights:
                p.copy_(weights[name])


def new_state(weights):
    return OuterState({name: w.clone() for name, w in weights.items()}, {}, {}, {})


def train_learners(count, steps, every, outer, inner, *, dtype=torch.float64, data=batch_of, **how):
    """Train so many learners for so many inner steps each.

    Args:
        inner: makes an optimizer of parameters.
        how: of Streaming DiLoCo: `parts` (names by fragment), `offsets`, `delay`, `alpha`; and
            `weights`, from a step to the shares of the learners that meet then, else all alike.

    Returns:
        The outer state, and the learners' weights.
    """
    networks = [Toy(dtype) for _ in range(count)]
    optimizers = [inner(network.parameters()) for network in networks]
    state = new_state(weights_of(networks[0]))
    parts = how.get("parts", (tuple(state.anchor),))
    offsets = how.get("offsets", (0,) * len(parts))
    delay, alpha = how.get("delay", 0), how.get("alpha", 0.0)
    weights = how.get("weights", lambda step: [1] * count)
    flying = {}
    for step in range(1, steps + 1):
        for learner, (network, optimizer) in enumerate(zip(networks, optimizers, strict=True)):
            inner_step(network, optimizer, data(learner, step, dtype))
        for number, (names, offset) in enumerate(zip(parts, offsets, strict=True)):
            local = [{name: weights_of(n)[name] for name in names} for n in networks]
            if step > offset and (step - offset) % every == 0:
                deltas = [outer_gradient(state.anchor, own) for own in local]
                flying[number, step + delay] = merged(deltas, weights(step))
            if (number, step) in flying:
                outer.step(state, flying.pop((number, step)))
                for network, own in zip(networks, local, strict=True):
                    load(network, mixed(own, state.anchor, alpha))
    return state, [weights_of(network) for network in networks]


def largest_difference(a, b):
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).abs().max()) for name in a if a[name].numel())


def same_bits(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
