"""Bootstrap intervals: every number of a report comes with one."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
NUM_RESAMPLES = 1000


class Estimate(NamedTuple):
    """A value with its 95 % percentile interval and the number of samples behind it."""

    value: float
    low: float
    high: float
    num_samples: int


def bootstrap(
    statistic: Callable[[NDArray[np.int64]], float], num_samples: int, seed: int = 0
) -> Estimate:
    """Resample `range(num_samples)` with replacement (Efron 1979) and take percentiles.

    Args:
        statistic: from indices of samples to a value; NaN where a resample does not define it.
        num_samples: what may be drawn.
        seed: of the resampling.
    """
    random = np.random.default_rng(seed)
    draws = [
        statistic(random.integers(num_samples, size=num_samples)) for _ in range(NUM_RESAMPLES)
    ]
    low, high = np.nanpercentile(draws, [2.5, 97.5])
    return Estimate(statistic(np.arange(num_samples)), float(low), float(high), num_samples)


def mean(values: Floats, seed: int = 0) -> Estimate:
    """Return the mean of independent samples with its interval."""
    return bootstrap(lambda i: float(values[i].mean()), len(values), seed)


def ratio(totals: Floats, weights: Floats, seed: int = 0) -> Estimate:
    """Return sum(totals) / sum(weights) with its interval; the samples are drawn whole."""
    return bootstrap(lambda i: float(totals[i].sum() / weights[i].sum()), len(totals), seed)
