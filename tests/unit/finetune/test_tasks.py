"""Losses against loops, torch and finite differences; transforms; tasks as JSON."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.errors import UserError
from carbon.finetune.config import LOSSES_OF
from carbon.finetune.network import LOSSES, mean_loss
from carbon.finetune.tasks import TASK_TYPES, TRANSFORMS, LabelTask, Transform
from carbon.io.structured import parse_json

UNKNOWN = float("nan")


def slow_terms(task, logits, targets):
    """Return (loss, weight) of each known target, by plain Python."""
    terms = []
    for row_logits, row_targets in zip(logits.tolist(), targets.tolist(), strict=True):
        for column, target in enumerate(row_targets):
            if math.isnan(target):
                continue
            weights = task.class_weights
            if task.loss == "cross_entropy":
                top = max(row_logits)
                total = math.log(sum(math.exp(x - top) for x in row_logits)) + top
                value = total - row_logits[int(target)]
                weight = weights[int(target)] if weights else 1.0
            elif task.loss == "binary_cross_entropy":
                p = 1 / (1 + math.exp(-row_logits[column]))
                value = -math.log(p if target else 1 - p)
                positive = weights[1 if task.type == "binary" else column] if weights else 1.0
                negative = weights[0] if weights and task.type == "binary" else 1.0
                weight = positive if target else negative
            else:
                error, weight = row_logits[column] - target, 1.0
                value = error**2
                if task.loss == "huber":
                    value = value / 2 if abs(error) <= 1 else abs(error) - 0.5
            terms.append((value, weight))
    return terms


def slow_loss(task, logits, targets):
    if task.loss.startswith("correlation"):
        splits = []
        for x, y in zip(logits.T, targets.T, strict=True):
            known = ~np.isnan(y)
            splits.append(1 - np.corrcoef(x[known], y[known])[0, 1])
        value = float(np.mean(splits))
        if task.loss == "correlation_huber":
            other = LabelTask(task.type, task.names, "huber")
            value += 0.2 * slow_loss(other, logits, targets)
        return value
    terms = slow_terms(task, logits, targets)
    return sum(v * w for v, w in terms) / sum(w for _, w in terms)


CASES = [
    (kind, loss, weighted)
    for kind, of in TASK_TYPES.items()
    for loss in LOSSES_OF[kind]
    for weighted in ((False,) if of.is_number else (False, True))
]


def case_of(kind, loss, weighted, seed, num_rows=12):
    random = np.random.default_rng(seed)
    names = ("a", "b", "c")[: 2 if TASK_TYPES[kind].one_logit else 3]
    weights = tuple(random.uniform(0.2, 3, len(names)).tolist()) if weighted else ()
    task = LabelTask(kind, names, loss, class_weights=weights)
    logits = random.normal(size=(num_rows, task.num_outputs))
    if task.task_type.is_number:
        targets = random.normal(size=(num_rows, task.num_columns))
    else:
        most = len(names) if task.task_type.one_column and kind != "binary" else 2
        targets = random.integers(0, most, (num_rows, task.num_columns)).astype(float)
    targets[random.random(targets.shape) < 0.2] = UNKNOWN
    return task, logits, targets


@pytest.mark.parametrize(("kind", "loss", "weighted"), CASES)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000))
def test_losses_are_those_of_a_slow_loop(kind, loss, weighted, seed):
    task, logits, targets = case_of(kind, loss, weighted, seed)
    if np.isnan(targets).all() or (~np.isnan(targets)).sum(axis=0).min() < 3:
        return
    found = task.loss_of(torch.tensor(logits), torch.tensor(targets))
    assert found.item() == pytest.approx(slow_loss(task, logits, targets), rel=2e-5)


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_are_finite_differences_of_the_slow_loop(loss):
    kind = next(kind for kind, of, weighted in CASES if of == loss)
    task, logits, targets = case_of(kind, loss, not TASK_TYPES[kind].is_number, seed=5)
    at = torch.tensor(logits, requires_grad=True)
    task.loss_of(at, torch.tensor(targets)).backward()
    for row, column in ((0, 0), (3, logits.shape[1] - 1), (7, 0)):
        step = np.zeros_like(logits)
        step[row, column] = 1e-5
        ends = [slow_loss(task, logits + sign * step, targets) for sign in (1, -1)]
        expected = (ends[0] - ends[1]) / 2e-5
        assert at.grad[row, column].item() == pytest.approx(expected, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "loss", "weighted"), [case for case in CASES if "correlation" not in case[1]]
)
def test_accumulated_parts_give_the_loss_of_the_whole(kind, loss, weighted):
    task, logits, targets = case_of(kind, loss, weighted, seed=3)
    logits, targets = torch.tensor(logits), torch.tensor(targets)
    whole = task.loss_of(logits, targets)
    total = task.weights_of(targets).sum()
    splits = [(slice(0, 1), slice(1, 6), slice(6, 12)), (slice(0, 12),)]
    for each in splits:
        summed = sum(task.loss_of(logits[p], targets[p], total) for p in each)
        assert summed.item() == pytest.approx(whole.item(), rel=1e-6)


def test_a_correlation_of_fewer_than_three_rows_is_their_squared_error():
    logits = torch.tensor([[0.5, 0.0], [2.0, 1.0], [0.0, 2.0]], requires_grad=True)
    targets = torch.tensor([[1.0, 0.0], [UNKNOWN, 2.0], [3.0, 4.0]])
    loss = mean_loss("correlation", logits, targets, (~targets.isnan()).float())
    # First column (0.25 + 9) / 2, of the second r = 1.
    assert loss.item() == pytest.approx((9.25 / 2 + 0) / 2, abs=1e-6)
    loss.backward()
    assert logits.grad.isfinite().all() and logits.grad[0, 0] != 0


def test_rows_without_a_known_target_cost_nothing():
    for name in LOSSES:
        logits = torch.randn(4, 1, requires_grad=True)
        targets = torch.full((4, 1), UNKNOWN)
        loss = mean_loss(name, logits, targets, torch.zeros(4, 1))
        loss.backward()
        assert loss.item() == 0 and logits.grad.abs().sum() == 0


@pytest.mark.parametrize("name", TRANSFORMS)
@settings(max_examples=30)
@given(values=st.lists(st.floats(-0.875, 1e4, width=32), min_size=2, max_size=20))
def test_transforms_are_undone(name, values):
    labels = np.array([*values, UNKNOWN])
    if TRANSFORMS[name].standardised and np.std(TRANSFORMS[name].forward(labels[:-1])) == 0:
        return
    transform = Transform.fitted(name, labels, "y")
    changed = transform.apply(labels)
    assert np.isnan(changed[-1]) and not np.isnan(changed[:-1]).any()
    np.testing.assert_allclose(transform.undo(changed)[:-1], labels[:-1], rtol=1e-4, atol=1e-4)


def test_a_transform_is_fitted_to_known_labels_alone():
    transform = Transform.fitted("z_score", np.array([1.0, 2.0, 3.0, UNKNOWN]), "y")
    assert (transform.mean, transform.sd) == (2.0, pytest.approx(math.sqrt(2 / 3)))
    with pytest.raises(UserError, match="y: -2 has no log1p, which takes numbers above -1"):
        Transform.fitted("log1p", np.array([-2.0, 0.0]), "y")
    with pytest.raises(UserError, match="all 2 numbers to learn from are 4"):
        Transform.fitted("z_score", np.array([4.0, 4.0]), "y")


def test_predictions_are_in_the_unit_of_the_labels():
    transforms = (Transform("log1p", 0.0, 1.0), Transform("z_score", 10.0, 2.0))
    task = LabelTask("numbers", ("a", "b"), "mse", transforms)
    labels = np.array([[0.5, 11.0], [3.0, UNKNOWN]], dtype=np.float32)
    targets = task.targets(labels)
    assert targets[0].tolist() == pytest.approx([math.log(1.5), 0.5])
    logits = np.nan_to_num(targets)
    kept = logits.copy()
    expected = [[0.5, 11.0], [3.0, 10.0]]
    np.testing.assert_allclose(task.predictions(logits), expected, rtol=1e-6)
    np.testing.assert_array_equal(logits, kept)


def test_probabilities_do_not_overflow():
    far = np.array([[-1e4, 0.0, 1e4]])
    assert LabelTask("classes", "abc", "cross_entropy").predictions(far).tolist() == [[0, 0, 1]]
    labels = LabelTask("labels", "abc", "binary_cross_entropy")
    assert labels.predictions(far).tolist() == [[0, 0.5, 1]]


def test_a_task_is_the_same_after_json():
    transforms = (Transform("z_score", 0.1, 2.0), Transform("none"))
    for task in (
        LabelTask("numbers", ("a", "b"), "huber", transforms),
        LabelTask("binary", ("no", "yes"), "binary_cross_entropy", class_weights=(0.5, 2.0)),
    ):
        assert parse_json(json.dumps(task.to_json()), "task", LabelTask) == task
