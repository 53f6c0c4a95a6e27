"""Training: schedules of examples, the selected checkpoint, dropout."""

import dataclasses

import numpy as np
import pytest
import torch

from carbon.errors import UserError
from carbon.finetune.checkpoints import trained_of
from carbon.finetune.config import MethodConfig
from carbon.finetune.predict import validate
from carbon.finetune.train import BatchSchedule, Dropout, train_weights
from tests.helpers.finetune import BASES, BINARY, NUMBERS, examples_of, finetuned_of

METHOD = MethodConfig(
    name="lora", epochs=1, batch=8, learning_rate=3e-3, dropout=0.0, warmup_share=0.1, rank=4
)


def training(base, folder, task, method):
    finetuned, _ = finetuned_of(base, task, method)
    examples = examples_of(task)
    splits = examples.split("train"), examples.split("validation")
    return finetuned, train_weights(finetuned, *splits, method, 0, folder), examples


@pytest.mark.parametrize(
    ("task", "name"),
    [(BINARY, "full"), (NUMBERS, "lora"), (BASES, "lora")],
    ids=["binary", "numbers", "bases"],
)
def test_a_step_of_one_part_and_of_many_is_the_same(tmp_path, base, task, name):
    weights, losses = [], []
    for micro_batch in (8, 3):
        method = METHOD.replace(name=name, micro_batch=micro_batch)
        finetuned, found, _ = training(base, tmp_path / str(micro_batch), task, method)
        weights.append(trained_of(finetuned.network))
        losses.append([validation_step.loss for validation_step in found.validations])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    for key, value in weights[0].items():
        torch.testing.assert_close(weights[1][key], value, atol=2e-4, rtol=1e-3, msg=key)


@pytest.mark.parametrize("task", [BINARY, NUMBERS], ids=lambda q: q.type)
def test_the_best_checkpoint_is_kept(tmp_path, base, task):
    method = METHOD.replace(epochs=4, validations_per_epoch=2, learning_rate=3e-2)
    finetuned, found, examples = training(base, tmp_path / "checkpoints", task, method)
    assert found.best.score == max(validation_step.score for validation_step in found.validations)
    validation = examples.split("validation")
    best = validate(finetuned, validation, method)
    assert best.score == pytest.approx(found.best.score, abs=1e-6)
    assert best.loss == pytest.approx(found.best.validation_loss, abs=1e-6)
    logits = torch.tensor(np.stack(finetuned.logits(validation.sequences)))
    labels = torch.tensor(validation.labels, dtype=torch.float64)
    by_hand = {  # the task has no transforms
        "binary": torch.nn.functional.binary_cross_entropy_with_logits,
        "numbers": torch.nn.functional.mse_loss,
    }[task.type](logits, labels)
    assert best.loss == pytest.approx(by_hand.item(), rel=1e-5)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["finished"]


def test_a_correlation_is_refused_in_microbatches(tmp_path, base):
    task = dataclasses.replace(NUMBERS, loss="correlation")
    with pytest.raises(UserError, match=r"method\.micro_batch = 8"):
        training(base, tmp_path, task, METHOD.replace(micro_batch=4))
    training(base, tmp_path, task, METHOD.replace(micro_batch=8))


@pytest.mark.parametrize(
    ("num_processes", "microbatches"), [(1, 1), (1, 3), (2, 1), (2, 3), (4, 5)]
)
def test_every_example_is_read_once_an_epoch(num_processes, microbatches):
    plan = BatchSchedule(num_examples=29, batch=8, seed=3, augment=True)
    read = []
    for rank in range(num_processes):
        shared = {"microbatches": microbatches, "rank": rank, "num_processes": num_processes}
        steps = dataclasses.replace(plan, **shared)
        share = list(steps.for_this_process(2))
        assert len(share) == steps.num_steps * microbatches and all(share)
        read += [key for batch in share for key in batch if key.counts]
    assert sorted(key.example for key in read) == list(range(29))
    assert sorted(read) == sorted(key for batch in plan.for_this_process(2) for key in batch)
    turned = [key.is_turned for key in read]
    assert any(turned) and not all(turned)


def test_each_epoch_and_seed_has_an_order_of_its_own():
    plan = BatchSchedule(num_examples=29, batch=8, seed=3, augment=True)
    orders = [
        [key.example for batch in steps.for_this_process(epoch) for key in batch]
        for steps, epoch in ((plan, 2), (plan, 3), (dataclasses.replace(plan, seed=4), 2))
    ]
    assert orders[0] not in orders[1:] and orders[1] != orders[2]


class TestDropout:
    @pytest.mark.parametrize(
        ("shape", "share"),
        [((1000, 301), 0.05), ((1000, 301), 0.5), ((7,), 0.5), ((3, 5, 2), 0.05)],
    )
    def test_a_share_is_zero_and_the_rest_grows(self, shape, share):
        torch.manual_seed(0)
        values = (torch.rand(shape) + 1).requires_grad_()
        found = Dropout(share)(values)
        kept = found != 0
        torch.testing.assert_close(found[kept], values[kept] / (1 - share), rtol=1e-4, atol=0)
        gradient = torch.rand(shape) + 1
        found.backward(gradient)
        expected = torch.where(kept, gradient / (1 - share), 0.0)
        torch.testing.assert_close(values.grad, expected, rtol=1e-4, atol=0)
        if kept.numel() > 1000:
            gone = (~kept).float()
            assert float(gone.mean()) == pytest.approx(share, abs=0.003)
            # Four draws come from one word: neighbours go together as often as chance has it.
            assert float((gone[:, 1:] * gone[:, :-1]).mean()) == pytest.approx(share**2, abs=0.002)

    def test_none_of_it_outside_of_training_and_the_same_by_a_seed(self):
        dropout, values = Dropout(0.3), torch.randn(50, 9)
        assert dropout.eval()(values) is values
        dropout.train()
        drawn = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            drawn.append(dropout(values))
        assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[1], drawn[2])

    def test_adapters_have_it(self, base):
        for share, number in ((0.1, 14), (0.0, 0)):
            finetuned, _ = finetuned_of(base, BINARY, MethodConfig(name="lora", dropout=share))
            there = [m for m in finetuned.network.modules() if isinstance(m, Dropout)]
            assert len(there) == number and not any(m.training for m in there)
