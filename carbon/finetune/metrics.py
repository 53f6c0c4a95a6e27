"""How answers are measured: a table of scores for each kind of question.

Each score is a statistic of weights, how often a bootstrap drew a row; the first is the one that a
checkpoint is chosen by, and higher is better of it. What rows do not define is NaN: AUROC of one
class, a correlation of what does not vary.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carbon.metrics import auroc, average_precision, equal_values, mid_ranks, pearson
from carbon.uncertainty import (
    Estimate,
    Floats,
    Statistic,
    affordable_resamples,
    bootstrap,
    difference,
)

Statistics = dict[str, Statistic]
Scores = Callable[[Sequence[str], Floats, Floats], Statistics]
"""From names, predictions (rows, outputs) and labels (rows, columns) to statistics of the rows."""


def _of_confusion(
    truth: NDArray[np.int64], said: NDArray[np.int64], num_classes: int
) -> Callable[[Callable[[Floats], float]], Statistic]:
    """Return what turns a score of a confusion matrix, (truth, said), into one of weights."""
    cells = truth * num_classes + said

    def scored(by: Callable[[Floats], float]) -> Statistic:
        def of(weights: Floats) -> float:
            counts = np.bincount(cells, weights, minlength=num_classes**2).astype(np.float64)
            return by(counts.reshape(num_classes, num_classes))

        return of

    return scored


def mcc(confusion: Floats) -> float:
    """Return Matthews' correlation of any number of classes (Gorodkin 2004).

    0 where all are said to be one class, NaN where all are of one.
    """
    total, right = confusion.sum(), np.trace(confusion)
    true, said = confusion.sum(axis=1), confusion.sum(axis=0)
    spread_true, spread_said = total**2 - true @ true, total**2 - said @ said
    if spread_true <= 0:
        return float("nan")
    if spread_said <= 0:
        return 0.0
    return float((right * total - true @ said) / np.sqrt(spread_true * spread_said))


def accuracy(confusion: Floats) -> float:
    """Return the share of rows that are said rightly."""
    return float(np.trace(confusion) / confusion.sum())


def balanced_accuracy(confusion: Floats) -> float:
    """Return the mean recall of the classes that there are."""
    true = confusion.sum(axis=1)
    return float(np.mean(np.diag(confusion)[true > 0] / true[true > 0]))


def macro_f1(confusion: Floats) -> float:
    """Return the mean F1 of the classes that are there or are said."""
    both = confusion.sum(axis=0) + confusion.sum(axis=1)
    return float(np.mean(2 * np.diag(confusion)[both > 0] / both[both > 0]))


_OF_CONFUSION: dict[str, Callable[[Floats], float]] = {
    "mcc": mcc,
    "macro_f1": macro_f1,
    "balanced_accuracy": balanced_accuracy,
    "accuracy": accuracy,
}


def _binary(names: Sequence[str], predictions: Floats, labels: Floats) -> Statistics:
    """Return scores of two classes; they are told apart at a probability of one half."""
    truth, score = labels[:, 0].astype(np.int64), predictions[:, 0]
    scored = _of_confusion(truth, (score > 0.5).astype(np.int64), 2)
    return {
        "auroc": auroc(score, truth),
        "auprc": average_precision(score, truth),
        **{name: scored(by) for name, by in _OF_CONFUSION.items()},
    }


def _classes(names: Sequence[str], predictions: Floats, labels: Floats) -> Statistics:
    """Return scores of many classes, the most probable of which is said.

    AUROC and AUPRC are the means over the classes, each against all others (macro average).
    """
    truth, said = labels[:, 0].astype(np.int64), predictions.argmax(axis=1)
    scored = _of_confusion(truth, said, len(names))
    return {
        **{name: scored(by) for name, by in _OF_CONFUSION.items()},
        "auroc": _macro(auroc, predictions, truth),
        "auprc": _macro(average_precision, predictions, truth),
    }


def _bases(names: Sequence[str], predictions: Floats, labels: Floats) -> Statistics:
    """Return scores of a class of every base, and the F1 of each class; AUPRC as of classes."""
    truth, said = labels[:, 0].astype(np.int64), predictions.argmax(axis=1)
    scored = _of_confusion(truth, said, len(names))
    return {
        **{name: scored(by) for name, by in _OF_CONFUSION.items()},
        "auprc": _macro(average_precision, predictions, truth),
        **{f"f1[{name}]": scored(_f1_of(i)) for i, name in enumerate(names)},
    }


def _macro(
    score: Callable[[Floats, NDArray[np.int64]], Statistic],
    predictions: Floats,
    truth: NDArray[np.int64],
) -> Statistic:
    """Return the mean of a score over classes, each against the others, where it is defined."""
    return _mean(
        [score(column, (truth == i).astype(np.int64)) for i, column in enumerate(predictions.T)]
    )


def _f1_of(index: int) -> Callable[[Floats], float]:
    def of(confusion: Floats) -> float:
        both = confusion[index].sum() + confusion[:, index].sum()
        return float(2 * confusion[index, index] / both) if both else float("nan")

    return of


def _labels(names: Sequence[str], predictions: Floats, labels: Floats) -> Statistics:
    """Return means over labels, and those of each, of the rows where the label is known."""

    def of(score: Floats, truth: Floats) -> Statistics:
        label = truth.astype(np.int64)
        scored = _of_confusion(label, (score > 0.5).astype(np.int64), 2)
        return {
            "auroc": auroc(score, label),
            "auprc": average_precision(score, label),
            "mcc": scored(mcc),
            "f1": scored(_f1_of(1)),
        }

    return _by_column(names, predictions, labels, of)


def _numbers(names: Sequence[str], predictions: Floats, labels: Floats) -> Statistics:
    """Return means over numbers, and those of each, of the rows where the number is known."""

    def of(said: Floats, truth: Floats) -> Statistics:
        one, other = equal_values(said), equal_values(truth)
        return {
            "pearson": lambda w: pearson(said, truth, w),
            "spearman": lambda w: pearson(mid_ranks(one, w), mid_ranks(other, w), w),
            "r2": lambda w: _r2(said, truth, w),
            "mse": lambda w: float(w @ (said - truth) ** 2 / w.sum()),
        }

    return _by_column(names, predictions, labels, of)


def _r2(said: Floats, truth: Floats, weights: Floats) -> float:
    """Return 1 - squared error over that of the mean; below 0 where the mean is better."""
    spread = weights @ (truth - weights @ truth / weights.sum()) ** 2
    return float(1 - weights @ (said - truth) ** 2 / spread) if spread > 0 else float("nan")


def _by_column(
    names: Sequence[str],
    predictions: Floats,
    labels: Floats,
    of: Callable[[Floats, Floats], Statistics],
) -> Statistics:
    """Return each score as the mean of its columns, and, of more than one, of each as well."""
    columns: list[Statistics] = []
    for i in range(len(names)):
        rows = np.flatnonzero(~np.isnan(labels[:, i]))
        columns.append(_on_rows(of(predictions[rows, i], labels[rows, i]), rows))
    means = {name: _mean([column[name] for column in columns]) for name in columns[0]}
    if len(names) == 1:
        return means
    each = {
        f"{score}[{name}]": column[score]
        for score in means
        for name, column in zip(names, columns, strict=True)
    }
    return means | each


def _on_rows(statistics: Statistics, rows: NDArray[np.int64]) -> Statistics:
    """Return statistics of some rows as ones of the weights of all; NaN where none is drawn."""

    def on(statistic: Statistic) -> Statistic:
        return lambda w: statistic(w[rows]) if w[rows].any() else float("nan")

    return {name: on(statistic) for name, statistic in statistics.items()}


def _mean(parts: Sequence[Statistic]) -> Statistic:
    """Return the mean of statistics where they are defined."""

    def of(weights: Floats) -> float:
        values = np.array([part(weights) for part in parts])
        known = values[~np.isnan(values)]
        return float(known.mean()) if len(known) else float("nan")

    return of


SCORES: dict[str, Scores] = {
    "binary": _binary,
    "classes": _classes,
    "labels": _labels,
    "numbers": _numbers,
    "bases": _bases,
}


def statistics_of(
    kind: str, names: Sequence[str], predictions: NDArray[Any], labels: NDArray[Any]
) -> tuple[Statistics, NDArray[np.int64]]:
    """Return scores as statistics, and the rows that they are of: those with any known label."""
    rows = np.flatnonzero(~np.isnan(labels).all(axis=1))
    said, truth = (np.asarray(each, dtype=np.float64)[rows] for each in (predictions, labels))
    return SCORES[kind](names, said, truth), rows


def first_score(
    kind: str, names: Sequence[str], predictions: NDArray[Any], labels: NDArray[Any]
) -> float:
    """Return the score that a checkpoint is chosen by, NaN where the rows do not define it."""
    statistics, rows = statistics_of(kind, names, predictions, labels)
    if not len(rows):
        return float("nan")
    return next(iter(statistics.values()))(np.ones(len(rows)))


def scores_of(
    kind: str,
    names: Sequence[str],
    predictions: NDArray[Any],
    labels: NDArray[Any],
    groups: Sequence[str] | None = None,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Return every score of the kind with its interval; `num_samples` is the rows behind it.

    Args:
        kind: key of `QUESTIONS`.
        names: of the classes, labels or numbers.
        predictions: (rows, outputs).
        labels: (rows, columns), NaN where unknown.
        groups: (rows,), what is drawn together; each row by itself, if none are given.
        seed: of the bootstrap.
    """
    statistics, rows = statistics_of(kind, names, predictions, labels)
    clusters, num_resamples = _drawn(groups, rows), affordable_resamples(len(rows))
    return {
        name: bootstrap(statistic, len(rows), seed, clusters, num_resamples)
        for name, statistic in statistics.items()
    }


