"""Metrics against scikit-learn, bootstraps against theory and against drawing by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    auc,
    average_precision_score,
    precision_recall_curve,
    roc_auc_score,
    roc_curve,
)

from carbon.errors import UserError
from carbon.metrics import auprc_trapezoid, auroc, average_precision, weighted_average_precision
from carbon.uncertainty import bootstrap, difference, inside_noise, mean_of, ratio
from eval.metrics import METRICS, curves_of, summary_of

# Few different scores, so that there are ties within and between labels.
PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 1)), min_size=2, max_size=40).filter(
    lambda pairs: len({label for _, label in pairs}) == 2
)


def trapezoid(labels, scores, weights):
    precision, recall, _ = precision_recall_curve(labels, scores, sample_weight=weights)
    return auc(recall, precision)


def sklearns(metric):
    return {
        auroc: lambda y, s, w: roc_auc_score(y, s, sample_weight=w),
        average_precision: lambda y, s, w: average_precision_score(y, s, sample_weight=w),
        auprc_trapezoid: trapezoid,
    }[metric]


@pytest.mark.parametrize("metric", [auroc, average_precision, auprc_trapezoid])
@settings(max_examples=40)
@given(pairs=PAIRS, data=st.data())
def test_metrics_are_those_of_scikit_learn(metric, pairs, data):
    scores = np.array([score for score, _ in pairs], dtype=float)
    labels = np.array([label for _, label in pairs])
    ours = metric(scores, labels)
    ones = np.ones(len(pairs))
    assert ours(ones) == pytest.approx(sklearns(metric)(labels, scores, ones))
    drawn = data.draw(st.lists(st.integers(0, len(pairs) - 1), min_size=2, max_size=40))
    weights = np.bincount(drawn, minlength=len(pairs)).astype(float)
    if len(set(labels[drawn])) < 2:
        assert metric is not auroc or np.isnan(ours(weights))
        return
    # A weight of n is the sample n times over.
    expected = sklearns(metric)(labels[drawn], scores[drawn], np.ones(len(drawn)))
    assert ours(weights) == pytest.approx(expected)


def test_average_precision_by_chromosome():
    random = np.random.default_rng(0)
    scores, labels = random.normal(size=60), (random.random(60) < 0.3).astype(int)
    chromosomes = np.array([f"chr{n % 4}" for n in range(60)])
    labels[chromosomes == "chr3"] = 0  # no positive: no average precision, no weight
    parts = [(scores[chromosomes == c], labels[chromosomes == c]) for c in ("chr0", "chr1", "chr2")]
    expected = np.average(
        [average_precision_score(y, s) for s, y in parts], weights=[len(y) for _, y in parts]
    )
    ours = weighted_average_precision(scores, labels, list(chromosomes))
    assert ours(np.ones(60)) == pytest.approx(expected)
    # chr0 drawn twice, chr1 once and chr2 not at all
    weights = np.select([chromosomes == "chr0", chromosomes == "chr1"], [2.0, 1.0], 0.0)
    first, second = (average_precision_score(y, s) for s, y in parts[:2])
    assert ours(weights) == pytest.approx((2 * first + second) / 3)


def test_curves_are_those_of_scikit_learn():
    random = np.random.default_rng(1)
    scores, labels = random.integers(0, 9, 50).astype(float), random.integers(0, 2, 50)
    rows = [{"score": s, "label": int(y)} for s, y in zip(scores, labels, strict=True)]
    curves = curves_of(rows)
    false, true, _ = roc_curve(labels, scores, drop_intermediate=False)
    assert curves["roc"].x == pytest.approx(false, abs=1e-6)
    assert curves["roc"].y == pytest.approx(true, abs=1e-6)
    precision, recall, _ = precision_recall_curve(labels, scores)
    assert curves["precision_recall"].x == pytest.approx(recall[::-1], abs=1e-6)
    assert curves["precision_recall"].y == pytest.approx(precision[::-1], abs=1e-6)
    many = curves_of([{"score": n * 37 % 5003, "label": n % 2} for n in range(5000)])["roc"]
    assert len(many.x) <= 401  # thinned, with its ends
    assert (many.x[0], many.y[0], many.x[-1], many.y[-1]) == (0, 0, 1, 1)


def test_a_paired_comparison_of_equals_is_inside_the_noise():
    random = np.random.default_rng(5)
    hard = random.normal(0, 10, 300)
    first, second = mean_of(hard + random.normal(1, 0.5, 300)), mean_of(hard)
    found, same = difference(first, second, 300), difference(second, second, 300)
    assert found.high - found.low < 0.2 and not inside_noise(found)
    assert same[:3] == (0, 0, 0) and inside_noise(same)


def test_clusters_of_unequal_size_against_drawing_by_hand():
    values = np.array([0.0, 0, 0, 1, 1, 5])
    names = ["a", "a", "a", "b", "b", "c"]
    found = bootstrap(mean_of(values), 6, seed=4, clusters=names)
    random = np.random.default_rng(4)
    members = [values[:3], values[3:5], values[5:]]
    draws = []
    for _ in range(1000):
        chosen = random.integers(3, size=3)
        draws.append(np.concatenate([members[n] for n in chosen]).mean())
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(draws, [2.5, 97.5])))


def test_one_label_is_refused_and_a_group_of_one_label_left_out():
    rows = [{"score": n / 9, "label": n % 2, "group": "ab"[n < 4], "chrom": "1"} for n in range(9)]
    summary = summary_of(rows, "auroc", others=("average_precision",))
    assert set(summary.groups["group"]) == {"a", "b"} and set(summary.others)
    assert summary.groups["group"]["a"].num_samples == 5
    alone = [{**row, "label": 1} if row["group"] == "a" else row for row in rows]
    assert summary_of(alone, "auroc").groups == {}
    with pytest.raises(UserError, match="9 examples, only label 1: both labels are needed"):
        summary_of([{**row, "label": 1} for row in rows], "auroc")


@pytest.mark.parametrize("name", [name for name, each in METRICS.items() if each.is_labelled])
def test_one_who_knows_gets_one_and_lots_get_chance(name):
    random = np.random.default_rng(6)
    labels = (random.random(4000) < 0.25).astype(int)
    rows = [
        {"label": int(y), "chrom": str(n % 5), "set": str(n % 3), "score": float(y)}
        for n, y in enumerate(labels)
    ]
    ones = np.ones(4000)
    assert METRICS[name].of(rows)(ones) == pytest.approx(1)
    lots = [{**row, "score": random.random()} for row in rows]
    chance = 0.5 if name.endswith("auroc") else labels.mean()
    assert METRICS[name].of(lots)(ones) == pytest.approx(chance, abs=0.03)


def test_ratio_weighs_records_by_their_bases():
    estimate = ratio(np.array([10.0, 1.0]), np.array([10.0, 4.0]))
    assert estimate.value == pytest.approx(11 / 14)
    assert (estimate.low, estimate.high) == (pytest.approx(0.25), pytest.approx(1.0))


def test_undefined_resamples_are_left_out():
    estimate = bootstrap(lambda w: float("nan") if w.min() == 0 else 1.0, 2)
    assert (estimate.low, estimate.high) == (1.0, 1.0)


def test_a_single_sample_or_cluster_has_no_interval_and_shows_no_difference():
    """Every resample would equal it: an interval without width would show any difference."""
    values, names = np.array([1.0, 2, 6]), ["a"] * 3
    for found in (bootstrap(mean_of(values[:1]), 1), bootstrap(mean_of(values), 3, clusters=names)):
        assert found.value in (1, 3) and np.isnan([found.low, found.high]).all()
    zero = mean_of(np.zeros(3))
    assert inside_noise(difference(mean_of(values), zero, 3, clusters=names))
    assert not inside_noise(difference(mean_of(values), zero, 3, clusters=["a", "a", "b"]))
