"""Linear answers from vectors: how one is fitted for each kind of question."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.adapt.question import Question
from carbon.errors import UserError

Floats = NDArray[np.float64]

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Of what is learned against the penalty on the square of the weights, times examples: C."""


class Linear(NamedTuple):
    """A linear map, of vectors as they are.

    Attributes:
        weight: (outputs, width).
        bias: (outputs,).
    """

    weight: Floats
    bias: Floats

    def logits(self, vectors: NDArray[Any]) -> Floats:
        """Return (N, outputs) of (N, width)."""
        found: Floats = vectors @ self.weight.T + self.bias
        return found


Fit = Callable[[Floats, Floats, Floats, float], tuple[Floats, Floats]]
"""From vectors, targets (rows, columns), their weights and C to weight and bias."""


def _logistic_columns(
    vectors: Floats, targets: Floats, weights: Floats, strength: float
) -> tuple[Floats, Floats]:
    """Fit a logistic regression for each column."""
    rows = []
    for column, weight in zip(targets.T, weights.T, strict=True):
        known = weight > 0
        rows.append(_logistic(vectors[known], column[known], weight[known], strength))
    weight, bias = zip(*rows, strict=True)
    return np.concatenate(weight), np.concatenate(bias)


def _logistic(vectors: Floats, targets: Floats, weights: Floats, strength: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(targets)) < 2:
        raise UserError("what is learned from has one class only; give others too")
    model = LogisticRegression(C=strength, max_iter=300)
    model.fit(vectors, targets, sample_weight=weights)
    return model.coef_, model.intercept_


def _softmax(
    vectors: Floats, targets: Floats, weights: Floats, strength: float
) -> tuple[Floats, Floats]:
    """Fit one regression of all classes; of two, sklearn gives the logit of the second."""
    known = weights[:, 0] > 0
    weight, bias = _logistic(vectors[known], targets[known, 0], weights[known, 0], strength)
    if len(weight) == 1:
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    return weight, bias


def _ridge(
    vectors: Floats, targets: Floats, weights: Floats, strength: float
) -> tuple[Floats, Floats]:
    """Fit a ridge regression for each column."""
    from sklearn.linear_model import Ridge

    rows = []
    for column, weight in zip(targets.T, weights.T, strict=True):
        known = weight > 0
        model = Ridge(alpha=1 / strength)
        rows.append(model.fit(vectors[known], column[known]))
    return np.stack([row.coef_ for row in rows]), np.array([row.intercept_ for row in rows])


FITS: dict[str, Fit] = {
    "binary": _logistic_columns,
    "labels": _logistic_columns,
    "classes": _softmax,
    "numbers": _ridge,
}
"""By kind of question; what every base has no one vector for is not among them."""


def fit(question: Question, vectors: NDArray[Any], labels: NDArray[Any], strength: float) -> Linear:
    """Fit to standardised vectors, and fold the scale into the map.

    Args:
        question: a kind of `FITS`.
        vectors: (rows, width).
        labels: (rows, columns), NaN where unknown.
        strength: C.
    """
    import torch

    vectors = np.asarray(vectors, dtype=np.float64)
    mean, scale = vectors.mean(axis=0), vectors.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    targets = question.targets(labels)
    weights = question.weights_of(torch.from_numpy(targets)).numpy()
    standard = (vectors - mean) / scale
    weight, bias = FITS[question.kind](
        standard, targets.astype(np.float64), weights.astype(np.float64), strength
    )
    weight = weight / scale
    return Linear(weight, bias - weight @ mean)
