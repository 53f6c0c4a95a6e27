"""Scores with 95 % intervals, and two predictors beside one another on the same rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carbon.adapt.metrics import statistics_of
from carbon.uncertainty import Estimate, affordable_resamples, bootstrap, difference


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
