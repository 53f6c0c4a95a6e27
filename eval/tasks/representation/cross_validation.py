"""Classification by support vector machines, cross-validated with whole groups.

Layer and kernel are chosen inside of each training part, by another cross-validation. So trying
many choices does not raise the share of correct windows.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from carbon.errors import UserError
from carbon.uncertainty import Floats
from eval.contract import Features

KERNELS = ("linear", "rbf")
_FOLDS, _INNER_FOLDS = 5, 3


class Choice(NamedTuple):
    """A layer, by its name, and a kernel."""

    layer: str
    kernel: str


class Read(NamedTuple):
    """The classification by some features.

    Attributes:
        right: (windows,) 1 where the chosen layer and kernel give the class, 0 elsewhere.
        each: the same of every layer and kernel.
        chosen: the choice of each fold.
    """

    right: Floats
    each: dict[Choice, Floats]
    chosen: list[Choice]


class Folds:
    """Windows in parts that share no group.

    Attributes:
        labels: (windows,) index of the class.
        groups: (windows,) names.
        parts: of each fold the numbers of the windows that are learned from, and of the others.
    """

    def __init__(self, labels: Sequence[int], groups: Sequence[str], seed: int) -> None:
        """Divide by a seed.

        Raises:
            UserError: a class has windows of one group only.
        """
        self.labels, self.groups = np.array(labels), np.array(groups)
        self.seed = seed
        parts = self._divided(np.arange(len(self.labels)), _FOLDS)
        if not parts:
            raise UserError("a class has windows of one gene or block only; give more sequence")
        self.parts = parts

    def inside(self, rows: NDArray[np.int64]) -> list[tuple[Any, Any]]:
        """Divide some windows further; nothing where a class has windows of one group only."""
        return self._divided(rows, _INNER_FOLDS)

    def _divided(self, rows: NDArray[np.int64], most: int) -> list[tuple[Any, Any]]:
        labels, groups = self.labels[rows], self.groups[rows]
        fewest = min(len(set(groups[labels == label])) for label in np.unique(self.labels))
        if fewest < 2:
            return []
        folds = StratifiedGroupKFold(min(most, fewest), shuffle=True, random_state=self.seed)
        return [(rows[a], rows[b]) for a, b in folds.split(rows, labels, groups)]


def read(features: Features, folds: Folds) -> Read:
    """Classify each window by machines that have seen no window of its group."""
    candidates = [Choice(layer, kernel) for layer in features for kernel in KERNELS]
    each = {choice: np.zeros(len(folds.labels)) for choice in candidates}
    right, chosen = np.zeros(len(folds.labels)), []
    for train, test in folds.parts:
        for choice in candidates:
            each[choice][test] = _right(features, choice, folds, train, test)
        best = _best(features, candidates, folds, train)
        right[test] = each[best][test]
        chosen.append(best)
    return Read(right, each, chosen)


def _best(
    features: Features, candidates: Sequence[Choice], folds: Folds, train: NDArray[np.int64]
) -> Choice:
    """Return the best choice inside of a training part; the first of equals, or without any."""
    inner = folds.inside(train)
    if not inner or len(candidates) == 1:
        return candidates[0]
    sums = [
        sum(_right(features, choice, folds, a, b).sum() for a, b in inner) for choice in candidates
    ]
    return candidates[int(np.argmax(sums))]


def _right(
    features: Features, choice: Choice, folds: Folds, train: NDArray[np.int64], test: NDArray[Any]
) -> Floats:
    """Return 1 for each window of `test` that is classified correctly, learning from `train`."""
    vectors = features[choice.layer]
    machine = make_pipeline(StandardScaler(), SVC(kernel=choice.kernel))
    machine.fit(vectors[train], folds.labels[train])
    found: Floats = (machine.predict(vectors[test]) == folds.labels[test]).astype(np.float64)
    return found
