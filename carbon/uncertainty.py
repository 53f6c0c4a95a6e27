"""Bootstrap intervals for the numbers in reports.

A statistic is a function of weights, one per sample: the number of times a resample drew it. Costly
steps such as sorting scores are thus done once, and a sample that is drawn twice counts twice.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

NUM_RESAMPLES = 1000
_LEAST_RESAMPLES = 100  # enough for the interval of a million samples
_DRAWN_IN_ALL = 5_000_000
_Z_95 = 1.959963984540054  # standard deviations

Floats = NDArray[np.float64]


class Estimate(NamedTuple):
    """A value with its 95 % interval and the number of samples."""

    value: float
    low: float
    high: float
    num_samples: int


Statistic = Callable[[Floats], float]
"""Function from weights (samples,) to a value; NaN if the value is undefined for the weights."""


def bootstrap(
    statistic: Statistic,
    num_samples: int,
    seed: int = 0,
    clusters: Sequence[str] | None = None,
    num_resamples: int = NUM_RESAMPLES,
) -> Estimate:
    """Resample with replacement (Efron 1979) and take the 2.5th and 97.5th percentiles.

    The interval is NaN where there is a single sample or cluster: it shows no variation.

    Args:
        statistic: function from weights to a value.
        num_samples: number of samples.
        seed: seed of the resampling.
        clusters: one name per sample, such as its chromosome; samples with the same name are not
            independent and are drawn together (Field and Welsh 2007).
        num_resamples: number of resamples.
    """
    value = statistic(np.ones(num_samples))
    drawn = resamples(num_samples, seed, clusters, num_resamples)
    draws = [statistic(weights) for weights in drawn]
    defined = [draw for draw in draws if not np.isnan(draw)]
    low, high = np.percentile(defined, [2.5, 97.5]) if defined else (np.nan, np.nan)
    return Estimate(value, float(low), float(high), num_samples)


def affordable_resamples(num_samples: int) -> int:
    """Return the number of resamples to draw, fewer for millions of samples."""
    return int(np.clip(_DRAWN_IN_ALL // max(num_samples, 1), _LEAST_RESAMPLES, NUM_RESAMPLES))


def resamples(
    num_samples: int,
    seed: int,
    clusters: Sequence[str] | None = None,
    num_resamples: int = NUM_RESAMPLES,
) -> Iterator[Floats]:
    """Yield for each resample how often each sample was drawn, as (num_samples,) weights.

    A single sample or cluster yields none: every resample would equal it.
    """
    random = np.random.default_rng(seed)
    cluster_of: NDArray[np.int64] = np.arange(num_samples)
    if clusters is not None:
        cluster_of = np.unique(np.asarray(clusters, dtype=str), return_inverse=True)[1]
    num_clusters = int(cluster_of.max(initial=-1)) + 1
    for _ in range(num_resamples if num_clusters > 1 else 0):
        drawn = random.integers(num_clusters, size=num_clusters)
        yield np.bincount(drawn, minlength=num_clusters)[cluster_of].astype(np.float64)


def mean_of(values: Floats) -> Statistic:
    """Return the weighted mean of values as a statistic."""
    return ratio_of(values, np.ones(len(values)))


def ratio_of(totals: Floats, parts: Floats) -> Statistic:
    """Return sum(totals) / sum(parts) as a statistic, for samples of unequal size.

    With weights of one it equals the quotient of numpy's sums, bit for bit.
    """

    def of(weights: Floats) -> float:
        return float((weights * totals).sum() / (weights * parts).sum())

    return of


def mean(values: Floats) -> Estimate:
    """Return the mean of independent samples with its interval."""
    return bootstrap(mean_of(values), len(values))


def ratio(totals: Floats, parts: Floats, seed: int = 0) -> Estimate:
    """Return sum(totals) / sum(parts) with its interval."""
    return bootstrap(ratio_of(totals, parts), len(totals), seed)


def difference(
    first: Statistic,
    second: Statistic,
    num_samples: int,
    seed: int = 0,
    clusters: Sequence[str] | None = None,
) -> Estimate:
    """Return first - second on the same samples; each resample is drawn once for both.

    Variation that both share cancels, so the interval is narrower than the two single intervals
    suggest. If it includes zero, no difference is shown.
    """
    return bootstrap(lambda w: first(w) - second(w), num_samples, seed, clusters)


def wilson(num_successes: int, num_trials: int) -> Estimate:
    """Return a proportion with Wilson's interval (1927), which is also valid near 0 and 1."""
    if not num_trials:
        return Estimate(float("nan"), float("nan"), float("nan"), 0)
    share, extra = num_successes / num_trials, _Z_95**2 / num_trials
    middle = (share + extra / 2) / (1 + extra)
    half = np.sqrt(share * (1 - share) * extra + extra**2 / 4) / (1 + extra)
    return Estimate(share, float(middle - half), float(middle + half), num_trials)


def shown_sign(low: float | None, high: float | None) -> int:
    """Return the sign of a difference if its interval excludes 0, else 0.

    Args:
        low: lower end of the interval; None or NaN without an interval.
        high: upper end.
    """
    if low is None or high is None:
        return 0
    return int(low > 0) - int(high < 0)


def inside_noise(estimate: Estimate) -> bool:
    """Return whether the interval of a difference includes zero or is missing."""
    return shown_sign(estimate.low, estimate.high) == 0


def verdict(
    subject: str, other: str, difference: Mapping[str, Any], text: Callable[[Any], str]
) -> str:
    """Return a sentence on whether the subject scores higher or lower than the other.

    A difference is stated only if its interval excludes 0. If the subject scores lower, the
    difference is written as a positive amount with its interval.

    Args:
        subject: name of the first model, such as "The model".
        other: name of the model that it is compared with.
        difference: `value`, `low` and `high` of the subject's score minus the other's, so that
            positive is better; None or NaN without an interval.
        text: formats such an estimate.
    """
    sign = shown_sign(difference["low"], difference["high"])
    if sign > 0:
        return f"{subject} is ahead of {other} by {text(difference)}."
    if sign < 0:
        return f"{subject} is behind {other} by {text(_negated(difference))}."
    return (
        f"No difference is shown between {subject[:1].lower()}{subject[1:]} and {other}: "
        f"{text(difference)}{_why(difference)}."
    )


def _negated(difference: Mapping[str, Any]) -> dict[str, Any]:
    value, low, high = (difference[key] for key in ("value", "low", "high"))
    return {**difference, "value": -value, "low": -high, "high": -low}


def _why(difference: Mapping[str, Any]) -> str:
    ends = difference["low"], difference["high"]
    has_interval = all(end is not None and not math.isnan(end) for end in ends)
    return ", an interval that includes 0" if has_interval else ", without an interval"
