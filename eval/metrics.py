"""The published metrics of tasks, by name, and the curves behind them."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.metrics import (
    Ranked,
    auprc_trapezoid,
    auroc,
    average_precision,
    weighted_average_precision,
)
from carbon.uncertainty import Statistic, mean_of
from eval.contract import Curve, Floats, Result

_CURVE_POINTS = 400

Metric = Callable[[Sequence[Result]], Statistic]


def _share(results: Sequence[Result]) -> Statistic:
    return mean_of(_scores(results))


def _labelled(of: Callable[[Floats, NDArray[np.int64]], Statistic]) -> Metric:
    return lambda results: of(_scores(results), labels_of(results))


def _by_chromosome(results: Sequence[Result]) -> Statistic:
    chromosomes = [str(result["chrom"]) for result in results]
    return weighted_average_precision(_scores(results), labels_of(results), chromosomes)


METRICS: dict[str, Metric] = {
    "mean": _share,
    "auroc": _labelled(auroc),
    "average_precision": _labelled(average_precision),
    "auprc_trapezoid": _labelled(auprc_trapezoid),
    "average_precision_by_chromosome": _by_chromosome,
}
"""From results to a statistic of their weights: `score`, `label` and `chrom` are what is read."""

LABELLED = frozenset(METRICS) - {"mean"}


def _scores(results: Sequence[Result]) -> Floats:
    return np.array([result["score"] for result in results], dtype=np.float64)


def labels_of(results: Sequence[Result]) -> NDArray[np.int64]:
    """Return the labels of results, 0 or 1.

    Raises:
        UserError: all are of one label, so that nothing can be told apart.
    """
    labels = np.array([result["label"] for result in results], dtype=np.int64)
    if len(found := set(labels.tolist())) < 2:
        only = f"only label {found.pop()}" if found else "no example"
        raise UserError(f"{len(labels)} examples, {only}: both labels are needed to tell apart")
    return labels


def curves_of(results: Sequence[Result]) -> dict[str, Curve]:
    """Return the ROC and the precision-recall curve, thinned to what a picture shows."""
    ranked = Ranked(_scores(results), labels_of(results))
    positives, negatives = ranked.steps(np.ones(len(results)))
    recall = np.cumsum(positives) / positives.sum()
    false = np.cumsum(negatives) / negatives.sum()
    precision = np.cumsum(positives) / np.cumsum(positives + negatives)
    at = _thinned(len(recall))
    return {
        "roc": Curve("false positive rate", "true positive rate", *_listed(false, recall, at, 0)),
        "precision_recall": Curve("recall", "precision", *_listed(recall, precision, at, 1)),
    }


def _thinned(length: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, length - 1, min(length, _CURVE_POINTS)).astype(np.int64))


def _listed(
    x: Floats, y: Floats, at: NDArray[np.int64], first: float
) -> tuple[list[float], list[float]]:
    """Return points, six places each, behind the one at x = 0."""
    return [0.0, *np.round(x[at], 6).tolist()], [float(first), *np.round(y[at], 6).tolist()]
