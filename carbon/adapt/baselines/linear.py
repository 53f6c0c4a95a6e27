"""Linear answers: logistic or ridge regression, its strength chosen on the validation part.

What comes out is weights and a bias, in the unit of the features, so that it is written and read
without scikit-learn.
"""

import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.adapt.question import Floats32, Question
from carbon.errors import UserError

Floats = NDArray[np.float64]

LOGISTIC_C = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Of mean losses of standardised features times their number, as in scikit-learn; rising."""
RIDGE_ALPHA = tuple(float(10.0**power) for power in range(5, -3, -1))
_MOST_STEPS = 300


class Linear(NamedTuple):
    """Logits of features.

    Attributes:
        weights: (outputs, features).
        bias: (outputs,).
    """

    weights: Floats
    bias: Floats

    def logits(self, features: NDArray[Any]) -> Floats:
        """Return logits, (rows, outputs), of features, (rows, features)."""
        found: Floats = features @ self.weights.T + self.bias
        return found


class Fitted(NamedTuple):
    """What was chosen.

    Attributes:
        linear: the answer.
        strength: C, or alpha of numbers.
        score: that it was chosen by, on the validation part.
    """

    linear: Linear
    strength: float
    score: float


def fit_linear(
    train: tuple[Floats32, Floats32],
    validation: tuple[Floats32, Floats32],
    question: Question,
) -> Fitted:
    """Fit by each strength, and keep that which is best on the validation part.

    Args:
        train: features (rows, features), and labels (rows, columns) in the unit of the file.
        validation: likewise.
        question: what is asked; its transforms and class weights are taken into account.

    Raises:
        UserError: scikit-learn is not there.
    """
    _check_installed()
    mean, sd = train[0].mean(axis=0, dtype=np.float64), train[0].std(axis=0, dtype=np.float64)
    sd[sd == 0] = 1.0
    scaled = ((train[0] - mean) / sd).astype(np.float32)
    fits = _ridges if question.of_kind.is_number else _logistics
    best: Fitted | None = None
    for strength, linear in fits(scaled, train[1], question):
        weights = linear.weights / sd
        folded = Linear(weights, linear.bias - weights @ mean)
        said = question.predictions(folded.logits(validation[0]))
        score = question.score(said, validation[1])
        if best is None or score > best.score or np.isnan(best.score):
            best = Fitted(folded, strength, score)
    assert best is not None
    return best


def _check_installed() -> None:
    if find_spec("sklearn") is None:
        raise UserError("scikit-learn is not there: pip install scikit-learn, or baselines = []")


def _logistics(
    features: Floats32, labels: Floats32, question: Question
) -> Iterator[tuple[float, Linear]]:
    models = [_Logistic(features, column) for column in labels.T]
    for strength in LOGISTIC_C:
        found = [model.fit(strength, _class_weights(question, i)) for i, model in enumerate(models)]
        weights, bias = (np.concatenate(part) for part in zip(*found, strict=True))
        if question.num_outputs > len(weights):
            # Of two classes scikit-learn has one logit, which is the difference of theirs.
            weights, bias = (np.concatenate([-each, each]) / 2 for each in (weights, bias))
        yield strength, Linear(weights, bias)


def _class_weights(question: Question, column: int) -> dict[float, float] | None:
    """Return the weight of each value of a column of labels."""
    weights = question.class_weights
    if not weights:
        return None
    if question.of_kind.one_column:
        return {float(i): weight for i, weight in enumerate(weights)}
    return {0.0: 1.0, 1.0: weights[column]}


class _Logistic:
    """Regression of one column, each fit going on from the last."""

    def __init__(self, features: Floats32, labels: Floats32) -> None:
        known = ~np.isnan(labels)
        self._labels = labels[known]
        self._features = features if known.all() else features[known]
        self._model: Any = None

    def fit(self, c: float, class_weights: dict[float, float] | None) -> tuple[Floats, Floats]:
        """Return weights, (outputs, features), and bias, (outputs,)."""
        if len(np.unique(self._labels)) < 2:
            # Nothing of the label's other value is known: it is always said.
            logit = 20.0 if self._labels.any() else -20.0
            return np.zeros((1, self._features.shape[1])), np.array([logit])
        if self._model is None:
            self._model = _sklearn_logistic(class_weights)
        self._model.C = c
        with warnings.catch_warnings():
            # Weak regularisation may not converge; the validation part chooses what there is.
            warnings.simplefilter("ignore")
            self._model.fit(self._features, self._labels)
        return self._model.coef_.astype(np.float64), self._model.intercept_.astype(np.float64)


def _sklearn_logistic(class_weights: dict[float, float] | None) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(
        class_weight=class_weights, max_iter=_MOST_STEPS, tol=1e-3, warm_start=True
    )


def _ridges(
    features: Floats32, labels: Floats32, question: Question
) -> Iterator[tuple[float, Linear]]:
    """Solve by each alpha; columns that are known of the same rows are solved together."""
    targets = question.targets(labels)
    known = ~np.isnan(targets)
    if known.all():
        solvers = [_ridge_solver(features, targets)]
    else:
        columns = [(rows, targets[rows, i : i + 1]) for i, rows in enumerate(known.T)]
        solvers = [_ridge_solver(features[rows], column) for rows, column in columns]
    for alpha in RIDGE_ALPHA:
        parts = zip(*(solve(alpha) for solve in solvers), strict=True)
        yield alpha, Linear(*(np.concatenate(part) for part in parts))


Solver = Callable[[float], tuple[Floats, Floats]]


def _ridge_solver(features: Floats32, targets: Floats32) -> Solver:
    """Return what solves (X'X + alpha) w = X'y of centred values, for any alpha.

    Of fewer rows than features, w = X' (XX' + alpha)^-1 y is the same and smaller.
    """
    from scipy.linalg import solve as solved

    center, bias = features.mean(axis=0, dtype=np.float64), targets.mean(axis=0, dtype=np.float64)
    x, y = features - center.astype(np.float32), targets - bias.astype(np.float32)
    by_rows = len(x) < x.shape[1]
    squares = (x @ x.T if by_rows else x.T @ x).astype(np.float64)
    products = y if by_rows else x.T @ y

    def solve(alpha: float) -> tuple[Floats, Floats]:
        left = squares + alpha * np.eye(len(squares))
        found = solved(left, products, assume_a="pos", overwrite_a=True)
        weights = (x.T @ found if by_rows else found).T
        return weights, bias - weights @ center

    return solve
