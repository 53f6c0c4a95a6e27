"""Outer steps against torch's optimizers, plain loops, numpy, and sums by hand."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import SGD, AdamW

from carbon.errors import ConfigError
from tests.helpers.diloco import (
    Toy,
    batch_of,
    inner_step,
    largest_difference,
    load,
    mean,
    mixed,
    new_state,
    same_bits,
    take_outer_step,
    train_workers,
    weights_of,
)
from train.diloco.outer import Agreement, mean_of, pseudo_gradient, weighted_mean
from train.diloco.streaming import fragments

STEPS = 20
DTYPES = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 5e-6)]
)
AVERAGE, NESTEROV = (1.0, 0.0), (0.7, 0.9)


def sgd(parameters):
    return SGD(parameters, lr=0.1)


def adamw(parameters):
    return AdamW(parameters, lr=0.01)


def joint(count):
    """Return batches of all workers in one, as data parallel training reads them."""

    def batch(worker, step, dtype=torch.float64):
        parts = [batch_of(i, step, dtype) for i in range(count)]
        return tuple(torch.cat(column) for column in zip(*parts, strict=True))

    return batch


def plain(optimizer_of, data, dtype=torch.float64):
    """Train one network without any outer step."""
    network = Toy(dtype)
    optimizer = optimizer_of(network.parameters())
    for step in range(1, STEPS + 1):
        inner_step(network, optimizer, data(0, step, dtype))
    return weights_of(network)


def random_weights(seed, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a": (7, 143), "b": (3,), "empty": (0, 4)}
    return {
        n: torch.randn(s, generator=generator, dtype=torch.float64).to(dtype)
        for n, s in shapes.items()
    }


# DiLoCo and its equals


@DTYPES
def test_the_mean_after_each_step_of_sgd_is_data_parallel(dtype, tolerance):
    state, _ = train_workers(4, STEPS, 1, AVERAGE, sgd, dtype=dtype)
    assert largest_difference(state.params, plain(sgd, joint(4), dtype)) < tolerance


@DTYPES
def test_outer_momentum_after_each_step_is_nesterov_of_data_parallel(dtype, tolerance):
    def nesterov(parameters):
        return SGD(parameters, lr=0.02, momentum=0.9, nesterov=True)

    state, _ = train_workers(4, STEPS, 1, (1.0, 0.9), lambda p: SGD(p, lr=0.02), dtype=dtype)
    assert largest_difference(state.params, plain(nesterov, joint(4), dtype)) < tolerance


def test_adamw_inside_is_the_mean_of_weights_and_not_data_parallel():
    networks = [Toy() for _ in range(3)]
    optimizers = [adamw(network.parameters()) for network in networks]
    for step in range(1, STEPS + 1):
        for i, (network, optimizer) in enumerate(zip(networks, optimizers, strict=True)):
            inner_step(network, optimizer, batch_of(i, step))
        own = [weights_of(network) for network in networks]
        average = {n: torch.stack([weights[n] for weights in own]).mean(0) for n in own[0]}
        for network in networks:
            load(network, average)
    state, _ = train_workers(3, STEPS, 1, AVERAGE, adamw)
    assert largest_difference(state.params, average) < 1e-13
    assert largest_difference(state.params, plain(adamw, joint(3))) > 1e-3


@DTYPES
@pytest.mark.parametrize("every", [1, 10])
def test_one_worker_with_rate_one_is_plain_training(every, dtype, tolerance):
    state, _ = train_workers(1, STEPS, every, AVERAGE, adamw, dtype=dtype)
    assert largest_difference(state.params, plain(adamw, batch_of, dtype)) < tolerance


@DTYPES
def test_one_worker_without_momentum_is_lookahead(dtype, tolerance):
    network = Toy(dtype)
    optimizer = adamw(network.parameters())
    slow = weights_of(network)
    for step in range(1, STEPS + 1):
        inner_step(network, optimizer, batch_of(0, step, dtype))
        if step % 5 == 0:
            fast = weights_of(network)
            slow = {name: slow[name] + 0.5 * (fast[name] - slow[name]) for name in slow}
            load(network, slow)
    state, _ = train_workers(1, STEPS, 5, (0.5, 0.0), adamw, dtype=dtype)
    assert largest_difference(state.params, slow) < tolerance


def test_four_workers_that_read_the_same_are_one():
    def same(worker, step, dtype):
        return batch_of(0, step, dtype)

    four, _ = train_workers(4, STEPS, 10, NESTEROV, adamw, dtype=torch.float32, data=same)
    one, _ = train_workers(1, STEPS, 10, NESTEROV, adamw, dtype=torch.float32)
    assert same_bits(four.params, one.params) and same_bits(four.momentum, one.momentum)


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
        take_outer_step(state, gradient, rate, momentum)
    assert same_bits({n: p.detach() for n, p in parameters.items()}, state.params)
    if momentum:
        buffers = {n: optimizer.state[p]["momentum_buffer"] for n, p in parameters.items()}
        assert same_bits(buffers, state.momentum)


def test_a_step_changes_the_tensors_that_it_names_in_place():
    state = new_state(random_weights(0))
    before = {name: (x, x.clone()) for name, x in state.params.items()}
    take_outer_step(state, {"b": torch.ones(3)}, *NESTEROV)
    assert all(state.params[name] is tensor for name, (tensor, _) in before.items())
    assert torch.equal(state.params["a"], before["a"][1])
    torch.testing.assert_close(state.params["b"], before["b"][1] - 0.7 * 1.9)
    assert state.steps == {"b": 1} and not state.momentum["a"].any()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 2e-5)])
def test_workers_one_by_one_with_delayed_momentum_are_one_step_of_all(dtype, tolerance):
    """Algorithm 3 with N = K: K equal gradients do what their mean does at once."""
    together, apart = (new_state(random_weights(0, dtype)) for _ in range(2))
    for round_number in range(1, 6):
        gradient = random_weights(round_number, dtype)
        take_outer_step(together, gradient, *NESTEROV)
        for _ in range(4):
            take_outer_step(apart, gradient, *NESTEROV, every=4)
        assert largest_difference(together.params, apart.params) < tolerance
        assert not any(x.any() for x in apart.pending.values())
    assert largest_difference(together.momentum, apart.momentum) < tolerance


def test_delayed_momentum_by_hand():
    """N = 2, rate 1, b = 0.5, gradients 2, 4, 6, 8 of a weight of 0.

    1: -2/2                                        -> -1
    2: m = (2 + 4)/2 = 3;       -(0.5 * 3 + 4/2)   -> -4.5
    3: -6/2                                        -> -7.5
    4: m = 1.5 + (6 + 8)/2 = 8.5; -(0.5 * 8.5 + 4) -> -15.75
    """
    state = new_state({"w": torch.zeros(1)})
    seen = []
    for gradient in (2.0, 4.0, 6.0, 8.0):
        take_outer_step(state, {"w": torch.tensor([gradient])}, 1.0, 0.5, every=2)
        seen.append((state.params["w"].item(), state.pending["w"].item()))
    assert seen == [(-1, 2), (-4.5, 0), (-7.5, 6), (-15.75, 0)]


# Streaming


def divided(count):
    sizes = {name: p.numel() for name, p in Toy().named_parameters()}
    return fragments(sizes, count)


def test_fragments_that_go_at_once_are_diloco():
    whole, _ = train_workers(2, STEPS, 10, NESTEROV, adamw)
    parts, own = train_workers(2, STEPS, 10, NESTEROV, adamw, parts=divided(3))
    assert same_bits(whole.params, parts.params) and same_bits(whole.momentum, parts.momentum)
    assert same_bits(own[0], own[1]) and same_bits(own[0], parts.params)


# Two workers of weights x and y of 0, constant gradients 1 and 3, inner SGD with rate 0.1, H = 2,
# a delay of one step, outer rate 0.5, momentum 0.5, so that the outer parameter w goes by
# 0.5 d + 0.25 m.
# Sent at steps 2, 4, 6. The workers are then at -0.2 and -0.6, and the mean is 0.4: m = 0.4, and
# at step 3 w is -(0.2 + 0.1) = -0.3, where the workers are at -0.3 and -0.9.
#   alpha 0: both go on from -0.3; 4: -0.4, -0.6, d = 0.2, m = 0.2 + 0.2; 5: -0.3 - 0.2 = -0.5;
#            6: -0.6, -0.8, d = 0.2, m = 0.4; 7: -0.7.
#   1/2:     from -0.3 and -0.6; 4: -0.4, -0.9, d = 0.35, m = 0.55; 5: -0.3 - 0.175 - 0.1375 =
#            -0.6125, the workers at (-0.5 - 0.6125)/2 and (-1.2 - 0.6125)/2; 6: -0.65625,
#            -1.20625, d = 0.31875, m = 0.59375; 7: -0.6125 - 0.159375 - 0.1484375 = -0.9203125.
#   1:       from -0.3 and -0.9; 4: -0.4, -1.2, d = 0.5, m = 0.7; 5: -0.3 - 0.25 - 0.175 = -0.725;
#            6: -0.6, -1.8, d = 0.475, m = 0.825; 7: -0.725 - 0.2375 - 0.20625 = -1.16875.
# Sent at steps 3 and 5, alpha 0: 3: -0.3, -0.9, d = m = 0.6; 4: -0.45; 5: -0.55, -0.75,
#            d = 0.2, m = 0.5; 6: -0.45 - 0.1 - 0.125 = -0.675.
BY_HAND = [
    (0.0, (2, 4, 6), (-0.3, -0.5, -0.7)),
    (0.5, (2, 4, 6), (-0.3, -0.6125, -0.9203125)),
    (1.0, (2, 4, 6), (-0.3, -0.725, -1.16875)),
    (0.0, (3, 5), (-0.45, -0.675)),
]


@pytest.mark.parametrize(("alpha", "sends", "expected"), BY_HAND)
def test_late_pseudo_gradients_by_hand(alpha, sends, expected):
    state = new_state({"w": torch.zeros(1, dtype=torch.float64)})
    own, sent, seen = [{"w": torch.zeros(1, dtype=torch.float64)} for _ in range(2)], None, []
    for step in range(1, max(sends) + 2):
        own = [{"w": w["w"] - 0.1 * g} for w, g in zip(own, (1, 3), strict=True)]
        if sent is not None:
            take_outer_step(state, sent, 0.5, 0.5)
            own, sent = [mixed(w, state.params, alpha) for w in own], None
            seen.append(state.params["w"].item())
        if step in sends:
            sent = mean([pseudo_gradient(state.params, w) for w in own], [1, 1])
    assert seen == pytest.approx(expected, abs=1e-15)


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
