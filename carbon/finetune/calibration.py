"""Recalibrated probabilities: temperature, Platt and isotonic curves of a validation split."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Predict = Callable[[Floats], Floats]
"""Maps logits to probabilities, (rows, outputs) each."""

_MOST_LOG_SLOPE = 3.0  # slopes from 0.05 to 20, also where a split is separated
_AT_BOUND = 1e-3  # distance of a logarithm that counts as the bound


@dataclass(frozen=True)
class Calibration:
    """A fitted recalibration.

    Attributes:
        method: key of `CALIBRATIONS`, but not `none`.
        slopes: of `temperature` and `platt`: the factor of each output's logit.
        intercepts: of `platt`: the number that is added to each output's scaled logit.
        corner_log_odds: of `isotonic`: for each output, log-odds in rising order; none for an
            output that keeps its probabilities.
        corner_probabilities: the calibrated probability of each; between them it is interpolated.
    """

    method: str
    slopes: tuple[float, ...] = ()
    intercepts: tuple[float, ...] = ()
    corner_log_odds: tuple[tuple[float, ...], ...] = ()
    corner_probabilities: tuple[tuple[float, ...], ...] = ()

    @property
    def num_outputs(self) -> int:
        """Outputs that it was fitted to; 0 if its numbers do not fit together."""
        curves = self.corner_log_odds, self.corner_probabilities
        parts = curves if self.method == "isotonic" else (self.slopes, self.intercepts)
        pairs = zip(*curves, strict=False)
        is_whole = len(parts[0]) == len(parts[1]) and all(len(x) == len(y) for x, y in pairs)
        return len(parts[0]) * is_whole

    def notes(self, names: Sequence[str]) -> list[str]:
        """Return a sentence on the temperatures that reached their bound, if any did.

        Args:
            names: of the outputs.
        """
        if self.method != "temperature":
            return []
        is_bounded = np.abs(np.log(self.slopes)) >= _MOST_LOG_SLOPE - _AT_BOUND
        bounded = [name for name, at in zip(names, is_bounded, strict=True) if at]
        if not bounded:
            return []
        return [
            f"The temperature reached its bound for {', '.join(bounded)}: the validation split is "
            "separated, or has no signal. Use platt, or a larger validation split."
        ]

    def apply(self, logits: Floats, predict: Predict, *, is_one_of: bool) -> Floats:
        """Return calibrated probabilities, (rows, outputs).

        Args:
            logits: (rows, outputs).
            predict: maps logits to probabilities.
            is_one_of: whether outputs are classes whose probabilities sum to 1. Platt's and
                isotonic curves calibrate each class against the others, and are then normalised.
        """
        if self.method == "temperature":
            return predict(logits * np.array(self.slopes))
        if self.method == "platt":
            calibrated = sigmoid(self._platt_scores(logits, is_one_of=is_one_of))
        else:
            scores = log_odds(logits) if is_one_of else logits
            curves = zip(scores.T, self.corner_log_odds, self.corner_probabilities, strict=True)
            calibrated = np.stack([_on_curve(*curve) for curve in curves], axis=1)
        return _normalised(calibrated) if is_one_of else calibrated

    def log_odds(self, logits: Floats, predict: Predict, *, is_one_of: bool) -> Floats:
        """Return log(p / (1 - p)) of the probabilities of `apply`, finite where those are 0 or 1.

        An isotonic curve that ends at 0 or 1 has infinite log-odds there. Arguments are those of
        `apply`.
        """
        if self.method == "temperature":
            scores = logits * np.array(self.slopes)
            return log_odds(scores) if is_one_of else scores
        if self.method == "platt":
            scores = self._platt_scores(logits, is_one_of=is_one_of)
            return log_odds(-np.logaddexp(0.0, -scores)) if is_one_of else scores
        return odds_of(self.apply(logits, predict, is_one_of=is_one_of))

    def _platt_scores(self, logits: Floats, *, is_one_of: bool) -> Floats:
        """Return the log-odds of each output before classes are normalised."""
        scores = log_odds(logits) if is_one_of else logits
        scaled: Floats = scores * np.array(self.slopes) + np.array(self.intercepts)
        return scaled


def sigmoid(logits: Floats) -> Floats:
    """Return the logistic function of logits, of any shape."""
    return 0.5 * (1 + np.tanh(0.5 * logits))


def _on_curve(scores: Floats, corners: Sequence[float], probabilities: Sequence[float]) -> Floats:
    """Return the probabilities of a curve at log-odds, (rows,); without corners, their own."""
    return np.interp(scores, corners, probabilities) if corners else sigmoid(scores)


def _normalised(probabilities: Floats) -> Floats:
    """Return rows that sum to 1; equal shares where all are 0."""
    sums = probabilities.sum(axis=1, keepdims=True)
    shares: Floats = np.full_like(probabilities, 1 / probabilities.shape[1])
    np.divide(probabilities, sums, out=shares, where=sums > 0)
    return shares


def odds_of(probabilities: Floats) -> Floats:
    """Return log(p / (1 - p)), infinite for 0 and 1."""
    with np.errstate(divide="ignore"):
        odds: Floats = np.log(probabilities) - np.log1p(-probabilities)
    return odds


def log_odds(logits: Floats) -> Floats:
    """Return log(p / (1 - p)) of each class, (rows, classes)."""
    others = [np.delete(logits, i, axis=1) for i in range(logits.shape[1])]
    totals = [np.logaddexp.reduce(each, axis=1) for each in others]
    odds: Floats = logits - np.stack(totals, axis=1)
    return odds


def fit_calibration(
    method: str, logits: Floats, labels: NDArray[Any], *, is_one_of: bool
) -> Calibration:
    """Return the recalibration that fits labels best.

    Args:
        method: key of `CALIBRATIONS`, but not `none`.
        logits: (rows, outputs) of the validation split.
        labels: (rows, columns): class indices of `is_one_of`, otherwise a column of 0 and 1 for
            each output. NaN are ignored.
        is_one_of: as in `Calibration.apply`.
    """
    logits = np.asarray(logits, dtype=np.float64)
    if is_one_of:
        rows = ~np.isnan(labels[:, 0])
        logits, classes = logits[rows], labels[rows, 0].astype(np.int64)
        if method == "temperature":
            chosen = np.arange(len(classes)), classes
            slope = _slope(lambda slope: _cross_entropy(slope * logits, chosen))
            return Calibration(method, (slope,) * logits.shape[1], (0.0,) * logits.shape[1])
        labels = np.eye(logits.shape[1])[classes]
    columns = list(_known_columns(log_odds(logits) if is_one_of else logits, labels))
    if method == "isotonic":
        curves = [_isotonic(scores, events) for scores, events in columns]
        corners, probabilities = zip(*curves, strict=True)
        return Calibration(method, corner_log_odds=corners, corner_probabilities=probabilities)
    fit = {"temperature": _temperature, "platt": _platt}[method]
    fits = [
        fit(scores, events) if len(np.unique(events)) > 1 else (1.0, 0.0)
        for scores, events in columns
    ]
    slopes, intercepts = zip(*fits, strict=True)
    return Calibration(method, slopes, intercepts)


def _known_columns(scores: Floats, labels: NDArray[Any]) -> Iterator[tuple[Floats, Floats]]:
    """Yield log-odds and events of each output, where its label is known."""
    for score, label in zip(scores.T, labels.T, strict=True):
        known = ~np.isnan(label)
        yield score[known], label[known].astype(np.float64)


def _slope(loss: Callable[[float], float]) -> float:
    """Return the factor of logits, 0.05 to 20, with the smallest loss, which is convex in it.

    It is the upper bound if the loss of a separated split vanishes before.
    """
    from scipy.optimize import minimize_scalar

    bounds = (-_MOST_LOG_SLOPE, _MOST_LOG_SLOPE)

    def of_log(log: float) -> float:
        return loss(float(np.exp(log)))

    inside = float(minimize_scalar(of_log, bounds=bounds, method="bounded").x)
    return float(np.exp(min(bounds[1], bounds[0], inside, key=of_log)))


def _cross_entropy(logits: Floats, chosen: tuple[NDArray[Any], NDArray[Any]]) -> float:
    """Return the mean cross-entropy of the chosen cells, rows and their classes, in nats."""
    return float((np.logaddexp.reduce(logits, axis=1) - logits[chosen]).mean())


def _temperature(scores: Floats, events: Floats) -> tuple[float, float]:
    """Return the slope with the smallest cross-entropy (Guo et al. 2017), and 0."""
    signs = np.where(events > 0.5, -1.0, 1.0)
    return _slope(lambda slope: float(np.logaddexp(0.0, signs * slope * scores).mean())), 0.0


def _platt(scores: Floats, events: Floats) -> tuple[float, float]:
    """Return slope and intercept of a logistic regression on Platt's smoothed targets (1999)."""
    from sklearn.linear_model import LogisticRegression

    num_positive, num_negative = events.sum(), (1 - events).sum()
    positive, negative = (num_positive + 1) / (num_positive + 2), 1 / (num_negative + 2)
    shares = np.where(events > 0.5, positive, negative)
    # A target between 0 and 1 is a row of either class, weighted by its share.
    twice = np.concatenate([scores, scores])[:, None]
    classes = np.repeat([1, 0], len(scores))
    model = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000)
    model.fit(twice, classes, sample_weight=np.concatenate([shares, 1 - shares]))
    return float(model.coef_[0, 0]), float(model.intercept_[0])


def _isotonic(scores: Floats, events: Floats) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the corners of the rising curve with the smallest squared error.

    Its places are log-odds, which keep the order of logits that all have the probability 1. For a
    single value it has no corners: a class that is absent would be impossible for ever.
    """
    from sklearn.isotonic import IsotonicRegression

    if len(np.unique(events)) < 2:
        return (), ()
    model = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    model.fit(scores, events)
    return tuple(model.X_thresholds_.tolist()), tuple(model.y_thresholds_.tolist())
