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
from tests.helpers.learners import (
    Toy,
    batch_of,
    inner_step,
    largest_difference,
    load,
    new_state,
    same_bits,
    train_learners,
    weights_of,
)
from train.diloco.outer import (
    OuterStep,
    cosine,
    dot,
    fragments,
    mean_of,
    merged,
    mixed,
    norm,
    outer_gradient,
)

STEPS = 50
DTYPES = [(torch.float64, 1e-13), (torch.float32, 5e-6)]
AVERAGE = OuterStep(learning_rate=1.0, momentum=0.0)
NESTEROV = OuterStep(learning_rate=0.7, momentum=0.9)


def sgd(parameters):
    return SGD(parameters, lr=0.1)


def adamw(parameters):
    return AdamW(parameters, lr=0.01)


def joint(count):
    """Return batches of all learners in one, as data parallel training reads them."""

    def batch(learner, step, dtype=torch.float64):
        parts = [batch_of(i, step, dtype) for i in range(count)]
        return tuple(torch.cat(column) for column in zip(*parts, strict=True))

    return batch


def plain(optimizer_of, data, steps=STEPS, dtype=torch.float64):
    """Train one network without any outer step."""
    network = Toy(dtype)
    optimizer = optimizer_of(network.parameters())
    for step in range(1, steps + 1):
        inner_step(network, optimizer, data(0, step, dtype))
    return weights_of(network)


