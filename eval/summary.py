"""From results to a summary, by a metric: what most tasks do alike."""

from collections.abc import Sequence

from carbon.uncertainty import bootstrap
from eval.contract import Estimate, Result, Summary
from eval.metrics import LABELLED, METRICS, curves_of


def estimate(
    results: Sequence[Result], metric: str, cluster: str | None = None, seed: int = 0
) -> Estimate:
    """Return a metric of results with its interval.

    Args:
        results: without those that were skipped.
        metric: a name in `METRICS`.
        cluster: the key of a result whose values are drawn whole.
        seed: of the bootstrap.

    Raises:
        UserError: the metric needs both labels and there is but one.
    """
    names = None if cluster is None else [str(result[cluster]) for result in results]
    return bootstrap(METRICS[metric](results), len(results), seed, names)


def by_group(
    results: Sequence[Result], key: str, metric: str, cluster: str | None = None
) -> dict[str, Estimate]:
    """Return an estimate for each value of `key`; of one label only, a group has none."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(str(result[key]), []).append(result)
    return {
        name: estimate(group, metric, cluster)
        for name, group in sorted(groups.items())
        if metric not in LABELLED or len({result["label"] for result in group}) == 2
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
        results: without those that were skipped.
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
        curves=curves_of(results) if metric in LABELLED else {},
    )
