"""Training: order of examples, microbatches, the selected checkpoint, dropout."""

import dataclasses

import numpy as np
import pytest
import torch

from carbon.errors import UserError
from carbon.finetune.config import MethodConfig
from carbon.finetune.predict import validate
from carbon.finetune.train import StepSampler, train_weights, trained_of
from tests.helpers.finetune import BASES, BINARY, NUMBERS, examples_of, finetuned_of

METHOD = MethodConfig(
    name="lora", epochs=0.7, batch=8, learning_rate=3e-3, dropout=0.0, warmup_share=0.1, rank=4
)


def training(base, folder, task, method):
    finetuned, _ = finetuned_of(base, task, method)
    examples = examples_of(task)
    splits = examples.split("train"), examples.split("validation")
    return finetuned, train_weights(finetuned, *splits, method, 0, folder), examples


@pytest.mark.parametrize(("task", "name"), [(BINARY, "full"), (BASES, "lora")], ids=["one", "all"])
def test_a_step_of_one_part_and_of_many_is_the_same(tmp_path, base, task, name):
    weights, losses = [], []
    for micro_batch in (8, 3):
        method = METHOD.replace(name=name, micro_batch=micro_batch)
        finetuned, found, _ = training(base, tmp_path / str(micro_batch), task, method)
        weights.append(trained_of(finetuned.network))
        losses.append([each.loss for each in found.validations])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    for key, value in weights[0].items():
        torch.testing.assert_close(weights[1][key], value, atol=2e-4, rtol=1e-3, msg=key)


def test_the_best_checkpoint_is_kept(tmp_path, base):
    method = METHOD.replace(epochs=2, validations_per_epoch=2, learning_rate=3e-2)
    finetuned, found, examples = training(base, tmp_path / "checkpoints", NUMBERS, method)
    assert found.best.score == max(each.score for each in found.validations)
    validation = examples.split("validation")
    best = validate(finetuned, validation, method)
    assert best.score == pytest.approx(found.best.score, abs=1e-6)
    assert best.loss == pytest.approx(found.best.validation_loss, abs=1e-6)
    logits = np.stack(finetuned.logits(validation.sequences))
    assert best.loss == pytest.approx(np.mean((logits - validation.labels) ** 2), rel=1e-5)
    assert not list((tmp_path / "checkpoints").glob("*/optimizer.pt"))


def test_a_correlation_is_refused_in_microbatches(tmp_path, base):
    task = dataclasses.replace(NUMBERS, loss="correlation")
    with pytest.raises(UserError, match=r"method\.micro_batch = 8"):
        training(base, tmp_path, task, METHOD.replace(micro_batch=4))


def read_in_epoch(sampler, epoch, **changes):
    sampler = dataclasses.replace(sampler, epoch=epoch, **changes)
    microbatches = list(sampler)
    assert len(microbatches) == len(sampler) and all(microbatches)
    return [key for microbatch in microbatches for key in microbatch if key.counts]


@pytest.mark.parametrize(("num_processes", "microbatches"), [(1, 3), (2, 1), (4, 5)])
def test_every_example_is_read_once_an_epoch(num_processes, microbatches):
    sampler = StepSampler(num_examples=29, batch=8, seed=3, augment=True)
    read = []
    for rank in range(num_processes):
        shared = {"microbatches": microbatches, "rank": rank, "num_processes": num_processes}
        read += read_in_epoch(sampler, 2, **shared)
    assert sorted(key.example for key in read) == list(range(29))
    assert sorted(read) == sorted(read_in_epoch(sampler, 2))
    turned = [key.is_turned for key in read]
    assert any(turned) and not all(turned)


def test_each_epoch_and_seed_has_its_own_order():
    sampler = StepSampler(num_examples=29, batch=8, seed=3, augment=True)
    first, second = read_in_epoch(sampler, 2), read_in_epoch(sampler, 3)
    assert first != second and read_in_epoch(sampler, 2, seed=4) not in (first, second)


def test_adapters_have_dropout(base):
    for share, number in ((0.1, 14), (0.0, 0)):
        finetuned, _ = finetuned_of(base, BINARY, MethodConfig(name="lora", dropout=share))
        found = [m for m in finetuned.network.modules() if isinstance(m, torch.nn.Dropout)]
        assert [m.p for m in found] == [share] * number and not any(m.training for m in found)