def random_weights(seed, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a": (7, 143), "b": (3,), "empty": (0, 4)}
    return {
        n: torch.randn(s, generator=generator, dtype=torch.float64).to(dtype)
        for n, s in shapes.items()
    }


# DiLoCo beside what it is equal to


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
def test_the_mean_after_each_step_of_sgd_is_data_parallel(dtype, tolerance):
    state, _ = train_learners(4, STEPS, 1, AVERAGE, sgd, dtype=dtype)
    assert largest_difference(state.anchor, plain(sgd, joint(4), dtype=dtype)) < tolerance
    assert state.momentum == state.pending == {}
    assert set(state.steps.values()) == {STEPS}


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
def test_outer_momentum_after_each_step_is_that_of_torch(dtype, tolerance):
    outer = OuterStep(learning_rate=1.0, momentum=0.9)

    def inner(parameters):
        return SGD(parameters, lr=0.02)

    def nesterov(parameters):
        return SGD(parameters, lr=0.02, momentum=0.9, nesterov=True)

    state, _ = train_learners(4, STEPS, 1, outer, inner, dtype=dtype)
    assert largest_difference(state.anchor, plain(nesterov, joint(4), dtype=dtype)) < tolerance
    assert largest_difference(state.anchor, plain(inner, joint(4), dtype=dtype)) > 0.01


def test_adamw_inside_is_the_mean_of_weights_and_not_data_parallel():
    networks = [Toy() for _ in range(3)]
    optimizers = [adamw(network.parameters()) for network in networks]
    for step in range(1, STEPS + 1):
        for i, (network, optimizer) in enumerate(zip(networks, optimizers, strict=True)):
            inner_step(network, optimizer, batch_of(i, step))
        own = [weights_of(network) for network in networks]
        mean = {n: torch.stack([weights[n] for weights in own]).mean(0) for n in own[0]}
        for network in networks:
            load(network, mean)
    state, _ = train_learners(3, STEPS, 1, AVERAGE, adamw)
    assert largest_difference(state.anchor, mean) < 1e-13
    assert largest_difference(state.anchor, plain(adamw, joint(3))) > 1e-3


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("every", [1, 10])
def test_one_learner_with_rate_one_is_plain_training(every, dtype, tolerance):
    state, _ = train_learners(1, STEPS, every, AVERAGE, adamw, dtype=dtype)
    assert largest_difference(state.anchor, plain(adamw, batch_of, dtype=dtype)) < tolerance


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
def test_one_learner_without_momentum_is_lookahead(dtype, tolerance):
    network = Toy(dtype)
    optimizer = adamw(network.parameters())
    slow = weights_of(network)
    for step in range(1, STEPS + 1):
        inner_step(network, optimizer, batch_of(0, step, dtype))
        if step % 5 == 0:
            fast = weights_of(network)
            slow = {name: slow[name] + 0.5 * (fast[name] - slow[name]) for name in slow}
            load(network, slow)
    state, _ = train_learners(1, STEPS, 5, OuterStep(0.5, 0.0), adamw, dtype=dtype)
    assert largest_difference(state.anchor, slow) < tolerance


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_four_learners_that_read_the_same_are_one(dtype):
    def same(learner, step, dtype):
        return batch_of(0, step, dtype)

    four, _ = train_learners(4, STEPS, 10, NESTEROV, adamw, dtype=dtype, data=same)
    one, _ = train_learners(1, STEPS, 10, NESTEROV, adamw, dtype=dtype)
    assert same_bits(four.anchor, one.anchor) and same_bits(four.momentum, one.momentum)


# What is merged


def test_merging_multiplies_and_adds_as_numpy_does():
    """To the bit in fp32, where a product that is not rounded before the sum would tell."""
    deltas = [random_weights(seed) for seed in range(3)]
    mean = merged(deltas, [3, 5, 9])
    for name in mean:
        expected = np.zeros(mean[name].shape, np.float32)
        for delta, weight in zip(deltas, (3, 5, 9), strict=True):
            expected = expected + delta[name].numpy() * np.float32(weight / 17)
        assert np.array_equal(mean[name].numpy(), expected)
    fused = sum(
        deltas[i]["a"].double() * float(np.float32(w / 17)) for i, w in enumerate((3, 5, 9))
    )
    assert not torch.equal(mean["a"], fused.float())


@given(
    weights=st.lists(st.integers(0, 10**9), min_size=1, max_size=5),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_a_weight_of_zero_is_absence(weights, dtype):
    deltas = [random_weights(seed, dtype) for seed in range(len(weights))]
    unread = {name: torch.full_like(x, math.nan) for name, x in deltas[0].items()}
    mean = merged([d if w else unread for d, w in zip(deltas, weights, strict=True)], weights)
    present = [(d, w) for d, w in zip(deltas, weights, strict=True) if w]
    if not present:
        assert all(not x.any() for x in mean.values())
        assert {n: x.shape for n, x in mean.items()} == {n: x.shape for n, x in deltas[0].items()}
    else:
        assert same_bits(mean, merged(*map(list, zip(*present, strict=True))))


def test_an_outer_gradient_points_to_the_anchor():
    anchor, local = random_weights(1), random_weights(2)
    del local["b"]
    delta = outer_gradient(anchor, local)
    assert delta.keys() == {"a", "empty"}
    assert torch.equal(delta["a"], anchor["a"] - local["a"])


# Outer steps


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("rate", "momentum"), [(0.7, 0.9), (1.0, 0.0), (0.4, 0.5)])
def test_an_outer_step_is_that_of_torch(rate, momentum, dtype):
    start = random_weights(0, dtype)
    parameters = {name: torch.nn.Parameter(x.clone()) for name, x in start.items()}
    optimizer = SGD(parameters.values(), lr=rate, momentum=momentum, nesterov=momentum > 0)
    state = new_state(start)
    for step in range(STEPS):
        delta = random_weights(step + 1, dtype)
        for name, p in parameters.items():
            p.grad = delta[name]
        optimizer.step()
        OuterStep(rate, momentum).step(state, delta)
    tolerance = 1e-12 if dtype == torch.float64 else 5e-4  # of weights of about 100
    assert largest_difference({n: p.detach() for n, p in parameters.items()}, state.anchor) < (
        tolerance
    )
    assert state.pending == {} and bool(state.momentum) == (momentum > 0)


def test_an_outer_step_multiplies_and_adds_as_numpy_does():
    """To the bit in fp32, delayed momentum included."""
    for every in (1, 3):
        state = new_state(random_weights(0))
        anchor = state.anchor["a"].numpy().copy()
        momentum, pending = np.zeros_like(anchor), np.zeros_like(anchor)
        rate, kept = np.float32(0.7), np.float32(0.9)
        for step in range(1, 8):
            delta = random_weights(step)
            OuterStep(0.7, 0.9, every).step(state, delta)
            gradient = delta["a"].numpy()
            update = gradient / np.float32(every)
            pending = pending + gradient
            if step % every == 0:
                momentum = momentum * kept + pending / np.float32(every)
                pending = np.zeros_like(pending)
                update = update + momentum * kept
            anchor = anchor - update * rate
        assert np.array_equal(state.anchor["a"].numpy(), anchor)
        assert np.array_equal(state.momentum["a"].numpy(), momentum)
        assert bool(state.pending) == (every > 1)


def test_a_step_changes_what_it_names_in_place():
    state = new_state(random_weights(0))
    before = {name: (x, x.clone()) for name, x in state.anchor.items()}
    NESTEROV.step(state, {"b": torch.ones(3)})
    assert all(state.anchor[name] is tensor for name, (tensor, _) in before.items())
    assert torch.equal(state.anchor["a"], before["a"][1])
    torch.testing.assert_close(state.anchor["b"], before["b"][1] - 0.7 * 1.9)
    assert state.steps == {"b": 1} and state.momentum.keys() == {"b"}


# Delayed Nesterov


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 1e-5)])
def test_learners_one_by_one_with_delayed_momentum_are_one_step_of_all(dtype, tolerance):
    """Algorithm 3 with N = K: K equal gradients do what their mean does at once."""
    together, apart = (new_state(random_weights(0, dtype)) for _ in range(2))
    for round_number in range(1, 6):
        delta = random_weights(round_number, dtype)
        NESTEROV.step(together, delta)
        for _ in range(4):
            OuterStep(0.7, 0.9, momentum_every=4).step(apart, delta)
        assert largest_difference(together.anchor, apart.anchor) < tolerance
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
        OuterStep(1.0, 0.5, momentum_every=2).step(state, {"w": torch.tensor([gradient])})
        seen.append((state.anchor["w"].item(), state.pending["w"].item()))
    assert seen == [(-1, 2), (-4.5, 0), (-7.5, 6), (-15.75, 0)]


