"""Tuning: steps cut and dealt out any way, checkpoints, resumption."""

import dataclasses
import shutil

import numpy as np
import pytest
import torch

from carbon.adapt import tuning
from carbon.adapt.checkpoints import trained_of
from carbon.adapt.config import WayConfig
from carbon.adapt.measuring import measured
from carbon.adapt.plan import Steps
from carbon.adapt.tuning import tune
from carbon.errors import UserError
from tests.helpers.adapt import BASES, BINARY, NUMBERS, adapted_of, base_folder, examples_of

WAY = WayConfig(
    name="lora", epochs=2, batch=8, learning_rate=3e-3, dropout=0.0, warmup_share=0.1, rank=4
)


def tuned(tmp_path, network, question, way=WAY, seed=0, **options):
    adapted, _ = adapted_of(base_folder(tmp_path, network), question, way)
    examples = examples_of(question)
    if not options.get("resume"):
        shutil.rmtree(tmp_path / "checkpoints", ignore_errors=True)
    found = tune(
        adapted,
        examples.part("train"),
        examples.part("validation"),
        way,
        seed,
        tmp_path / "checkpoints",
        **options,
    )
    return adapted, found, examples


@pytest.mark.parametrize("name", ["lora", "full"])
@pytest.mark.parametrize("question", [BINARY, NUMBERS, BASES], ids=lambda q: q.kind)
def test_a_step_of_one_part_and_of_many_is_the_same(tmp_path, network, question, name):
    weights, losses = [], []
    for micro_batch in (8, 2, 3):
        way = dataclasses.replace(WAY, name=name, micro_batch=micro_batch, epochs=1)
        adapted, found, _ = tuned(tmp_path, network, question, way)
        weights.append(trained_of(adapted.network))
        losses.append([look.loss for look in found.looks])
    for other, other_losses in zip(weights[1:], losses[1:], strict=True):
        np.testing.assert_allclose(other_losses, losses[0], rtol=1e-4)
        for key, value in weights[0].items():
            torch.testing.assert_close(other[key], value, atol=2e-4, rtol=1e-3, msg=key)


def test_the_same_numbers_twice_and_others_by_another_seed(tmp_path, network):
    runs = [tuned(tmp_path, network, BINARY, seed=seed) for seed in (0, 0, 1)]
    first, again, other = (trained_of(adapted.network) for adapted, _, _ in runs)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)
    assert runs[0][1] == runs[1][1]


@pytest.mark.parametrize("question", [BINARY, NUMBERS], ids=lambda q: q.kind)
def test_the_best_look_is_what_is_kept(tmp_path, network, question):
    way = dataclasses.replace(WAY, epochs=4, looks_per_epoch=2, learning_rate=3e-2)
    adapted, found, examples = tuned(tmp_path, network, question, way)
    assert found.best.score == max(look.score for look in found.looks)
    validation = examples.part("validation")
    assert measured(adapted, validation, way).score == pytest.approx(found.best.score, abs=1e-6)
    best = measured(adapted, validation, way)
    assert best.loss == pytest.approx(found.best.validation_loss, abs=1e-6)
    logits = torch.tensor(np.stack(adapted.logits(validation.sequences)))
    labels = torch.tensor(validation.labels, dtype=torch.float64)
    by_hand = {  # the question has no transforms
        "binary": torch.nn.functional.binary_cross_entropy_with_logits,
        "numbers": torch.nn.functional.mse_loss,
    }[question.kind](logits, labels)
    assert best.loss == pytest.approx(by_hand.item(), rel=1e-5)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["finished"]


def test_a_tuning_that_ended_is_not_tuned_again(tmp_path, network, monkeypatch):
    first, found, _ = tuned(tmp_path, network, BINARY)
    monkeypatch.setattr(tuning, "_Trainer", None)  # calling it would fail
    again, ended, _ = tuned(tmp_path, network, BINARY, resume=True)
    assert ended == found
    ours, theirs = (trained_of(a.network) for a in (again, first))
    assert all(torch.equal(ours[key], theirs[key]) for key in ours | theirs)


@pytest.mark.parametrize("loss", NUMBERS.of_kind.losses)
def test_a_correlation_is_refused_in_parts(tmp_path, network, loss):
    question = dataclasses.replace(NUMBERS, loss=loss)
    way = dataclasses.replace(WAY, micro_batch=4, epochs=1)
    if "correlation" not in loss:
        tuned(tmp_path, network, question, way)
        return
    with pytest.raises(UserError, match=r"read in 2 parts; set way\.micro_batch = 8"):
        tuned(tmp_path, network, question, way)
    tuned(tmp_path, network, question, dataclasses.replace(way, micro_batch=8))


def test_going_on_gives_the_same_as_not_stopping(tmp_path, network, monkeypatch):
    way = dataclasses.replace(WAY, epochs=3, micro_batch=4)
    whole, found, _ = tuned(tmp_path, network, BINARY, way)

    class Stop(Exception):
        pass

    def score(*args):
        if calls:
            raise Stop
        calls.append(1)
        return measured(*args)

    calls = []
    with monkeypatch.context() as patch:
        patch.setattr(tuning, "measured", score)
        with pytest.raises(Stop):
            tuned(tmp_path, network, BINARY, way)
    assert (tmp_path / "checkpoints").exists()
    again, resumed, _ = tuned(tmp_path, network, BINARY, way, resume=True)
    assert [look.score for look in resumed.looks] == [look.score for look in found.looks]
    ours, theirs = (trained_of(a.network) for a in (again, whole))
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.parametrize(("num_processes", "parts"), [(1, 1), (1, 3), (2, 1), (2, 3), (4, 5)])
def test_every_example_is_read_once_an_epoch(num_processes, parts):
    read = []
    for rank in range(num_processes):
        steps = Steps(
            num_examples=29,
            batch=8,
            seed=3,
            augment=True,
            parts=parts,
            rank=rank,
            num_processes=num_processes,
        )
        mine = list(steps.mine(2))
        assert len(mine) == steps.num_steps * parts and all(mine)
        read += [key for part in mine for key in part if key.counts]
    assert sorted(key.example for key in read) == list(range(29))
    whole = Steps(num_examples=29, batch=8, seed=3, augment=True)
    assert sorted(read) == sorted(key for part in whole.mine(2) for key in part)
    turned = [key.is_turned for key in read]
    assert any(turned) and not all(turned)
    assert [k.example for p in whole.mine(2) for k in p] != [
        k.example for p in whole.mine(3) for k in p
    ]
