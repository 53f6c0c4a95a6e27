"""Scores of predictions: a table for each task type, with bootstrap intervals.

Each score is a statistic of weights, which count how often a bootstrap drew a row. The first score
of a type selects checkpoints, and is higher for better predictions. A score that the rows do not
define is NaN, such as AUROC with one class. The statistics equal scikit-learn's with
`sample_weight`, and sort or count the rows once instead of once per resample.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.metrics import auroc, average_precision, equal_values, mid_ranks, pearson
from carbon.uncertainty import (
    Estimate,
    Floats,
    Statistic,
    affordable_resamples,
    bootstrap,
)


class ScoreInfo(NamedTuple):
    """Label of a score in reports, and its direction."""

    label: str
    higher_is_better: bool = True


SCORE_INFO = {
    "auroc": ScoreInfo("AUROC"),
    "auprc": ScoreInfo("AUPRC"),
    "mcc": ScoreInfo("MCC"),
    "f1": ScoreInfo("F1"),
    "macro_f1": ScoreInfo("macro F1"),
    "balanced_accuracy": ScoreInfo("balanced accuracy"),
    "accuracy": ScoreInfo("accuracy"),
    "pearson": ScoreInfo("Pearson's r"),
    "spearman": ScoreInfo("Spearman's rho"),
    "r2": ScoreInfo("R²"),
    "mse": ScoreInfo("mean squared error", higher_is_better=False),
}
"""Every score by the name in `results.json`, before the label in brackets."""

Statistics = dict[str, Statistic]
Scores = Callable[[Sequence[str], Floats, Floats], Statistics]
"""Maps names, predictions (rows, outputs) and labels (rows, columns) to statistics of the rows."""


def _of_confusion(
    truth: NDArray[np.int64], predicted: NDArray[np.int64], num_classes: int
) -> Callable[[Callable[[Floats], float]], Statistic]:
    """Return a function that turns a score of a confusion matrix into a statistic."""
    cells = truth * num_classes + predicted

    def scored(by: Callable[[Floats], float]) -> Statistic:
        def of(weights: Floats) -> float:
            counts = np.bincount(cells, weights, minlength=num_classes**2).astype(np.float64)
            return by(counts.reshape(num_classes, num_classes))

        return of

    return scored


def mcc(confusion: Floats) -> float:
    """Return Matthews' correlation for any number of classes (Gorodkin 2004).

    It is 0 if one class is always predicted, and NaN if all labels have one class.
    """
    total, correct = confusion.sum(), np.trace(confusion)
    true, predicted = confusion.sum(axis=1), confusion.sum(axis=0)
    spread_true, spread_predicted = total**2 - true @ true, total**2 - predicted @ predicted
    if spread_true <= 0:
        return float("nan")
    if spread_predicted <= 0:
        return 0.0
    return float((correct * total - true @ predicted) / np.sqrt(spread_true * spread_predicted))


def accuracy(confusion: Floats) -> float:
    """Return the share of correct rows."""
    return float(np.trace(confusion) / confusion.sum())


def balanced_accuracy(confusion: Floats) -> float:
    """Return the mean recall of the classes with rows."""
    true = confusion.sum(axis=1)
    return float(np.mean(np.diag(confusion)[true > 0] / true[true > 0]))


def macro_f1(confusion: Floats) -> float:
    """Return the mean F1 of the classes with rows or predictions."""
    both = confusion.sum(axis=0) + confusion.sum(axis=1)
    return float(np.mean(2 * np.diag(confusion)[both > 0] / both[both > 0]))


_OF_CONFUSION: dict[str, Callable[[Floats], float]] = {
    "mcc": mcc,
    "macro_f1": macro_f1,
    "balanced_accuracy": balanced_accuracy,
    "accuracy": accuracy,
}


def _binary(names: Sequence[str], predictions: Floats, labels: Floats) -> Statistics:
    """Return scores of two classes, predicted at a probability of one half."""
    truth, score = labels[:, 0].astype(np.int64), predictions[:, 0]
    scored = _of_confusion(truth, (score > 0.5).astype(np.int64), 2)
    return {
        "auroc": auroc(score, truth),
        "auprc": average_precision(score, truth),
        **{name: scored(by) for name, by in _OF_CONFUSION.items()},
    }


def _classes(names: Sequence[str], predictions: Floats, labels: Floats) -> Statistics:
    """Return scores of many classes; the most probable class is the predicted one.

    AUROC and AUPRC are means over classes, each against all others (macro average).
    """
    truth, predicted = labels[:, 0].astype(np.int64), predictions.argmax(axis=1)
    scored = _of_confusion(truth, predicted, len(names))
    return {
        **{name: scored(by) for name, by in _OF_CONFUSION.items()},
        "auroc": _macro(auroc, predictions, truth),
        "auprc": _macro(average_precision, predictions, truth),
    }


def _bases(names: Sequence[str], predictions: Floats, labels: Floats) -> Statistics:
    """Return scores of a class of every base, with the F1 of each class."""
    truth, predicted = labels[:, 0].astype(np.int64), predictions.argmax(axis=1)
    scored = _of_confusion(truth, predicted, len(names))
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
    """Return the mean over classes of a score of each class against the others, where defined."""
    return _mean(
        [score(column, (truth == i).astype(np.int64)) for i, column in enumerate(predictions.T)]
    )


def _f1_of(index: int) -> Callable[[Floats], float]:
    def of(confusion: Floats) -> float:
        both = confusion[index].sum() + confusion[:, index].sum()
        return float(2 * confusion[index, index] / both) if both else float("nan")

    return of


def _labels(names: Sequence[str], predictions: Floats, labels: Floats) -> Statistics:
    """Return means over labels, then scores of each, over rows with a known label."""

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
    """Return means over numbers, then scores of each, over rows with a known number."""

    def of(predicted: Floats, truth: Floats) -> Statistics:
        one, other = equal_values(predicted), equal_values(truth)
        return {
            "pearson": lambda w: pearson(predicted, truth, w),
            "spearman": lambda w: pearson(mid_ranks(one, w), mid_ranks(other, w), w),
            "r2": lambda w: _r2(predicted, truth, w),
            "mse": lambda w: float(w @ (predicted - truth) ** 2 / w.sum()),
        }

    return _by_column(names, predictions, labels, of)


def _r2(predicted: Floats, truth: Floats, weights: Floats) -> float:
    """Return 1 - squared error / squared error of the mean."""
    spread = weights @ (truth - weights @ truth / weights.sum()) ** 2
    return float(1 - weights @ (predicted - truth) ** 2 / spread) if spread > 0 else float("nan")


def _by_column(
    names: Sequence[str],
    predictions: Floats,
    labels: Floats,
    of: Callable[[Floats, Floats], Statistics],
) -> Statistics:
    """Return each score's mean over columns, and with several columns also each column's score."""
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
    """Return statistics of a subset of rows as statistics of all weights; NaN if none is drawn."""

    def on(statistic: Statistic) -> Statistic:
        return lambda w: statistic(w[rows]) if w[rows].any() else float("nan")

    return {name: on(statistic) for name, statistic in statistics.items()}


def _mean(statistics: Sequence[Statistic]) -> Statistic:
    """Return the mean of statistics where they are defined."""

    def of(weights: Floats) -> float:
        values = np.array([statistic(weights) for statistic in statistics])
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
    task_type: str, names: Sequence[str], predictions: NDArray[Any], labels: NDArray[Any]
) -> tuple[Statistics, NDArray[np.int64]]:
    """Return scores as statistics, and the rows they use: those with any known label."""
    rows = np.flatnonzero(~np.isnan(labels).all(axis=1))
    known, truth = (np.asarray(each, dtype=np.float64)[rows] for each in (predictions, labels))
    return SCORES[task_type](names, known, truth), rows


def with_intervals(
    statistics: Statistics, rows: NDArray[np.int64], groups: Sequence[str] | None, seed: int
) -> dict[str, Estimate]:
    """Return the value and interval of each statistic; `num_samples` counts its rows.

    Args:
        statistics: of `rows`.
        rows: their numbers among all rows.
        groups: name of each row's group, drawn together; each row by itself if None.
        seed: seed of the bootstrap.
    """
    is_grouped = groups is not None and len(set(groups)) < len(groups)
    clusters = [groups[i] for i in rows] if groups is not None and is_grouped else None
    num_resamples = affordable_resamples(len(rows))
    return {
        name: bootstrap(statistic, len(rows), seed, clusters, num_resamples)
        for name, statistic in statistics.items()
    }