# Streaming


def divided(count):
    sizes = {name: p.numel() for name, p in Toy().named_parameters()}
    return fragments(sizes, count)


def test_fragments_that_go_at_once_are_diloco():
    whole, _ = train_learners(2, STEPS, 10, NESTEROV, adamw)
    parts, own = train_learners(2, STEPS, 10, NESTEROV, adamw, parts=divided(3))
    assert same_bits(whole.anchor, parts.anchor) and same_bits(whole.momentum, parts.momentum)
    assert same_bits(own[0], own[1]) and same_bits(own[0], parts.anchor)


def test_fragments_in_turn_go_once_in_every_steps():
    state, own = train_learners(
        2, 40, 10, NESTEROV, adamw, parts=divided(3), offsets=(1, 4, 7), delay=2, alpha=0.5
    )
    assert set(state.steps.values()) == {3}
    assert largest_difference(own[0], own[1]) > 1e-3


# Two learners of weights x and y of 0, constant gradients 1 and 3, inner SGD with rate 0.1, H = 2,
# a delay of one step, outer rate 0.5, momentum 0.5, so that the anchor goes by 0.5 d + 0.25 m.
# x leaves at steps 2, 4, 6. The learners are then at -0.2 and -0.6, and the mean is 0.4: m = 0.4,
# and at step 3 the anchor is -(0.2 + 0.1) = -0.3, where the learners are at -0.3 and -0.9.
#   alpha 0: both go on from -0.3; 4: -0.4, -0.6, d = 0.2, m = 0.2 + 0.2; 5: -0.3 - 0.2 = -0.5;
#            6: -0.6, -0.8, d = 0.2, m = 0.4; 7: -0.7.
#   1/2:     from -0.3 and -0.6; 4: -0.4, -0.9, d = 0.35, m = 0.55; 5: -0.3 - 0.175 - 0.1375 =
#            -0.6125, the learners at (-0.5 - 0.6125)/2 and (-1.2 - 0.6125)/2; 6: -0.65625,
#            -1.20625, d = 0.31875, m = 0.59375; 7: -0.6125 - 0.159375 - 0.1484375 = -0.9203125.
#   1:       from -0.3 and -0.9; 4: -0.4, -1.2, d = 0.5, m = 0.7; 5: -0.3 - 0.25 - 0.175 = -0.725;
#            6: -0.6, -1.8, d = 0.475, m = 0.825; 7: -0.725 - 0.2375 - 0.20625 = -1.16875.
# y leaves at steps 3 and 5, of alpha 0: 3: -0.3, -0.9, d = m = 0.6; 4: -0.45; 5: -0.55, -0.75,
#            d = 0.2, m = 0.5; 6: -0.45 - 0.1 - 0.125 = -0.675.
BY_HAND = {0.0: (-0.3, -0.5, -0.7), 0.5: (-0.3, -0.6125, -0.9203125), 1.0: (-0.3, -0.725, -1.16875)}


