"""Outer steps against torch's optimizer, numpy, and sums by hand."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import SGD

from carbon.errors import ConfigError
from train.diloco.outer import (
    Agreement,
    OuterState,
    mean_of,
    outer_step,
    pseudo_gradient,
    weighted_mean,
)
from train.diloco.streaming import fragments
from train.diloco.weights import _mixed

STEPS = 20


def random_weights(seed, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a": (7, 143), "b": (3,), "empty": (0, 4)}
    return {
        n: torch.randn(s, generator=generator, dtype=torch.float64).to(dtype)
        for n, s in shapes.items()
    }


def new_state(weights):
    """Return an outer state with room for momentum."""
    zeros = {name: torch.zeros_like(w) for name, w in weights.items()}
    return OuterState({name: w.clone() for name, w in weights.items()}, zeros)


def same_bits(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# Means


def test_a_mean_multiplies_and_adds_as_numpy_does():
    """To the bit in fp32, where a product that is not rounded before the sum would show."""
    tensors = [random_weights(seed)["a"] for seed in range(3)]
    expected = np.zeros(tensors[0].shape, np.float32)
    for tensor, weight in zip(tensors, (3, 5, 9), strict=True):
        expected = expected + tensor.numpy() * np.float32(weight / 17)
    found = weighted_mean(tensors, (3, 5, 9))
    assert np.array_equal(found.numpy(), expected)
    fused = sum(
        t.double() * float(np.float32(w / 17)) for t, w in zip(tensors, (3, 5, 9), strict=True)
    )
    assert not torch.equal(found, fused.float())


@given(
    weights=st.lists(st.integers(0, 10**9), min_size=1, max_size=5),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_a_weight_of_zero_is_absence(weights, dtype):
    tensors = [random_weights(seed, dtype)["a"] for seed in range(len(weights))]
    pairs = list(zip(tensors, weights, strict=True))
    found = weighted_mean([t if w else torch.full_like(t, math.nan) for t, w in pairs], weights)
    present = [pair for pair in pairs if pair[1]]
    expected = weighted_mean(*zip(*present, strict=True)) if present else torch.zeros(7, 143)
    assert torch.equal(found, expected.to(dtype)) and found.dtype == dtype


def test_a_pseudo_gradient_points_to_the_outer_parameters():
    outer, local = random_weights(1), random_weights(2)
    del local["b"]
    gradient = pseudo_gradient(outer, local)
    assert gradient.keys() == {"a", "empty"}
    assert torch.equal(gradient["a"], outer["a"] - local["a"])


def test_norms_and_cosines_are_sums_of_fp64():
    """In fp32, 2^24 + 1 is 2^24, of one tensor as of several."""
    large = {"x": torch.tensor([4096.0]), "y": torch.tensor([1.0]), "uncounted": torch.ones(1)}
    _, sums = mean_of([large, large], [1, 1], list(large), {"x", "y"})
    assert sums.tolist() == [[2**24 + 1] * 3] * 2
    gradients = [{"x": torch.tensor(row)} for row in ([3.0, 0.0], [0.0, 4.0], [0.0, 0.0])]
    mean_, sums = mean_of(gradients, [1, 1, 0], ["x"], ["x"])
    found = Agreement.of(sums)
    assert mean_["x"].tolist() == [1.5, 2] and found.mean_norm == 2.5
    assert (found.norms, found.cosines) == ([3, 4, 0], pytest.approx([0.6, 0.8, 0]))


# Outer steps


@pytest.mark.parametrize(
    ("rate", "momentum", "dtype"),
    [(0.7, 0.9, torch.float32), (0.7, 0.9, torch.float64), (1.0, 0.0, torch.float32)],
)
def test_an_outer_step_has_the_bits_of_torch(rate, momentum, dtype):
    start = random_weights(0, dtype)
    parameters = {name: torch.nn.Parameter(x.clone()) for name, x in start.items()}
    optimizer = SGD(parameters.values(), lr=rate, momentum=momentum, nesterov=momentum > 0)
    state = new_state(start)
    for step in range(STEPS):
        gradient = random_weights(step + 1, dtype)
        for name, p in parameters.items():
            p.grad = gradient[name].clone()
        optimizer.step()
        outer_step(state, gradient, rate, momentum)
    assert same_bits({n: p.detach() for n, p in parameters.items()}, state.params)
    if momentum:
        buffers = {n: optimizer.state[p]["momentum_buffer"] for n, p in parameters.items()}
        assert same_bits(buffers, state.momentum)


def test_a_step_changes_the_tensors_that_it_names_in_place():
    state = new_state(random_weights(0))
    before = {name: (x, x.clone()) for name, x in state.params.items()}
    outer_step(state, {"b": torch.ones(3)}, 0.7, 0.9)
    assert all(state.params[name] is tensor for name, (tensor, _) in before.items())
    assert torch.equal(state.params["a"], before["a"][1])
    torch.testing.assert_close(state.params["b"], before["b"][1] - 0.7 * 1.9)
    assert not state.momentum["a"].any()


# Streaming


def test_a_mixture_by_hand():
    """A quarter of 4, which the weight was, and three quarters of 2, which it is: 1 + 1.5."""
    weight = torch.nn.Parameter(torch.tensor([4.0]))
    with _mixed(weight, 0.25):
        weight.detach().fill_(2.0)
    assert weight.item() == 2.5


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=7),
    count=st.integers(1, 3),
    shuffled=st.randoms(use_true_random=False),
)
def test_fragments_are_near_the_best_of_all(sizes, count, shuffled):
    count = min(count, len(sizes))
    named = {f"w{i}": size for i, size in enumerate(sizes)}
    found = fragments(named, count)
    assert sorted(itertools.chain(*found)) == sorted(named) and all(found)
    best = min(
        max(sum(s for s, at in zip(sizes, places, strict=True) if at == i) for i in range(count))
        for places in itertools.product(range(count), repeat=len(sizes))
    )
    fullest = max(sum(named[name] for name in names) for names in found)
    assert best <= fullest <= best * (4 * count - 1) / (3 * count)
    order = list(named)
    shuffled.shuffle(order)
    assert fragments({name: named[name] for name in order}, count) == found


def test_fragments_by_hand():
    sizes = {"head": 10, "b": 4, "a": 4, "d": 3, "c": 3}
    assert fragments(sizes, 2) == (("head", "d"), ("a", "b", "c"))
    assert fragments(sizes, 5) == (("head",), ("a",), ("b",), ("c",), ("d",))
    with pytest.raises(ConfigError, match=r"workers\.fragments = 3: the weights are 2 tensors"):
        fragments({"a": 1, "b": 2}, 3)
