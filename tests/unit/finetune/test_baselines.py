"""Baselines against scikit-learn and counts by hand; every task type; the same twice."""

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, Ridge

from carbon.finetune import baselines
from carbon.finetune.baselines import FITS, CnnSettings, ConvNet, predict_cnn
from carbon.finetune.config import LOSSES_OF, TaskConfig
from carbon.finetune.data import fitted_task
from carbon.finetune.probe import LOGISTIC_C, RIDGE_ALPHA, fit_linear
from carbon.finetune.split import Examples, LabelledVariant
from carbon.finetune.tasks import LabelTask
from carbon.genome import Variant, reverse_complement
from tests.helpers.files import random_bases

MOTIF = "TATAAAAG"


def toy(kind, num=160, seed=0):
    """Return examples of which half have a motif, and labels that say so."""
    random = np.random.default_rng(seed)
    has = random.random(num) < 0.5
    sequences = []
    for i, there in enumerate(has):
        bases = random_bases(int(random.integers(40, 61)), seed=1000 * seed + i)
        sequences.append(bases[:20] + MOTIF + bases[28:] if there else bases)
    places = [there & (20 <= at < 28) for s, there in zip(sequences, has, strict=True)
              for at in range(len(s))]  # fmt: skip
    marks = np.array(places, dtype=float)[:, None]
    columns = {
        "binary": has[:, None],
        "classes": np.where(has, 2, random.integers(0, 2, num))[:, None],
        "labels": np.stack([has, ~has, random.random(num) < 0.5], axis=1),
        "numbers": np.stack([10 + has + 0.1 * random.normal(size=num), 3 * has], axis=1),
        "bases": marks,
        "tracks": 10 + marks,
    }
    return Examples(
        names=tuple(map(str, range(num))),
        sequences=tuple(sequences),
        labels=columns[kind].astype(np.float32),
        splits=tuple("train" if i % 2 else ("validation", "test")[i // 2 % 2] for i in range(num)),
        groups=("",) * num,
        per_base=kind in ("bases", "tracks"),
    )


def asked(kind, examples, **settings):
    numbers = {"binary": 2, "classes": 3, "labels": 3, "numbers": 2, "bases": 2, "tracks": 1}
    return fitted_task(TaskConfig(type=kind, **settings), "abc"[: numbers[kind]], examples)


@pytest.mark.parametrize("kind", LOSSES_OF)
def test_every_baseline_fits_every_task_and_predicts_the_same_twice(kind, monkeypatch):
    monkeypatch.setattr(baselines, "CnnSettings", partial(CnnSettings, most_epochs=4))
    examples = toy(kind)
    task = asked(kind, examples)
    train, validation, test = (examples.split(part) for part in ("train", "validation", "test"))
    scores = {}
    for name, fit in FITS.items():
        if name == "delta":  # of variants; see below
            continue
        said = fit(train, validation, task, 1)(test)
        assert said.shape == (len(test.labels), task.num_outputs)
        assert np.isfinite(said).all()
        if kind in ("classes", "bases"):  # log-odds
            np.testing.assert_allclose(expit(said).sum(axis=1), 1, rtol=1e-5)
        scores[name] = task.score(said, test.labels)
        if kind == "binary":
            np.testing.assert_array_equal(fit(train, validation, task, 1)(test), said)
    # What reads the sequence finds the motif, where enough of the examples have it.
    floor = {"binary": 0.8, "classes": 0.3, "labels": 0.6, "numbers": 0.5}.get(kind, 0.3)
    assert scores["kmers"] > floor, scores


def test_delta_is_a_logistic_regression_of_one_number():
    """Its ranks are those of the deltas, with the sign that the train split shows."""
    examples = toy("binary")
    deltas = 0.5 - examples.labels[:, 0] + np.random.default_rng(0).normal(0, 0.7, len(examples))
    variants = [LabelledVariant(Variant("c", n, "A", "C"), delta=d) for n, d in enumerate(deltas)]
    examples = replace(examples, variants=tuple(variants))
    train, validation, test = (examples.split(part) for part in ("train", "validation", "test"))
    said = FITS["delta"](train, validation, asked("binary", examples), 0)(test)
    expected = np.array([-each.delta for each in test.variants])
    assert (np.argsort(said[:, 0], kind="stable") == np.argsort(expected, kind="stable")).all()


def test_constants_are_shares_and_means_of_train():
    examples = toy("classes")
    train, test = examples.split("train"), examples.split("test")
    task = asked("classes", examples)
    said = FITS["constant"](train, train, task, 0)(test)
    counts = Counter(train.labels[:, 0].tolist())
    expected = [counts[i] / len(train) for i in (0.0, 1.0, 2.0)]
    np.testing.assert_allclose(expit(said), np.tile(expected, (len(test), 1)), rtol=1e-6)
    numbers = toy("numbers").split("train")
    said = FITS["constant"](numbers, numbers, asked("numbers", toy("numbers")), 0)(numbers)
    np.testing.assert_allclose(said[0], numbers.labels.mean(axis=0), rtol=1e-6)


def test_kmers_are_counted_on_both_strands():
    sequences = ["ACGTTGCANNACCA", random_bases(70, seed=3).lower().upper()]
    examples = toy("binary").subset([0, 1])
    object.__setattr__(examples, "sequences", tuple(sequences))
    found = np.expm1(baselines.kmers(examples).astype(np.float64))
    assert found.shape[1] == 2 + 10 + 32 + 136 + 512 + 2080
    for sequence, counts in zip(sequences, found, strict=True):
        start = 0
        for k, number in enumerate((2, 10, 32, 136, 512, 2080), start=1):
            kmers = [sequence[i : i + k] for i in range(len(sequence) - k + 1)]
            by_hand = Counter(min(x, reverse_complement(x)) for x in kmers if "N" not in x)
            there = counts[start : start + number]
            assert sorted(there[there > 0].round().tolist()) == sorted(by_hand.values())
            start += number
    turned = toy("binary").subset([0, 1])
    object.__setattr__(turned, "sequences", tuple(map(reverse_complement, sequences)))
    np.testing.assert_array_equal(baselines.kmers(turned), baselines.kmers(examples))


def test_composition_is_length_gc_and_unknown():
    examples = toy("binary").subset([0, 1])
    object.__setattr__(examples, "sequences", ("GGCANN", "NNNN"))
    expected = [[np.log(6), 0.75, 2 / 6], [np.log(4), 0.5, 1.0]]
    np.testing.assert_allclose(baselines.composition(examples), expected, rtol=1e-6)


def standardised(x):
    return (x - x.mean(axis=0)) / x.std(axis=0)


def test_a_column_may_lack_classes():
    """Three bases a row: of the second two classes are there, of the third one."""
    random = np.random.default_rng(5)
    x = random.normal(size=(200, 5)).astype(np.float32)
    classes = np.digitize(x[:, 0] + random.normal(size=200), [-0.5, 0.5])
    columns = [classes, 2 * (x[:, 1] + random.normal(size=200) > 0), np.full(200, 1)]
    labels = np.stack(columns, axis=1).astype(np.float32)
    task = LabelTask("bases", ("a", "b", "c"), "cross_entropy")
    found = fit_linear((x, labels), (x, labels), task)
    said = task.predictions(found.linear.logits(x).reshape(-1, 3)).reshape(200, 3, 3)
    theirs = LogisticRegression(C=found.strength, tol=1e-8).fit(standardised(x), labels[:, 1])
    np.testing.assert_allclose(
        said[:, 1][:, [0, 2]], theirs.predict_proba(standardised(x)), atol=5e-3
    )
    assert said[:, 1, 1].max() < 1e-6 and said[:, 2, 1].min() > 1 - 1e-6
    assert (said[:, 0].argmax(axis=1) == classes).mean() > 0.5


@pytest.mark.parametrize("kind", ["binary", "classes"])
def test_logistic_regression_is_that_of_scikit_learn(kind):
    random = np.random.default_rng(4)
    x = (random.normal(size=(200, 5)) * [1, 10, 0.1, 1, 1] + 3).astype(np.float32)
    y = (x[:, 0] + 0.1 * x[:, 1] + random.normal(size=200) > 3.3).astype(int)
    y += (kind == "classes") * (x[:, 3] > 3.5)
    labels = y[:, None].astype(np.float32)
    task = LabelTask(kind, "abc"[: y.max() + 1], LOSSES_OF[kind][0])
    found = fit_linear((x, labels), (x, labels), task)
    assert found.strength in LOGISTIC_C
    theirs = LogisticRegression(C=found.strength, max_iter=1000).fit(standardised(x), y)
    said = task.predictions(found.linear.logits(x))
    expected = theirs.predict_proba(standardised(x))[:, -task.num_outputs :]
    np.testing.assert_allclose(said, expected, atol=5e-3)
    assert found.score == task.score(task.unsaturated(found.linear.logits(x)), labels)


@pytest.mark.parametrize("gap", [False, True])
def test_ridge_regression_is_that_of_scikit_learn(gap):
    random = np.random.default_rng(5)
    x = (random.normal(size=(80, 6)) + 100 * np.eye(6)[1]).astype(np.float32)
    labels = (x[:, :2] @ random.normal(size=(2, 2)) + 50).astype(np.float32)
    labels += random.normal(size=labels.shape).astype(np.float32)
    if gap:
        labels[:20, 0] = np.nan
    task = LabelTask("numbers", ("a", "b"), "mse")
    found = fit_linear((x, labels), (x, labels), task)
    assert found.strength in RIDGE_ALPHA
    said = found.linear.logits(x)
    for column in range(2):
        known = ~np.isnan(labels[:, column])
        theirs = Ridge(alpha=found.strength).fit(standardised(x)[known], labels[known, column])
        np.testing.assert_allclose(
            said[:, column], theirs.predict(standardised(x)), rtol=2e-4, atol=2e-3
        )


@pytest.mark.parametrize("per_base", [False, True])
def test_an_answer_of_the_network_knows_nothing_of_its_neighbours_or_of_the_strand(per_base):
    torch.manual_seed(0)
    cnn = ConvNet(2, per_base, CnnSettings())
    for norm in cnn._norms:  # as after learning: zeros do not stay zeros
        norm.running_mean.uniform_(-1, 1)
        norm.bias.data.uniform_(-1, 1)
    kind = "bases" if per_base else "labels"
    task = LabelTask(kind, ("a", "b"), LOSSES_OF[kind][0])
    sequences = [random_bases(n, seed=n) for n in (7, 61, 33, 120)]

    def said(of):
        labels = np.zeros((sum(map(len, of)) if per_base else len(of), 1), dtype=np.float32)
        names = tuple(map(str, range(len(of))))
        examples = Examples(names, tuple(of), labels, names, names, per_base)
        found = predict_cnn(cnn, examples, task)
        return [found[examples.rows_of(i)] for i in range(len(of))]

    together = said(sequences)
    for sequence, found in zip(sequences, together, strict=True):
        np.testing.assert_allclose(said([sequence])[0], found, atol=1e-6)
        turned = said([reverse_complement(sequence)])[0]
        np.testing.assert_allclose(turned[::-1] if per_base else turned, found, atol=1e-6)
    assert np.abs(together[0][0] - together[1][0]).max() > 1e-3
