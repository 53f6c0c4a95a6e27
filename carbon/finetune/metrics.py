"""Scores of log-odds and numbers: one table, and how rows and columns of labels become statistics.

Each score is a statistic of weights, which count how often a bootstrap drew a row. A score that the
rows do not define is NaN, such as AUROC with one class. The statistics equal scikit-learn's with
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

Statistics = dict[str, Statistic]
Of = Callable[[Floats, Floats], Statistic]
"""Maps log-odds or numbers (rows, outputs) and true classes or numbers (rows,) to a statistic."""


class Score(NamedTuple):
    """A score of predictions.

    Attributes:
        label: its name in reports.
        of: gives the statistic.
        higher_is_better: its direction.
    """

    label: str
    of: Of
    higher_is_better: bool = True


def predicted_classes(predictions: NDArray[Any], threshold: float) -> NDArray[np.int64]:
    """Return the most probable class of each row; of one output the second above a threshold.

    The threshold is 0.5 for probabilities, and 0 for log-odds.
    """
    if predictions.shape[1] == 1:
        return (predictions[:, 0] > threshold).astype(np.int64)
    classes: NDArray[np.int64] = predictions.argmax(axis=1).astype(np.int64)
    return classes


def confusion_cells(
    predictions: NDArray[Any], truth: NDArray[Any], threshold: float
) -> tuple[NDArray[Any], int]:
    """Return true class x number of classes + predicted class, (rows,), and the number.

    The threshold is that of `predicted_classes`.
    """
    number = max(predictions.shape[1], 2)
    return truth.astype(np.int64) * number + predicted_classes(predictions, threshold), number


def _ranked(score: Callable[[Floats, NDArray[np.int64]], Statistic]) -> Of:
    """Return the score of the only output, or the mean over classes of each against the others."""

    def of(predictions: Floats, truth: Floats) -> Statistic:
        classes = truth.astype(np.int64)
        if predictions.shape[1] == 1:
            return score(predictions[:, 0], classes)
        return _mean(
            [score(p, (classes == i).astype(np.int64)) for i, p in enumerate(predictions.T)]
        )

    return of


def _confused(by: Callable[[Floats], float]) -> Of:
    """Return a score of the confusion matrix (true, predicted class)."""

    def of(predictions: Floats, truth: Floats) -> Statistic:
        cells, number = confusion_cells(predictions, truth, threshold=0.0)

        def counted(weights: Floats) -> float:
            counts = np.bincount(cells, weights, minlength=number**2).astype(np.float64)
            return by(counts.reshape(number, number))

        return counted

    return of


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


def f1_of(index: int) -> Callable[[Floats], float]:
    """Return the F1 of one class, NaN if it has neither rows nor predictions."""

    def of(confusion: Floats) -> float:
        both = confusion[index].sum() + confusion[:, index].sum()
        return float(2 * confusion[index, index] / both) if both else float("nan")

    return of


def _of_numbers(score: Callable[[Floats, Floats, Floats], float]) -> Of:
    """Return a score of predicted and true numbers with weights, (rows,) each."""
    return lambda predictions, truth: lambda weights: score(predictions[:, 0], truth, weights)


def _spearman(predictions: Floats, truth: Floats) -> Statistic:
    one, other = equal_values(predictions[:, 0]), equal_values(truth)
    return lambda weights: pearson(mid_ranks(one, weights), mid_ranks(other, weights), weights)


def _mse(predicted: Floats, truth: Floats, weights: Floats) -> float:
    return float(weights @ (predicted - truth) ** 2 / weights.sum())


def _r2(predicted: Floats, truth: Floats, weights: Floats) -> float:
    """Return 1 - squared error / squared error of the mean."""
    spread = weights @ (truth - weights @ truth / weights.sum()) ** 2
    return float(1 - weights @ (predicted - truth) ** 2 / spread) if spread > 0 else float("nan")


SCORES: dict[str, Score] = {
    "auroc": Score("AUROC", _ranked(auroc)),
    "auprc": Score("AUPRC", _ranked(average_precision)),
    "mcc": Score("MCC", _confused(mcc)),
    "f1": Score("F1", _confused(f1_of(1))),
    "macro_f1": Score("macro F1", _confused(macro_f1)),
    "balanced_accuracy": Score("balanced accuracy", _confused(balanced_accuracy)),
    "accuracy": Score("accuracy", _confused(accuracy)),
    "pearson": Score("Pearson's r", _of_numbers(pearson)),
    "spearman": Score("Spearman's rho", _spearman),
    "r2": Score("R²", _of_numbers(_r2)),
    "mse": Score("mean squared error", _of_numbers(_mse), higher_is_better=False),
}
"""Every score by the name in `results.json`, before the label in brackets."""


def statistics_of_classes(
    scores: Sequence[str], names: Sequence[str], predictions: Floats, labels: Floats
) -> Statistics:
    """Return scores of one column of classes; `f1` becomes the F1 of each class."""
    truth = labels[:, 0]
    found: Statistics = {}
    for score in scores:
        if score == "f1":
            for i, name in enumerate(names):
                found[f"f1[{name}]"] = _confused(f1_of(i))(predictions, truth)
        else:
            found[score] = SCORES[score].of(predictions, truth)
    return found


def statistics_of_columns(
    scores: Sequence[str], names: Sequence[str], predictions: Floats, labels: Floats
) -> Statistics:
    """Return each score's mean over columns, and with several columns also each column's score.

    A column counts the rows where its label is known.
    """
    means: Statistics = {}
    each: Statistics = {}
    for score in scores:
        columns = [
            _of_column(score, predictions[:, i : i + 1], labels[:, i]) for i in range(len(names))
        ]
        means[score] = _mean(columns)
        each |= {f"{score}[{name}]": of for name, of in zip(names, columns, strict=True)}
    return means if len(names) == 1 else means | each


def _of_column(score: str, predictions: Floats, truth: Floats) -> Statistic:
    """Return a score of the rows with a known label, NaN if none is drawn."""
    rows = np.flatnonzero(~np.isnan(truth))
    statistic = SCORES[score].of(predictions[rows], truth[rows])
    return lambda weights: statistic(weights[rows]) if weights[rows].any() else float("nan")


def _mean(statistics: Sequence[Statistic]) -> Statistic:
    """Return the mean of statistics where they are defined."""

    def of(weights: Floats) -> float:
        values = np.array([statistic(weights) for statistic in statistics])
        known = values[~np.isnan(values)]
        return float(known.mean()) if len(known) else float("nan")

    return of


def with_intervals(
    statistics: Statistics, rows: NDArray[np.int64], groups: Sequence[str] | None
) -> dict[str, Estimate]:
    """Return the value and interval of each statistic; `num_samples` counts its rows.

    Args:
        statistics: of `rows`.
        rows: their numbers among all rows.
        groups: name of each row's group, drawn together; each row by itself if None.
    """
    is_grouped = groups is not None and len(set(groups)) < len(groups)
    clusters = [groups[i] for i in rows] if groups is not None and is_grouped else None
    num_resamples = affordable_resamples(len(rows))
    return {
        name: bootstrap(statistic, len(rows), clusters=clusters, num_resamples=num_resamples)
        for name, statistic in statistics.items()
    }
