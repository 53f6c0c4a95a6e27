"""What is asked of a sequence: a table of kinds, and a question as a value.

A kind says what its labels, logits and predictions are. Adding one is an entry of `QUESTIONS`, with
its scores in `carbon.finetune.metrics.SCORES`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from carbon.finetune.config import LOSSES_OF
from carbon.finetune.data import Transform
from carbon.finetune.metrics import first_score, scores_of
from carbon.uncertainty import Estimate

if TYPE_CHECKING:
    from torch import Tensor

Floats32 = NDArray[np.float32]


class Kind(NamedTuple):
    """A kind of question.

    Attributes:
        says: in a few words, for help and reports.
        losses: that it can be learned by, the default first.
        answer: from logits (rows, outputs) to predictions of the same shape.
        per_base: every base has a row.
        one_column: the label is one of the names; otherwise there is a column for each name.
        one_logit: two names share one logit, that of the second.
        is_number: labels are numbers, which transforms may change.
    """

    says: str
    losses: tuple[str, ...]
    answer: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    per_base: bool = False
    one_column: bool = False
    one_logit: bool = False
    is_number: bool = False


def _sigmoid(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    return 0.5 * (1 + np.tanh(0.5 * logits))


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    found: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return found


QUESTIONS: dict[str, Kind] = {
    "binary": Kind(
        "one of two classes", LOSSES_OF["binary"], _sigmoid, one_column=True, one_logit=True
    ),
    "classes": Kind("one of many classes", LOSSES_OF["classes"], _softmax, one_column=True),
    "labels": Kind("any of many labels", LOSSES_OF["labels"], _sigmoid),
    "numbers": Kind(
        "one or more numbers", LOSSES_OF["numbers"], lambda logits: logits, is_number=True
    ),
    "bases": Kind(
        "a class of every base", LOSSES_OF["bases"], _softmax, per_base=True, one_column=True
    ),
}


@dataclass(frozen=True)
class Question:
    """What is asked, learned and measured.

    Attributes:
        kind: key of `QUESTIONS`.
        names: of the two or more classes, the labels or the numbers; the second of two is the one
            whose probability is predicted.
        loss: key of `carbon.finetune.losses.LOSSES`.
        transforms: of numbers, one each; none where nothing is changed.
        class_weights: one a class; of `labels`, of the examples that have each label, beside 1 of
            those that do not. All alike where empty.
    """

    kind: str
    names: tuple[str, ...]
    loss: str
    transforms: tuple[Transform, ...] = ()
    class_weights: tuple[float, ...] = field(default=())

    @property
    def of_kind(self) -> Kind:
        """What is known of its kind."""
        return QUESTIONS[self.kind]

    @property
    def num_outputs(self) -> int:
        """Logits a row, and predictions."""
        return 1 if self.of_kind.one_logit else len(self.names)

    @property
    def num_columns(self) -> int:
        """Labels a row."""
        return 1 if self.of_kind.one_column else len(self.names)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Of the predictions: of two classes the second alone."""
        return self.names[-1:] if self.of_kind.one_logit else self.names

    @property
    def per_base(self) -> bool:
        """Whether every base has a row."""
        return self.of_kind.per_base

    def targets(self, labels: NDArray[Any]) -> Floats32:
        """Return what `loss_of` takes of labels, (rows, columns): numbers are transformed."""
        if not self.transforms:
            return np.asarray(labels, dtype=np.float32)
        columns = [t.apply(labels[:, i]) for i, t in enumerate(self.transforms)]
        return np.stack(columns, axis=1).astype(np.float32)

    def weights_of(self, targets: "Tensor") -> "Tensor":
        """Return the weight of each target, (rows, columns); 0 where it is unknown.

        Their sum over all rows of an optimizer step, on all processes, is the `total_weight` that
        `loss_of` takes where a step is accumulated of parts.
        """
        import torch

        known = ~torch.isnan(targets)
        if not self.class_weights:
            return known.float()
        weights = torch.tensor(self.class_weights, dtype=torch.float32, device=targets.device)
        index = torch.nan_to_num(targets)
        if self.of_kind.one_column:
            return known * weights[index.long()]
        return known * torch.where(index > 0.5, weights, 1.0)

    def loss_of(
        self,
        logits: "Tensor",
        targets: "Tensor",
        total_weight: "float | Tensor | None" = None,
        *,
        alone: bool = False,
    ) -> "Tensor":
        """Return the loss, of which the mean over processes is that of all rows on all of them.

        Args:
            logits: (rows, num_outputs).
            targets: (rows, num_columns), of `targets`; NaN are left out.
            total_weight: sum of `weights_of` of all rows of the step, where these are a part.
            alone: other processes have no part in it, and are not waited for.
        """
        from carbon.finetune.losses import mean_loss

        weights = self.weights_of(targets)
        return mean_loss(self.loss, logits, targets, weights, total_weight, alone=alone)

    def predictions(self, logits: NDArray[Any]) -> Floats32:
        """Return probabilities, or numbers in their own unit, (rows, num_outputs)."""
        found = self.of_kind.answer(np.array(logits, dtype=np.float64))
        for i, transform in enumerate(self.transforms):
            found[:, i] = transform.undo(found[:, i])
        return found.astype(np.float32)

    def scores(
        self,
        predictions: NDArray[Any],
        labels: NDArray[Any],
        groups: Sequence[str] | None = None,
        seed: int = 0,
    ) -> dict[str, Estimate]:
        """Return scores with 95 % intervals, that which a checkpoint is chosen by first.

        Args:
            predictions: (rows, num_outputs).
            labels: (rows, num_columns), in the unit of the file; NaN are left out.
            groups: (rows,) of `Examples.row_groups`; rows of one name are drawn together.
            seed: of the bootstrap.
        """
        return scores_of(self.kind, self.names, predictions, labels, groups, seed)

    def score(self, predictions: NDArray[Any], labels: NDArray[Any]) -> float:
        """Return the first of `scores` without its interval: a checkpoint is chosen by it.

        Higher is better, whatever is asked.
        """
        return first_score(self.kind, self.names, predictions, labels)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Return what `to_json` wrote."""
        return cls(
            kind=str(found["kind"]),
            names=tuple(found["names"]),
            loss=str(found["loss"]),
            transforms=tuple(Transform.from_json(each) for each in found["transforms"]),
            class_weights=tuple(found["class_weights"]),
        )
