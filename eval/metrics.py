"""The published metrics, each a statistic of weighted samples; equal to scikit-learn's.

Weights are how often a bootstrap drew a sample, so scores are sorted once and not a thousand times.
Ties count as ties, whatever the order of the samples.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from eval.contract import Curve, Floats, Result
from eval.uncertainty import Statistic, mean_of

_CURVE_POINTS = 400


class _Ranked:
    """Samples from the highest score down; samples of one score are one step."""

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
    """Return the chance that a positive is above a negative; a tie counts a half."""
    ranked = _Ranked(scores, labels)

    def of(weights: Floats) -> float:
        positives, negatives = ranked.steps(weights)
        pairs = positives.sum() * negatives.sum()
        below = negatives.sum() - np.cumsum(negatives) + negatives / 2
        return float(positives @ below / pairs) if pairs else np.nan

    return of


def average_precision(scores: Floats, labels: NDArray[np.int64]) -> Statistic:
    """Return sum over steps of precision times the gain in recall."""
    ranked = _Ranked(scores, labels)

    def of(weights: Floats) -> float:
        positives, precision = _precision(*ranked.steps(weights))
        total = positives.sum()
        return float(positives @ precision / total) if total else np.nan

    return of


def auprc_trapezoid(scores: Floats, labels: NDArray[np.int64]) -> Statistic:
    """Return scikit-learn's `auc(recall, precision)`: straight lines between the steps.

    It is what the BRCA2 protocol reports; it is above average precision, for no classifier reaches
    the points between two steps by a straight line (Davis and Goadrich 2006).
    """
    ranked = _Ranked(scores, labels)

    def of(weights: Floats) -> float:
        positives, precision = _precision(*ranked.steps(weights))
        total = positives.sum()
        if not total:
            return np.nan
        before = np.r_[1.0, precision[:-1]]  # the curve begins at recall 0, precision 1
        return float(positives @ (precision + before) / 2 / total)

    return of


def weighted_average_precision(
    scores: Floats, labels: NDArray[np.int64], groups: Sequence[str]
) -> Statistic:
    """Return the mean over chromosomes of average precision, weighted by their samples.

    A chromosome of one label only has no average precision and no weight (TraitGym, Benegas et al.
    2025).
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
    """Return positives of the steps with any weight, and the precision down to each of them."""
    drawn = positives + negatives > 0
    positives, negatives = positives[drawn], negatives[drawn]
    found = np.cumsum(positives)
    return positives, found / (found + np.cumsum(negatives))


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
    ranked = _Ranked(_scores(results), labels_of(results))
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


def rank_correlation(one: Floats, other: Floats, weights: Floats) -> float:
    """Return Spearman's correlation of samples drawn so many times; NaN where all are alike."""
    ranks = [_ranks(values, weights) for values in (one, other)]
    middle = [(weights @ rank) / weights.sum() for rank in ranks]
    first, second = (rank - mean for rank, mean in zip(ranks, middle, strict=True))
    scale = np.sqrt((weights @ first**2) * (weights @ second**2))
    return float((weights * first) @ second / scale) if scale > 0 else float("nan")


def _ranks(values: Floats, weights: Floats) -> Floats:
    """Return the mean rank of each value among samples drawn `weights` times."""
    _, which = np.unique(values, return_inverse=True)
    drawn = np.bincount(which, weights)
    ranks: Floats = (np.cumsum(drawn) - (drawn - 1) / 2)[which]
    return ranks
