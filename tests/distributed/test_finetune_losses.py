"""Losses of labels on two processes against one: values, and gradients as DDP averages them."""

import numpy as np
import pytest
import torch

from carbon.finetune.config import LOSSES_OF
from carbon.finetune.tasks import TASK_TYPES, LabelTask
from tests.helpers.ranks import run_ranks

ROWS = (0, 2, 11)  # of very unequal shares: two rows have no correlation of their own


def case_of(kind, loss):
    random = np.random.default_rng(7)
    names = ("a", "b", "c")[: 2 if TASK_TYPES[kind].one_logit else 3]
    weights = () if TASK_TYPES[kind].is_number else (0.5, 2.0, 1.5)[: len(names)]
    task = LabelTask(kind, names, loss, class_weights=weights)
    logits = random.normal(size=(ROWS[-1], task.num_outputs)).astype(np.float32)
    if task.task_type.is_number:
        targets = random.normal(size=(ROWS[-1], task.num_columns))
    else:
        targets = random.integers(0, 2, (ROWS[-1], task.num_columns)).astype(float)
    targets[4, 0] = np.nan
    return task, logits, targets.astype(np.float32)


CASES = [(kind, loss) for kind, losses in LOSSES_OF.items() for loss in losses]


def validate(ranks):
    """Return, of each case, this process's loss and its gradients."""
    rank = torch.distributed.get_rank()
    mine = slice(ROWS[rank], ROWS[rank + 1])
    found = {}
    for case in CASES:
        task, logits, targets = case_of(*case)
        here = torch.tensor(logits[mine], requires_grad=True)
        there = torch.tensor(targets[mine])
        loss = task.loss_of(here, there)
        loss.backward()
        # As if two such batches made one step.
        weight = task.weights_of(torch.tensor(targets)).sum()
        half = task.loss_of(here.detach(), there, 2 * weight)
        alone = task.loss_of(here.detach(), there, alone=True)
        found[case] = loss.item(), here.grad.numpy(), half.item(), alone.item()
    return found


def test_two_processes_have_the_loss_and_the_gradient_of_one():
    both = run_ranks(2, validate)
    for case in CASES:
        task, logits, targets = case_of(*case)
        whole = torch.tensor(logits, requires_grad=True)
        loss = task.loss_of(whole, torch.tensor(targets))
        loss.backward()
        values, gradients, halves, alone = zip(*(each[case] for each in both), strict=True)
        assert np.mean(values) == pytest.approx(loss.item(), rel=1e-5), case
        assert np.mean(halves) == pytest.approx(loss.item() / 2, rel=1e-5), case
        # DDP divides the sum of the gradients by the number of processes.
        np.testing.assert_allclose(
            np.concatenate(gradients) / 2, whole.grad, rtol=1e-4, atol=1e-7, err_msg=str(case)
        )
        for rank in range(2):
            mine = slice(ROWS[rank], ROWS[rank + 1])
            own = task.loss_of(torch.tensor(logits[mine]), torch.tensor(targets[mine]))
            assert alone[rank] == pytest.approx(own.item(), rel=1e-5), case