def scalar_history(alpha, leaves, steps):
    outer = OuterStep(0.5, 0.5)
    state = new_state({"w": torch.zeros(1, dtype=torch.float64)})
    own, flying, seen = [{"w": torch.zeros(1, dtype=torch.float64)} for _ in range(2)], None, []
    for step in range(1, steps + 1):
        own = [{"w": w["w"] - 0.1 * g} for w, g in zip(own, (1, 3), strict=True)]
        if flying is not None:
            outer.step(state, flying)
            own, flying = [mixed(w, state.anchor, alpha) for w in own], None
            seen.append(state.anchor["w"].item())
        if step in leaves:
            flying = merged([outer_gradient(state.anchor, w) for w in own], [1, 1])
    return seen


@pytest.mark.parametrize("alpha", BY_HAND)
def test_late_outer_gradients_by_hand(alpha):
    assert scalar_history(alpha, (2, 4, 6), 7) == pytest.approx(BY_HAND[alpha], abs=1e-15)


def test_a_late_fragment_of_another_offset_by_hand():
    assert scalar_history(0.0, (3, 5), 6) == pytest.approx((-0.45, -0.675), abs=1e-15)


def test_numbers_of_this_learner_that_are_broken_leave_no_trace_with_alpha_zero():
    local, anchor = random_weights(1), random_weights(2)
    broken = {name: torch.full_like(x, math.nan) for name, x in local.items()}
    taken = mixed(broken, anchor, 0.0)
    assert same_bits(taken, anchor) and taken["a"] is not anchor["a"]


# Fragments


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


def test_more_fragments_than_tensors_are_refused():
    with pytest.raises(ConfigError, match=r"learners\.fragments = 3: the weights are 2 tensors"):
        fragments({"a": 1, "b": 2}, 3)


# Norms and angles


def test_norms_and_cosines():
    a = {"x": torch.tensor([3.0, 0.0]), "y": torch.tensor([[4.0]]), "empty": torch.zeros(0)}
    b = {"x": torch.tensor([0.0, 2.0]), "y": torch.tensor([[1.0]]), "empty": torch.zeros(0)}
    assert norm(a) == 5
    assert dot(a, b) == 4
    assert cosine(a, b) == pytest.approx(4 / (5 * math.sqrt(5)))
    assert cosine(a, {n: -2 * x for n, x in a.items()}) == pytest.approx(-1)
    assert cosine(a, {n: 0 * x for n, x in a.items()}) == 0


def test_norms_are_sums_of_fp64():
    """In fp32, 2^24 + 1 is 2^24, of one tensor as of several."""
    assert norm({"x": torch.tensor([4096.0, 1.0])}) ** 2 == pytest.approx(2**24 + 1, rel=1e-12)
    change = {"x": torch.tensor([4096.0]), "y": torch.tensor([1.0])}
    assert dot(change, change) == 2**24 + 1
    _, sums = mean_of([change, change], [1, 1], list(change), set(change))
    assert sums.tolist() == [[2**24 + 1] * 3] * 2
