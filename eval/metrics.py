"""The metrics of tasks by name, their curves, and summaries of results by a metric."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.metrics import (
    Ranked,
    auprc_trapezoid,
    auroc,
    average_precision,
    rank_correlation,
    weighted_average_precision,
)
from carbon.uncertainty import Statistic, bootstrap, mean_of, ratio_of
from eval.contract import Curve, Estimate, Floats, Result, Summary

LEAST_POSITIVES = 30
"""Positives of a set that counts in the metric of large sets."""
_CURVE_POINTS = 400

Statistics = Callable[[Sequence[Result]], Statistic]


class Metric(NamedTuple):
    """A metric of results.

    Attributes:
        of: from results to a statistic of their weights.
        higher_is_better: direction.
        is_labelled: whether results need `label`, both of them.
    """

    of: Statistics
    higher_is_better: bool = True
    is_labelled: bool = False


def _share(results: Sequence[Result]) -> Statistic:
    return mean_of(_scores(results))


def _labelled(of: Callable[[Floats, NDArray[np.int64]], Statistic]) -> Metric:
    return Metric(lambda results: of(_scores(results), labels_of(results)), is_labelled=True)


def _by_chromosome(results: Sequence[Result]) -> Statistic:
    chromosomes = [str(result["chrom"]) for result in results]
    return weighted_average_precision(_scores(results), labels_of(results), chromosomes)


def _macro(
    of: Callable[[Floats, NDArray[np.int64]], Statistic], least_positives: int = 1
) -> Metric:
    """Return the mean of a metric over the sets of results with enough positives and a negative."""

    def statistic(results: Sequence[Result]) -> Statistic:
        members: dict[str, list[int]] = defaultdict(list)
        for number, result in enumerate(results):
            members[result["set"]].append(number)
        scores, labels = _scores(results), labels_of(results)
        parts = [
            (of(scores[some], labels[some]), some)
            for some in members.values()
            if least_positives <= labels[some].sum() < len(some)
        ]

        def mean(weights: Floats) -> float:
            values = np.array([part(weights[some]) for part, some in parts])
            defined = values[~np.isnan(values)]
            return float(defined.mean()) if len(defined) else float("nan")

        return mean

    return Metric(statistic, is_labelled=True)


def _nats_per_base(results: Sequence[Result]) -> Statistic:
    return ratio_of(column_of(results, "nats"), column_of(results, "bases"))


def _rank_correlation(results: Sequence[Result]) -> Statistic:
    scores, index = _scores(results), column_of(results, "index")
    return lambda weights: rank_correlation(scores, index, weights)


METRICS: dict[str, Metric] = {
    "mean": Metric(_share),
    "nats_per_base": Metric(_nats_per_base, higher_is_better=False),
    "rank_correlation": Metric(_rank_correlation, higher_is_better=False),
    "auroc": _labelled(auroc),
    "average_precision": _labelled(average_precision),
    "auprc_trapezoid": _labelled(auprc_trapezoid),
    "average_precision_by_chromosome": Metric(_by_chromosome, is_labelled=True),
    "macro_auroc": _macro(auroc),
    "macro_average_precision": _macro(average_precision),
    "macro_average_precision_of_large_sets": _macro(average_precision, LEAST_POSITIVES),
}
"""By name. They read the keys `score`, and `label`, `chrom`, `set`, `index`, `nats` or `bases`."""


def column_of(results: Sequence[Result], key: str) -> Floats:
    """Return a number of each result, (results,)."""
    return np.array([result[key] for result in results], dtype=np.float64)


def _scores(results: Sequence[Result]) -> Floats:
    return column_of(results, "score")


def labels_of(results: Sequence[Result]) -> NDArray[np.int64]:
    """Return the labels of results, 0 or 1.

    Raises:
        UserError: all are of one label, so that they cannot be separated.
    """
    labels = np.array([result["label"] for result in results], dtype=np.int64)
    if len(found := set(labels.tolist())) < 2:
        only = f"only label {found.pop()}" if found else "no example"
        raise UserError(f"{len(labels)} examples, {only}: both labels are needed to separate them")
    return labels


def curves_of(results: Sequence[Result]) -> dict[str, Curve]:
    """Return the ROC and the precision-recall curve, thinned to the resolution of a figure."""
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
    """Return points, six places each, after the point at x = 0."""
    return [0.0, *np.round(x[at], 6).tolist()], [float(first), *np.round(y[at], 6).tolist()]


def by_score(results: Sequence[Result], name: str) -> list[Result]:
    """Return the results that have a score, which becomes their `score`."""
    return [{**result, "score": result[name]} for result in results if name in result]


def grouped(results: Sequence[Result], key: str) -> dict[str, list[Result]]:
    """Return the results of each value of `key`, in the order of the first of each."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(str(result[key]), []).append(result)
    return groups


def has_both_labels(results: Sequence[Result]) -> bool:
    """Return whether results of label 0 and of label 1 are among these."""
    return len({result["label"] for result in results}) == 2


def estimate(results: Sequence[Result], metric: str, cluster: str | None = None) -> Estimate:
    """Return a metric of results with its interval.

    Args:
        results: without skipped examples.
        metric: a name in `METRICS`.
        cluster: the key of a result whose values are drawn whole.

    Raises:
        UserError: the metric needs both labels and there is but one.
    """
    names = None if cluster is None else [str(result[cluster]) for result in results]
    return bootstrap(METRICS[metric].of(results), len(results), clusters=names)


def by_group(
    results: Sequence[Result], key: str, metric: str, cluster: str | None = None
) -> dict[str, Estimate]:
    """Return an estimate for each value of `key`; of one label only, a group has none."""
    return {
        name: estimate(group, metric, cluster)
        for name, group in sorted(grouped(results, key).items())
        if not METRICS[metric].is_labelled or has_both_labels(group)
    }


def summary_of(
    results: Sequence[Result],
    metric: str,
    *,
    cluster: str | None = None,
    others: Sequence[str] = (),
    groups: Sequence[str] = ("group",),
) -> Summary:
    """Return a summary: the metric, other metrics, tables by keys of results, and curves.

    Args:
        results: without skipped examples.
        metric: of the headline.
        cluster: the key whose values the bootstrap draws whole.
        others: further names in `METRICS`.
        groups: keys of results; each with more than one value becomes a table.

    Raises:
        UserError: the metric needs both labels and there is but one.
    """
    tables = {key: by_group(results, key, metric, cluster) for key in groups}
    return Summary(
        value=estimate(results, metric, cluster),
        others={name: estimate(results, name, cluster) for name in others},
        groups={key: table for key, table in tables.items() if len(table) > 1},
        curves=curves_of(results) if METRICS[metric].is_labelled else {},
    )
