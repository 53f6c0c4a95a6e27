"""Task types and fitted tasks: labels, logits, predictions, losses and scores.

A new task type is an entry of `TASK_TYPES`: what is predicted, trained, scored and reported.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.finetune.calibration import Calibration, fit_calibration, log_odds, sigmoid
from carbon.finetune.metrics import (
    Statistics,
    predicted_classes,
    statistics_of_classes,
    statistics_of_columns,
    with_intervals,
)
from carbon.uncertainty import Estimate, Statistic

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]


class TransformFunctions(NamedTuple):
    """The functions of a transform.

    Attributes:
        forward: maps a label to a training target, before standardisation.
        inverse: undoes `forward`.
        above: labels must be larger than this.
        standardised: whether targets are scaled to mean 0 and standard deviation 1 on the train
            split.
    """

    forward: Callable[[Floats], Floats]
    inverse: Callable[[Floats], Floats]
    above: float
    standardised: bool


def _same(values: Floats) -> Floats:
    return values


TRANSFORMS: dict[str, TransformFunctions] = {
    "z_score": TransformFunctions(_same, _same, -np.inf, standardised=True),
    "none": TransformFunctions(_same, _same, -np.inf, standardised=False),
    "log1p": TransformFunctions(np.log1p, np.expm1, -1.0, standardised=False),
    "log1p_z_score": TransformFunctions(np.log1p, np.expm1, -1.0, standardised=True),
    "asinh_z_score": TransformFunctions(np.arcsinh, np.sinh, -np.inf, standardised=True),
}


@dataclass(frozen=True)
class Transform:
    """A transform of one number, fitted to the train split.

    Attributes:
        name: key of `TRANSFORMS`.
        mean: subtracted after `forward`.
        sd: divisor after that.
    """

    name: str = "none"
    mean: float = 0.0
    sd: float = 1.0

    @classmethod
    def fitted(cls, name: str, labels: NDArray[Any], what: str) -> Self:
        """Fit to labels, (rows,), ignoring NaN; SD is the population's.

        Raises:
            UserError: a label lies outside of the transform's domain, or all are equal.
        """
        form = TRANSFORMS[name]
        known = np.asarray(labels, dtype=np.float64)
        known = known[~np.isnan(known)]
        if not len(known):
            raise UserError(f"{what}: all numbers are unknown; give at least one")
        if known.min() <= form.above:
            raise UserError(
                f"{what}: {known.min():g} has no {name}, which takes numbers above {form.above:g}; "
                "choose another task.transform"
            )
        if not form.standardised:
            return cls(name)
        values = form.forward(known)
        if not values.std() > 0:
            raise UserError(f"{what}: all {len(known)} numbers to learn from are {known[0]:g}")
        return cls(name, float(values.mean()), float(values.std()))

    def apply(self, labels: NDArray[Any]) -> Floats:
        """Return training targets; NaN stay NaN, and so do labels outside of the domain."""
        form = TRANSFORMS[self.name]
        # Labels of other splits may lie outside of the domain; they become unknown.
        with np.errstate(invalid="ignore", divide="ignore"):
            values = form.forward(np.asarray(labels, dtype=np.float64))
        return (np.where(np.isfinite(values), values, np.nan) - self.mean) / self.sd

    def undo(self, values: NDArray[Any]) -> Floats:
        """Return numbers in the unit of the labels."""
        return TRANSFORMS[self.name].inverse(np.asarray(values, np.float64) * self.sd + self.mean)


class TaskType(NamedTuple):
    """A type of prediction task.

    Attributes:
        description: a few words for help and reports.
        predict: maps logits (rows, outputs) to predictions of the same shape.
        scores: keys of `carbon.finetune.metrics.SCORES`. The first selects checkpoints, and is
            higher for better predictions.
        meaning: of the first score; `{first}`, `{second}` and `{number}` stand for class names and
            their number.
        prediction: description of the predictions.
        certainty: the probability whose calibration is reported; empty for numbers.
        pipeline: task of the Hugging Face hub.
        per_base: whether every base is a row.
        one_column: whether the label is one of the names; otherwise each name has a column.
        one_logit: whether two names share one logit, the second name's.
        is_number: whether labels are numbers, which transforms may change.
    """

    description: str
    predict: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    scores: tuple[str, ...]
    meaning: str
    prediction: str
    certainty: str = ""
    pipeline: str = "text-classification"
    per_base: bool = False
    one_column: bool = False
    one_logit: bool = False
    is_number: bool = False


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return probabilities


_OF_CLASSES = ("mcc", "macro_f1", "balanced_accuracy", "accuracy")

TASK_TYPES: dict[str, TaskType] = {
    "binary": TaskType(
        "one of two classes",
        sigmoid,
        ("auroc", "auprc", *_OF_CLASSES),
        "AUROC is the probability that an example of class '{second}' ranks above one of "
        "'{first}': 1 is perfect, 0.5 is chance.",
        "one of two classes of a sequence; the prediction is the probability of the second",
        "the probability of the second class",
        one_column=True,
        one_logit=True,
    ),
    "classes": TaskType(
        "one of many classes",
        _softmax,
        (*_OF_CLASSES, "auroc", "auprc"),
        "MCC (Matthews' correlation) is 1 if every class is correct, and 0 for a guess.",
        "one of many classes of a sequence; the prediction is the probability of each",
        "the probability of the predicted class",
        one_column=True,
    ),
    "labels": TaskType(
        "any of many labels",
        sigmoid,
        ("auroc", "auprc", "mcc", "f1"),
        "AUROC is the probability that an example with a label ranks above one without it, as a "
        "mean over {number} labels: 1 is perfect, 0.5 is chance.",
        "any of many labels of a sequence; the prediction is the probability of each",
        "the probability of each label",
    ),
    "numbers": TaskType(
        "one or more numbers",
        lambda logits: logits,
        ("pearson", "spearman", "r2", "mse"),
        "Pearson's r is 1 if predictions rise linearly with the measured values, and 0 without a "
        "linear relation.",
        "numbers of a sequence, in the unit of the training table",
        is_number=True,
    ),
    "bases": TaskType(
        "a class of every base",
        _softmax,
        (*_OF_CLASSES, "auprc", "f1"),
        "MCC (Matthews' correlation) is 1 if every base is correct, and 0 for a guess.",
        "a class of every base; the prediction is the probability of each class",
        "the probability of the predicted class",
        "token-classification",
        per_base=True,
        one_column=True,
    ),
    "tracks": TaskType(
        "one or more numbers of every base",
        lambda logits: logits,
        ("pearson", "spearman", "r2", "mse"),
        "Pearson's r is 1 if predictions rise linearly with the measured values of bases, and 0 "
        "without a linear relation.",
        "numbers of every base, in the unit of the training tracks",
        pipeline="token-classification",
        per_base=True,
        is_number=True,
    ),
}


@dataclass(frozen=True)
class LabelTask:
    """A task fitted to a train split: what is predicted, trained and scored.

    Attributes:
        type: key of `TASK_TYPES`.
        names: names of two or more classes, labels or numbers. Of two classes, the probability of
            the second is predicted.
        loss: key of `carbon.finetune.network.LOSSES`.
        transforms: one for each number; empty if nothing is transformed.
        class_weights: one for each class; for `labels`, the weight of examples that have each
            label, relative to 1 for those without it. Empty for equal weights.
        calibration: recalibration of the probabilities, if any.
    """

    type: str
    names: tuple[str, ...]
    loss: str
    transforms: tuple[Transform, ...] = ()
    class_weights: tuple[float, ...] = field(default=())
    calibration: Calibration | None = None

    @property
    def task_type(self) -> TaskType:
        """The entry of `TASK_TYPES`."""
        return TASK_TYPES[self.type]

    @property
    def num_outputs(self) -> int:
        """Logits per row, and predictions."""
        return 1 if self.task_type.one_logit else len(self.names)

    @property
    def num_columns(self) -> int:
        """Labels per row."""
        return 1 if self.task_type.one_column else len(self.names)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the predictions; of two classes only the second."""
        return self.names[-1:] if self.task_type.one_logit else self.names

    @property
    def per_base(self) -> bool:
        """Whether every base is a row."""
        return self.task_type.per_base

    @property
    def is_one_of(self) -> bool:
        """Whether the outputs are classes whose probabilities sum to 1."""
        return self.task_type.one_column and not self.task_type.one_logit

    def calibrated(self, method: str, logits: NDArray[Any], labels: NDArray[Any]) -> Self:
        """Return the task with a recalibration that fits the labels.

        Args:
            method: key of `CALIBRATIONS`; `none` returns the task unchanged.
            logits: (rows, num_outputs).
            labels: (rows, num_columns); NaN are ignored.
        """
        if method == "none":
            return self
        known = ~np.isnan(logits).any(axis=1)
        calibration = fit_calibration(
            method, logits[known], labels[known], is_one_of=self.is_one_of
        )
        return replace(self, calibration=calibration)

    def targets(self, labels: NDArray[Any]) -> Floats32:
        """Return the targets of `loss_of`, (rows, columns) float32: labels with numbers
        transformed.
        """
        if not self.transforms:
            return np.asarray(labels, dtype=np.float32)
        columns = [t.apply(labels[:, i]) for i, t in enumerate(self.transforms)]
        return np.stack(columns, axis=1).astype(np.float32)

    def weights_of(self, targets: "Tensor") -> "Tensor":
        """Return the weight of each target, (rows, columns), 0 where the target is unknown.

        The sum over all rows of an optimizer step, on all processes, is the `total_weight` that
        `loss_of` takes if gradients are accumulated over microbatches.
        """
        import torch

        known = ~torch.isnan(targets)
        if not self.class_weights:
            return known.float()
        weights = torch.tensor(self.class_weights, dtype=torch.float32, device=targets.device)
        index = torch.nan_to_num(targets)
        if self.task_type.one_column:
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
        """Return a loss whose mean over processes is the loss of all rows on all processes.

        Args:
            logits: (rows, num_outputs).
            targets: (rows, num_columns), from `targets`; NaN are ignored.
            total_weight: sum of `weights_of` over all rows of the step, if these rows are a
                microbatch.
            alone: compute the loss of this process without waiting for others.
        """
        from carbon.finetune.network import mean_loss

        weights = self.weights_of(targets)
        return mean_loss(self.loss, logits, targets, weights, total_weight, alone=alone)

    def predictions(self, logits: NDArray[Any]) -> Floats32:
        """Return (rows, num_outputs) float32: probabilities, or numbers in the labels' unit."""
        predict, logits = self.task_type.predict, np.array(logits, dtype=np.float64)
        if self.calibration:
            outputs = self.calibration.apply(logits, predict, is_one_of=self.is_one_of)
        else:
            outputs = predict(logits)
        for i, transform in enumerate(self.transforms):
            outputs[:, i] = transform.undo(outputs[:, i])
        return outputs.astype(np.float32)

    def unsaturated(self, logits: NDArray[Any]) -> Floats:
        """Return what scores take, (rows, num_outputs) float64: log-odds, or the predictions.

        A float32 probability is 1 from a logit of about 17, so that its ranks would be lost.
        """
        if self.task_type.is_number:
            return self.predictions(logits).astype(np.float64)
        logits = np.array(logits, dtype=np.float64)
        if self.calibration:
            predict = self.task_type.predict
            return self.calibration.log_odds(logits, predict, is_one_of=self.is_one_of)
        return log_odds(logits) if self.is_one_of else logits

    def classes_of(self, predictions: NDArray[Any]) -> list[str | None]:
        """Return the name of the predicted class of each row, None if unknown.

        Args:
            predictions: (rows, num_outputs), of a task with classes.
        """
        is_known = ~np.isnan(predictions).any(axis=1)
        predicted = predicted_classes(np.nan_to_num(predictions), 0.5).astype(int).tolist()
        pairs = zip(predicted, is_known, strict=True)
        return [self.names[number] if known else None for number, known in pairs]

    def scores(
        self,
        outputs: NDArray[Any],
        labels: NDArray[Any],
        groups: Sequence[str] | None = None,
    ) -> dict[str, Estimate]:
        """Return scores with 95 % intervals; the first is the score that selects checkpoints.

        Args:
            outputs: (rows, num_outputs), from `unsaturated`.
            labels: (rows, num_columns), in the unit of the file; NaN are ignored.
            groups: (rows,), from `Examples.row_groups`; the bootstrap draws rows of one group
                together.
        """
        return with_intervals(*self.statistics(outputs, labels), groups)

    def score(self, outputs: NDArray[Any], labels: NDArray[Any]) -> float:
        """Return the first of `scores` without its interval, which selects checkpoints.

        Higher is better for every task type. Arguments are those of `scores`.
        """
        statistics, rows = self.statistics(outputs, labels)
        return next(iter(statistics.values()))(np.ones(len(rows))) if len(rows) else float("nan")

    def differences(
        self,
        first: NDArray[Any],
        second: NDArray[Any],
        labels: NDArray[Any],
        groups: Sequence[str] | None = None,
    ) -> dict[str, Estimate]:
        """Return first - second of every score, with each resample drawn once for both.

        `first` and `second` are outputs, (rows, num_outputs); the rest is as in `scores`.
        """
        (ours, rows), (theirs, _) = (self.statistics(each, labels) for each in (first, second))

        def minus(name: str) -> Statistic:
            return lambda weights: ours[name](weights) - theirs[name](weights)

        return with_intervals({name: minus(name) for name in ours}, rows, groups)

    def statistics(
        self, outputs: NDArray[Any], labels: NDArray[Any]
    ) -> tuple[Statistics, NDArray[np.int64]]:
        """Return scores as statistics, and the rows they use: those with any known label."""
        rows = np.flatnonzero(~np.isnan(labels).all(axis=1))
        known, truth = (np.asarray(each, dtype=np.float64)[rows] for each in (outputs, labels))
        of = statistics_of_classes if self.task_type.one_column else statistics_of_columns
        return of(self.task_type.scores, self.names, known, truth), rows

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)
