"""How far two scores of the same alleles agree, with 95 % intervals.

Intervals are percentiles of a bootstrap (Efron 1979) that draws alleles with replacement and ranks
each draw anew. What a draw is, is written as weights: how often it has each allele. So values are
sorted once.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_FOR_CORRELATION = 3
LEAST_FOR_INTERVAL = 10
_RESAMPLES = (100, 1000)  # least and most
_DRAWN_IN_ALL = 5_000_000  # alleles: of a million, a hundred resamples tell the interval


class Estimate(NamedTuple):
    """A value and its 95 % interval; None where there are too few alleles, or they are all one."""

    value: float | None
    low: float | None
    high: float | None


def agreement(a: Floats, b: Floats) -> dict[str, Any]:
    """Return how far two scores agree, by names and plain values.

    Args:
        a: a score an allele, in nats.
        b: of the same alleles.

    Returns:
        `n`; `pearson` and `spearman`, each a `value` with `low` and `high`; `same_sign`, the share
        of alleles whose scores are of one sign; mean and SD of `a - b` in nats.
    """
    differences = a - b
    return {
        "n": len(a),
        **{name: found._asdict() for name, found in correlations(a, b).items()},
        "same_sign": float(np.mean(np.sign(a) == np.sign(b))) if len(a) else None,
        "mean_difference": float(differences.mean()) if len(a) else None,
        "sd_difference": float(differences.std(ddof=1)) if len(a) > 1 else None,
    }


def correlations(a: Floats, b: Floats, seed: int = 0) -> dict[str, Estimate]:
    """Return the correlation of two scores (Pearson) and of their ranks (Spearman)."""
    if len(a) < LEAST_FOR_CORRELATION or np.ptp(a) == 0 or np.ptp(b) == 0:
        return dict.fromkeys(("pearson", "spearman"), Estimate(None, None, None))
    groups_a, groups_b = equal_values(a), equal_values(b)

    def both(weights: Floats) -> tuple[float, float]:
        of_ranks = mid_ranks(groups_a, weights), mid_ranks(groups_b, weights)
        return _pearson(a, b, weights), _pearson(*of_ranks, weights)

    values = both(np.ones(len(a)))
    ends = np.full((2, 2), np.nan)
    if len(a) >= LEAST_FOR_INTERVAL:
        draws = [both(weights) for weights in _resamples(len(a), seed)]
        ends = np.nanpercentile(draws, [2.5, 97.5], axis=0)
    found = np.vstack([values, ends]).T
    estimates = [Estimate(*(None if np.isnan(x) else float(x) for x in row)) for row in found]
    return dict(zip(("pearson", "spearman"), estimates, strict=True))


def _resamples(num_alleles: int, seed: int) -> Iterator[Floats]:
    """Yield how often each allele was drawn, again and again."""
    random = np.random.default_rng(seed)
    for _ in range(int(np.clip(_DRAWN_IN_ALL // num_alleles, *_RESAMPLES))):
        drawn = random.integers(num_alleles, size=num_alleles)
        yield np.bincount(drawn, minlength=num_alleles).astype(np.float64)


def equal_values(values: Floats) -> NDArray[np.int64]:
    """Return for each value which of the distinct ones it is, counted from the lowest."""
    return np.unique(values, return_inverse=True)[1]


def mid_ranks(groups: NDArray[np.int64], weights: Floats | None = None) -> Floats:
    """Return ranks from 1, the lowest value first; equal values share the mean of theirs.

    Args:
        groups: of `equal_values`.
        weights: how often each value is there; once, if none are given.
    """
    times = np.bincount(groups, weights).astype(np.float64)
    ranks: Floats = (np.cumsum(times) - (times - 1) / 2)[groups]
    return ranks


def _pearson(a: Floats, b: Floats, weights: Floats) -> float:
    """Return the correlation of weighted pairs, NaN where either does not vary."""
    total = weights.sum()
    a, b = a - weights @ a / total, b - weights @ b / total
    spread = np.sqrt((weights @ (a * a)) * (weights @ (b * b)))
    return float(weights @ (a * b) / spread) if spread > 0 else float("nan")
