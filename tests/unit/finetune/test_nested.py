"""Nested leave-one-chromosome-out against a slow loop with scikit-learn."""

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score

from carbon.finetune import nested
from carbon.finetune.nested import nested_probe
from carbon.finetune.probe import LOGISTIC_C


def data(rows=120, chromosomes=4, seed=0):
    random = np.random.default_rng(seed)
    features = random.normal(size=(rows, 6))
    labels = (features[:, 0] + random.normal(size=rows) > 0).astype(np.int64)
    return features, labels, [f"c{n % chromosomes}" for n in range(rows)]


def fit_and_score(train, labels, test, c):
    mean, sd = train.mean(axis=0), train.std(axis=0)
    model = LogisticRegression(C=c, max_iter=1000).fit((train - mean) / sd, labels)
    return (test - mean) / sd @ model.coef_[0] + model.intercept_[0]


def slow_loop(features, labels, chromosomes):
    names = np.array(chromosomes)
    scores, strengths = np.full(len(labels), np.nan), {}
    for outer in sorted(set(chromosomes)):
        precision = dict.fromkeys(LOGISTIC_C, 0.0)
        rest = [c for c in sorted(set(chromosomes)) if c != outer]
        for c in LOGISTIC_C:
            for inner in rest:
                train = (names != outer) & (names != inner)
                test = names == inner
                found = fit_and_score(features[train], labels[train], features[test], c)
                share = test.sum() / (names != outer).sum()
                precision[c] += share * average_precision_score(labels[test], found)
        best = max(LOGISTIC_C, key=lambda c: precision[c])
        train, test = names != outer, names == outer
        scores[test] = fit_and_score(features[train], labels[train], features[test], best)
        strengths[outer] = best
    return scores, strengths


def test_it_equals_a_slow_loop():
    features, labels, chromosomes = data()
    scores, strengths = slow_loop(features, labels, chromosomes)
    found = nested_probe(features, labels, chromosomes)
    assert found.strengths == strengths
    np.testing.assert_allclose(found.scores, scores, atol=1e-3)


def test_labels_of_a_chromosome_do_not_change_its_predictions(monkeypatch):
    monkeypatch.setattr(nested, "LOGISTIC_C", (0.01, 1.0))
    features, labels, chromosomes = data()
    here = np.array(chromosomes) == "c2"
    before = nested_probe(features, labels, chromosomes)
    after = nested_probe(features, np.where(here, 1 - labels, labels), chromosomes)
    np.testing.assert_array_equal(before.scores[here], after.scores[here])
    assert before.strengths["c2"] == after.strengths["c2"]
    assert (before.scores[~here] != after.scores[~here]).any()
