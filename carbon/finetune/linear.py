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

from carbon.errors import UserError
from carbon.finetune.tasks import Floats32, Question

Floats = NDArray[np.float64]

LOGISTIC_C = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Of mean losses of standardised features times their number, as in scikit-learn; rising."""
RIDGE_ALPHA = tuple(float(10.0**power) for power in range(5, -3, -1))
_MOST_STEPS = 300
_SURE = 20.0  # a logit that leaves no doubt


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
        train: features (rows, features), and labels (rows, columns) in the unit of the file. Of
            a label of every base a row may hold several bases, each in a column with a map of its
            own: then the outputs of the first base come first.
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
        logits = folded.logits(validation[0]).reshape(-1, question.num_outputs)
        labels = validation[1].reshape(-1, question.num_columns)
        score = question.score(question.predictions(logits), labels)
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
    is_one_of = question.of_kind.one_column
    num_logits = question.num_outputs if is_one_of else 1
    models = [_Logistic(features, column, num_logits) for column in labels.T]
    for strength in LOGISTIC_C:
        found = [model.fit(strength, _class_weights(question, i)) for i, model in enumerate(models)]
        weights, bias = (np.concatenate(part) for part in zip(*found, strict=True))
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
    """Regression of one column, each fit going on from the last.

    It has one logit, that of the label 1, or one for each class, the indices of which are labels.
    """

    def __init__(self, features: Floats32, labels: Floats32, num_logits: int) -> None:
        known = ~np.isnan(labels)
        self._num_logits = num_logits
        self._labels = labels[known]
        self._features = features if known.all() else features[known]
        self._model: Any = None

    def fit(self, c: float, class_weights: dict[float, float] | None) -> tuple[Floats, Floats]:
        """Return weights, (outputs, features), and bias, (outputs,)."""
        there = np.unique(self._labels).astype(np.int64)
        if len(there) < 2:
            # Nothing of the label's other values is known: it is always said.
            return self._constant(there)
        if self._model is None:
            self._model = _sklearn_logistic(class_weights)
        self._model.C = c
        with warnings.catch_warnings():
            # Weak regularisation may not converge; the validation part chooses what there is.
            warnings.simplefilter("ignore")
            self._model.fit(self._features, self._labels)
        found = np.column_stack([self._model.coef_, self._model.intercept_]).astype(np.float64)
        if self._num_logits > 1:
            found = self._by_class(found, there)
        return found[:, :-1], found[:, -1]

    def _constant(self, there: NDArray[np.int64]) -> tuple[Floats, Floats]:
        bias = np.full(self._num_logits, -_SURE)
        bias[there if self._num_logits > 1 else there[there == 1] - 1] = _SURE  # one logit is of 1
        return np.zeros((self._num_logits, self._features.shape[1])), bias

    def _by_class(self, found: Floats, there: NDArray[np.int64]) -> Floats:
        """Return a row for each class; one that is not there is said never."""
        if len(there) == 2:
            # Of two classes scikit-learn has one logit, which is the difference of theirs.
            found = np.concatenate([-found, found]) / 2
        whole = np.zeros((self._num_logits, found.shape[1]))
        whole[:, -1] = -_SURE
        whole[there] = found
        return whole


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