def differences(
    kind: str,
    names: Sequence[str],
    predictions: tuple[NDArray[Any], NDArray[Any]],
    labels: NDArray[Any],
    groups: Sequence[str] | None = None,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Return first - second of every score, each resample drawn once for both predictors."""
    (first, rows), (second, _) = (statistics_of(kind, names, each, labels) for each in predictions)
    clusters, num_resamples = _drawn(groups, rows), affordable_resamples(len(rows))
    return {
        name: difference(first[name], second[name], len(rows), seed, clusters, num_resamples)
        for name in first
    }


def beside(
    kind: str,
    names: Sequence[str],
    predictions: Mapping[str, NDArray[Any]],
    labels: NDArray[Any],
    groups: Sequence[str] | None = None,
    seed: int = 0,
) -> dict[str, dict[str, Estimate]]:
    """Return, of the first predictor against each other one by name, the `differences`."""
    (_, mine), *others = predictions.items()
    return {
        name: differences(kind, names, (mine, theirs), labels, groups, seed)
        for name, theirs in others
    }


def _drawn(groups: Sequence[str] | None, rows: NDArray[np.int64]) -> Sequence[str] | None:
    """Return the clusters of some rows; None where every row is its own."""
    if groups is None or len(set(groups)) == len(groups):
        return None
    return [groups[i] for i in rows]
