"""Workers of a toy network in one process: their pseudo-gradients go by plain variables."""

import torch
from torch import nn

from train.diloco.outer import OuterState, outer_step, pseudo_gradient, weighted_mean


class Toy(nn.Sequential):
    """A small network; its last layer has one row, so that some shards of it are empty."""

    def __init__(self, dtype=torch.float64):
        torch.manual_seed(0)
        super().__init__(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3), nn.Tanh(), nn.Linear(3, 1))
        self.to(dtype)


def batch_of(worker, step, dtype=torch.float64, rows=6):
    """Return inputs and targets, others for each worker and step."""
    generator = torch.Generator().manual_seed(1000 * worker + step)
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
    """Return an outer state with room for a delayed momentum."""
    zeros = [{name: torch.zeros_like(w) for name, w in weights.items()} for _ in range(2)]
    return OuterState({name: w.clone() for name, w in weights.items()}, *zeros)


def take_outer_step(state, gradient, learning_rate, momentum, every=1):
    for name in gradient:
        state.steps[name] = state.steps.get(name, 0) + 1
    outer_step(state, gradient, learning_rate, momentum, every)


def mean(gradients, weights):
    return {name: weighted_mean([g[name] for g in gradients], weights) for name in gradients[0]}


def mixed(local, outer, alpha):
    return {name: weight * alpha + outer[name] * (1 - alpha) for name, weight in local.items()}


def train_workers(count, steps, every, outer, inner, *, dtype=torch.float64, data=batch_of, **how):
    """Train workers for a number of inner steps each.

    Args:
        outer: learning rate and momentum.
        inner: makes an optimizer of parameters.
        how: of Streaming DiLoCo: `parts` (names by fragment), `offsets`, `delay`, `alpha`.

    Returns:
        The outer state, and the workers' weights.
    """
    networks = [Toy(dtype) for _ in range(count)]
    optimizers = [inner(network.parameters()) for network in networks]
    state = new_state(weights_of(networks[0]))
    parts = how.get("parts", (tuple(state.params),))
    offsets = how.get("offsets", (0,) * len(parts))
    delay, alpha = how.get("delay", 0), how.get("alpha", 0.0)
    sent = {}
    for step in range(1, steps + 1):
        for worker, (network, optimizer) in enumerate(zip(networks, optimizers, strict=True)):
            inner_step(network, optimizer, data(worker, step, dtype))
        for number, (names, offset) in enumerate(zip(parts, offsets, strict=True)):
            local = [{name: weights_of(n)[name] for name in names} for n in networks]
            if step > offset and (step - offset) % every == 0:
                gradients = [pseudo_gradient(state.params, own) for own in local]
                sent[number, step + delay] = mean(gradients, [1] * count)
            if (number, step) in sent:
                take_outer_step(state, sent.pop((number, step)), *outer)
                for network, own in zip(networks, local, strict=True):
                    load(network, mixed(own, state.params, alpha))
    return state, [weights_of(network) for network in networks]


def largest_difference(a, b):
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).abs().max()) for name in a if a[name].numel())


def same_bits(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
