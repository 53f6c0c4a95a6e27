"""How far two scores of the same alleles agree, with 95 % intervals.

Intervals are percentiles of a bootstrap (Efron 1979) that draws alleles with replacement and ranks
each draw anew. What a draw is, is written as weights: how often it has each allele. So values are
sorted once.
"""

from typing import Any, NamedTuple

import numpy as np

from carbon.metrics import equal_values, mid_ranks, pearson
from carbon.uncertainty import Floats, affordable_resamples, resamples

LEAST_FOR_CORRELATION = 3
LEAST_FOR_INTERVAL = 10


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
        return pearson(a, b, weights), pearson(*of_ranks, weights)

    values = both(np.ones(len(a)))
    ends = np.full((2, 2), np.nan)
    if len(a) >= LEAST_FOR_INTERVAL:
        drawn = resamples(len(a), seed, num_resamples=affordable_resamples(len(a)))
        draws = [both(weights) for weights in drawn]
        ends = np.nanpercentile(draws, [2.5, 97.5], axis=0)
    found = np.vstack([values, ends]).T
    estimates = [Estimate(*(None if np.isnan(x) else float(x) for x in row)) for row in found]
    return dict(zip(("pearson", "spearman"), estimates, strict=True))
