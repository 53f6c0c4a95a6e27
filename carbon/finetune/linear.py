"""Linear predictors: logistic or ridge regression, with the strength chosen on the validation
split.

A fitted predictor is weights and a bias in the unit of the features, so saving and loading one does
not need scikit-learn.
"""

import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.finetune.tasks import Floats32, LabelTask

Floats = NDArray[np.float64]

LOGISTIC_C = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Inverse regularisation strengths of scikit-learn, in rising order."""
RIDGE_ALPHA = tuple(float(10.0**power) for power in range(5, -3, -1))
_MOST_STEPS = 300
_SURE = 20.0  # logit of a class that is certain


class Linear(NamedTuple):
    """A linear map from features to logits.

    Attributes:
        weights: (outputs, features).
        bias: (outputs,).
    """

    weights: Floats
    bias: Floats

    def logits(self, features: NDArray[Any]) -> Floats:
        """Return logits, (rows, outputs), of features, (rows, features)."""
        logits: Floats = features @ self.weights.T + self.bias
        return logits


class LinearFit(NamedTuple):
    """The best fit.

    Attributes:
        linear: the predictor.
        strength: C, or alpha for numbers.
        score: its score on the validation split.
    """

    linear: Linear
    strength: float
    score: float


def fit_linear(
    train: tuple[Floats32, Floats32],
    validation: tuple[Floats32, Floats32],
    task: LabelTask,
) -> LinearFit:
    """Fit with each strength and return the fit with the best validation score.

    Args:
        train: features (rows, features), and labels (rows, columns) in the unit of the file. For a
            label of every base a row may hold several bases, each in its own column with its own
            map; outputs are ordered by base.
        validation: likewise.
        task: its transforms and class weights apply.

    Raises:
        UserError: scikit-learn is not installed.
    """
    _check_installed()
    mean, sd = train[0].mean(axis=0, dtype=np.float64), train[0].std(axis=0, dtype=np.float64)
    sd[sd == 0] = 1.0
    scaled = ((train[0] - mean) / sd).astype(np.float32)
    fits = _ridges if task.task_type.is_number else _logistics
    best: LinearFit | None = None
    for strength, linear in fits(scaled, train[1], task):
        weights = linear.weights / sd
        folded = Linear(weights, linear.bias - weights @ mean)
        logits = folded.logits(validation[0]).reshape(-1, task.num_outputs)
        labels = validation[1].reshape(-1, task.num_columns)
        score = task.score(task.predictions(logits), labels)
        if best is None or score > best.score or np.isnan(best.score):
            best = LinearFit(folded, strength, score)
    assert best is not None
    return best


def _check_installed() -> None:
    if find_spec("sklearn") is None:
        raise UserError(
            "scikit-learn is not installed: pip install scikit-learn, or baselines = []"
        )


def _logistics(
    features: Floats32, labels: Floats32, task: LabelTask
) -> Iterator[tuple[float, Linear]]:
    is_one_of = task.task_type.one_column
    num_logits = task.num_outputs if is_one_of else 1
    models = [_Logistic(features, column, num_logits) for column in labels.T]
    for strength in LOGISTIC_C:
        fits = [model.fit(strength, _class_weights(task, i)) for i, model in enumerate(models)]
        weights, bias = (np.concatenate(arrays) for arrays in zip(*fits, strict=True))
        yield strength, Linear(weights, bias)


def _class_weights(task: LabelTask, column: int) -> dict[float, float] | None:
    """Return the weight of each value of a label column."""
    weights = task.class_weights
    if not weights:
        return None
    if task.task_type.one_column:
        return {float(i): weight for i, weight in enumerate(weights)}
    return {0.0: 1.0, 1.0: weights[column]}


class _Logistic:
    """Logistic regression of one column, each fit starting from the previous one.

    It has one logit, for the label 1, or one for each class, whose indices are the labels.
    """

    def __init__(self, features: Floats32, labels: Floats32, num_logits: int) -> None:
        known = ~np.isnan(labels)
        self._num_logits = num_logits
        self._labels = labels[known]
        self._features = features if known.all() else features[known]
        self._model: Any = None

    def fit(self, c: float, class_weights: dict[float, float] | None) -> tuple[Floats, Floats]:
        """Return weights, (outputs, features), and bias, (outputs,)."""
        values = np.unique(self._labels).astype(np.int64)
        if len(values) < 2:
            return self._constant(values)
        if self._model is None:
            self._model = _sklearn_logistic(class_weights)
        self._model.C = c
        with warnings.catch_warnings():
            # Weak regularisation may not converge; the validation score decides.
            warnings.simplefilter("ignore")
            self._model.fit(self._features, self._labels)
        rows = np.column_stack([self._model.coef_, self._model.intercept_]).astype(np.float64)
        if self._num_logits > 1:
            rows = self._by_class(rows, values)
        return rows[:, :-1], rows[:, -1]

    def _constant(self, values: NDArray[np.int64]) -> tuple[Floats, Floats]:
        bias = np.full(self._num_logits, -_SURE)
        bias[values if self._num_logits > 1 else values[values == 1] - 1] = _SURE
        return np.zeros((self._num_logits, self._features.shape[1])), bias

    def _by_class(self, rows: Floats, values: NDArray[np.int64]) -> Floats:
        """Return a row for each class; a class without examples gets a negligible probability."""
        if len(values) == 2:
            # For two classes scikit-learn has one logit, the difference between theirs.
            rows = np.concatenate([-rows, rows]) / 2
        all_rows = np.zeros((self._num_logits, rows.shape[1]))
        all_rows[:, -1] = -_SURE
        all_rows[values] = rows
        return all_rows


def _sklearn_logistic(class_weights: dict[float, float] | None) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(
        class_weight=class_weights, max_iter=_MOST_STEPS, tol=1e-3, warm_start=True
    )


def _ridges(
    features: Floats32, labels: Floats32, task: LabelTask
) -> Iterator[tuple[float, Linear]]:
    """Fit with each alpha; columns that are known for the same rows are fitted together."""
    targets = task.targets(labels)
    known = ~np.isnan(targets)
    if known.all():
        fits = [_fit_ridge(features, targets)]
    else:
        columns = [(rows, targets[rows, i : i + 1]) for i, rows in enumerate(known.T)]
        fits = [_fit_ridge(features[rows], column) for rows, column in columns]
    for n, alpha in enumerate(RIDGE_ALPHA):
        weights, bias = (np.concatenate([fit[i][n] for fit in fits]) for i in (0, 1))
        yield alpha, Linear(weights, bias)


def _fit_ridge(features: Floats32, targets: Floats32) -> tuple[Floats, Floats]:
    """Return weights, (alphas, columns, features), and bias, (alphas, columns)."""
    from sklearn.linear_model import Ridge

    num_alphas, num_columns = len(RIDGE_ALPHA), targets.shape[1]
    # With an alpha for each target, scikit-learn computes the Gram matrix only once.
    model = Ridge(np.repeat(RIDGE_ALPHA, num_columns), solver="cholesky", copy_X=False)
    model.fit(features.astype(np.float64), np.tile(targets.astype(np.float64), (1, num_alphas)))
    shape = num_alphas, num_columns
    return model.coef_.reshape(*shape, -1), np.reshape(model.intercept_, shape)
