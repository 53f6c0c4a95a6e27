"""Metrics of predictions as statistics of weighted samples, equal to scikit-learn's.

A weight is the number of times a bootstrap drew a sample, so scores are sorted once instead of a
thousand times. Ties are handled independently of the order of samples.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from carbon.uncertainty import Floats, Statistic


class Ranked:
    """Samples ranked by descending score; samples with equal scores form one step."""

    def __init__(self, scores: Floats, labels: NDArray[np.int64]) -> None:
        self.order = np.argsort(-scores, kind="stable")
        ranked = scores[self.order]
        self.positive = labels[self.order].astype(np.float64)
        self.starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])

    def steps(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return the weight of positives and of negatives at each step."""
        ranked = weights[self.order]
        positives = np.add.reduceat(ranked * self.positive, self.starts)
        return positives, np.add.reduceat(ranked, self.starts) - positives


def auroc(scores: Floats, labels: NDArray[np.int64]) -> Statistic:
    """Return the probability that a positive scores above a negative; a tie counts one half."""
    ranked = Ranked(scores, labels)

    def of(weights: Floats) -> float:
        positives, negatives = ranked.steps(weights)
        pairs = positives.sum() * negatives.sum()
        below = negatives.sum() - np.cumsum(negatives) + negatives / 2
        return float(positives @ below / pairs) if pairs else np.nan

    return of


def average_precision(scores: Floats, labels: NDArray[np.int64]) -> Statistic:
    """Return the sum over steps of precision times the gain in recall."""
    ranked = Ranked(scores, labels)

    def of(weights: Floats) -> float:
        positives, precision = _precision(*ranked.steps(weights))
        total = positives.sum()
        return float(positives @ precision / total) if total else np.nan

    return of


def auprc_trapezoid(scores: Floats, labels: NDArray[np.int64]) -> Statistic:
    """Return scikit-learn's `auc(recall, precision)`, with linear interpolation between steps.

    The BRCA2 protocol reports this value. It exceeds average precision, because no classifier
    reaches the points that are interpolated linearly (Davis and Goadrich 2006).
    """
    ranked = Ranked(scores, labels)

    def of(weights: Floats) -> float:
        positives, precision = _precision(*ranked.steps(weights))
        total = positives.sum()
        if not total:
            return np.nan
        before = np.r_[1.0, precision[:-1]]  # the curve starts at recall 0, precision 1
        return float(positives @ (precision + before) / 2 / total)

    return of


def weighted_average_precision(
    scores: Floats, labels: NDArray[np.int64], groups: Sequence[str]
) -> Statistic:
    """Return the mean of average precision over chromosomes, weighted by number of samples.

    Chromosomes with only one label are excluded (TraitGym, Benegas et al. 2025).
    """
    names, group_of = np.unique(np.asarray(groups, dtype=str), return_inverse=True)
    members = [np.flatnonzero(group_of == number) for number in range(len(names))]
    both = [m for m in members if 0 < labels[m].sum() < len(m)]
    parts = [average_precision(scores[m], labels[m]) for m in both]

    def of(weights: Floats) -> float:
        values = np.array([part(weights[m]) for part, m in zip(parts, both, strict=True)])
        sizes = np.array([weights[m].sum() for m in both])
        drawn = ~np.isnan(values)
        total = sizes[drawn].sum()
        return float(values[drawn] @ sizes[drawn] / total) if total else np.nan

    return of


def _precision(positives: Floats, negatives: Floats) -> tuple[Floats, Floats]:
    """Return the positives of each step with any weight, and the precision down to that step."""
    drawn = positives + negatives > 0
    positives, negatives = positives[drawn], negatives[drawn]
    true_positives = np.cumsum(positives)
    return positives, true_positives / (true_positives + np.cumsum(negatives))


def equal_values(values: Floats) -> NDArray[np.int64]:
    """Return for each value the index of its distinct value, in ascending order."""
    return np.unique(values, return_inverse=True)[1]


def mid_ranks(groups: NDArray[np.int64], weights: Floats | None = None) -> Floats:
    """Return ranks from 1, the lowest value first; equal values share their mean rank.

    Args:
        groups: result of `equal_values`.
        weights: number of times each value occurs; once by default.
    """
    times = np.bincount(groups, weights).astype(np.float64)
    ranks: Floats = (np.cumsum(times) - (times - 1) / 2)[groups]
    return ranks


def pearson(a: Floats, b: Floats, weights: Floats) -> float:
    """Return the Pearson correlation of weighted pairs; NaN if either does not vary."""
    total = weights.sum()
    a, b = a - weights @ a / total, b - weights @ b / total
    spread = np.sqrt((weights @ (a * a)) * (weights @ (b * b)))
    return float(weights @ (a * b) / spread) if spread > 0 else float("nan")


def rank_correlation(one: Floats, other: Floats, weights: Floats) -> float:
    """Return Spearman's correlation of weighted samples; NaN if all values are equal."""
    ranks = [mid_ranks(equal_values(values), weights) for values in (one, other)]
    return pearson(ranks[0], ranks[1], weights)
