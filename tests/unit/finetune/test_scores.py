"""Scores against scikit-learn, on rows and on drawn rows; intervals and paired differences."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logit
from scipy.stats import spearmanr
from sklearn import metrics as sk

from carbon.finetune import metrics
from carbon.finetune.config import LOSSES_OF
from carbon.finetune.metrics import SCORES
from carbon.finetune.tasks import TASK_TYPES, LabelTask

SEEDS = st.integers(0, 10_000)
NUMBER = LabelTask("numbers", ("y",), "mse")


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    """Enough for the widths of intervals, in place of the few of other tests."""
    monkeypatch.setattr(metrics, "affordable_resamples", lambda num_samples: 150)


def sklearns(kind, names, said, truth):
    """Return each score of one column by scikit-learn; truth as whole numbers or numbers."""
    if kind == "numbers":
        return {
            "pearson": np.corrcoef(said[:, 0], truth)[0, 1],
            "spearman": spearmanr(said[:, 0], truth).statistic,
            "r2": sk.r2_score(truth, said[:, 0]),
            "mse": sk.mean_squared_error(truth, said[:, 0]),
        }
    hard = said.argmax(axis=1) if len(names) > 2 else said[:, 0] > 0.5
    found = {
        "mcc": sk.matthews_corrcoef(truth, hard),
        "macro_f1": sk.f1_score(truth, hard, average="macro"),
        "balanced_accuracy": sk.balanced_accuracy_score(truth, hard),
        "accuracy": sk.accuracy_score(truth, hard),
    }
    if kind == "binary":
        found["auroc"] = sk.roc_auc_score(truth, said[:, 0])
        found["auprc"] = sk.average_precision_score(truth, said[:, 0])
    if kind == "classes":
        there = [i for i in range(len(names)) if 0 < (truth == i).sum() < len(truth)]
        found["auroc"] = np.mean([sk.roc_auc_score(truth == i, said[:, i]) for i in there])
    if kind in ("classes", "bases"):
        each = [i for i in range(len(names)) if (truth == i).any()]
        found["auprc"] = np.mean([sk.average_precision_score(truth == i, said[:, i]) for i in each])
    if kind == "bases":
        each = sk.f1_score(truth, hard, average=None, labels=range(len(names)))
        there = np.isin(np.arange(len(names)), [*truth, *hard])
        found |= {
            f"f1[{n}]": f if t else np.nan for n, f, t in zip(names, each, there, strict=True)
        }
    return found


def example_of(kind, seed):
    random = np.random.default_rng(seed)
    num_rows, names = int(random.integers(6, 40)), tuple("abcd"[: 2 if kind == "binary" else 4])
    if kind == "numbers":
        truth = random.integers(-5, 6, num_rows).astype(float)
        return ("y",), (truth + random.integers(-3, 4, num_rows))[:, None], truth
    truth = random.integers(0, len(names), num_rows)
    if kind == "binary":
        # Few different probabilities, so that there are ties.
        return names, random.integers(0, 5, (num_rows, 1)) / 4.1, truth
    logits = random.normal(size=(num_rows, len(names))) + 2 * np.eye(len(names))[truth]
    said = np.exp(logits)
    return names, said / said.sum(axis=1, keepdims=True), truth


@pytest.mark.parametrize("kind", ["binary", "classes", "bases", "numbers"])
@settings(max_examples=8)
@given(seed=SEEDS)
def test_scores_are_those_of_scikit_learn(kind, seed):
    names, said, truth = example_of(kind, seed)
    statistics, rows = LabelTask(kind, names, "").statistics(
        logit(said) if kind == "binary" else said, truth[:, None].astype(float)
    )
    assert len(rows) == len(truth)
    drawn = np.random.default_rng(seed).integers(len(truth), size=len(truth))
    for chosen in (np.arange(len(truth)), drawn):
        if len(set(truth[chosen])) < 2 or np.ptp(said[chosen, 0]) == 0:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of classes that are not drawn
            expected = sklearns(kind, names, said[chosen], truth[chosen])
        weights = np.bincount(chosen, minlength=len(truth)).astype(float)
        found = {name: statistic(weights) for name, statistic in statistics.items()}
        assert found == pytest.approx(expected, nan_ok=True, abs=1e-12)


def test_scores_of_columns_are_of_the_rows_where_they_are_known():
    random = np.random.default_rng(1)
    said = random.random((40, 2))
    labels = (random.random((40, 2)) < 0.5).astype(float)
    labels[:10, 0] = np.nan
    labels[30:] = np.nan
    found = LabelTask("labels", ("a", "b"), "").scores(logit(said), labels)
    one = sk.roc_auc_score(labels[10:30, 0], said[10:30, 0])
    other = sk.roc_auc_score(labels[:30, 1], said[:30, 1])
    assert found["auroc[a]"].value == pytest.approx(one)
    assert found["auroc[b]"].value == pytest.approx(other)
    assert found["auroc"].value == pytest.approx((one + other) / 2)
    assert next(iter(found)) == "auroc"
    f1 = [sk.f1_score(labels[i:30, c], said[i:30, c] > 0.5) for c, i in ((0, 10), (1, 0))]
    assert found["f1"].value == pytest.approx(np.mean(f1))
    assert found["auroc"].num_samples == 30


def test_what_rows_do_not_define_is_not_a_number():
    assert np.isnan(LabelTask("binary", ("a", "b"), "").score(np.ones((3, 1)), np.ones((3, 1))))
    assert np.isnan(NUMBER.score(np.ones((3, 1)), np.arange(3.0)[:, None]))
    assert np.isnan(NUMBER.score(np.ones((0, 1)), np.ones((0, 1))))
    # All are said to be one class: no correlation, and not an unknown one.
    said, labels = np.tile([0.5, 0.3, 0.2], (4, 1)), np.array([[0.0], [1], [2], [0]])
    assert LabelTask("classes", ("a", "b", "c"), "").score(said, labels) == 0


def test_intervals_of_groups_are_wider_where_groups_agree():
    random = np.random.default_rng(2)
    of_group = np.repeat(random.normal(size=20), 25)
    labels = (of_group + 0.1 * random.normal(size=500))[:, None]
    said = labels + np.repeat(random.normal(size=20), 25)[:, None]
    groups = [str(i // 25) for i in range(500)]
    by_row = NUMBER.scores(said, labels)["pearson"]
    by_group = NUMBER.scores(said, labels, groups)["pearson"]
    assert by_row.value == by_group.value
    assert by_group.high - by_group.low > 2 * (by_row.high - by_row.low)
    assert by_row.low < by_row.value < by_row.high
    assert NUMBER.scores(said, labels, groups)["pearson"] == by_group


def test_differences_are_paired():
    random = np.random.default_rng(3)
    labels = random.normal(size=(300, 1))
    noise = random.normal(size=(300, 1))
    better, worse = labels + noise, labels + 1.05 * noise
    found = NUMBER.differences(better, worse, labels)["pearson"]
    alone = [NUMBER.scores(each, labels)["pearson"] for each in (better, worse)]
    assert found.value == pytest.approx(alone[0].value - alone[1].value)
    # The two overlap, and which is better is certain all the same.
    assert alone[1].high > alone[0].low and found.low > 0


def test_every_kind_has_scores(monkeypatch):
    monkeypatch.setattr(metrics, "affordable_resamples", lambda num_samples: 2)
    assert {name for of in TASK_TYPES.values() for name in of.scores} == set(SCORES)
    for kind, of in TASK_TYPES.items():
        task = LabelTask(kind, ("a", "b", "c")[: 2 if of.one_logit else 3], LOSSES_OF[kind][0])
        said = np.random.default_rng(0).random((30, task.num_outputs))
        labels = np.random.default_rng(1).integers(0, 2, (30, task.num_columns)).astype(float)
        scores = task.scores(said, labels)
        assert task.score(said, labels) == next(iter(scores.values())).value
