"""What lies behind the scores: where a model is wrong, how sure it is, and in which groups."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carbon.adapt.examples import PARTS, Examples
from carbon.adapt.metrics import statistics_of
from carbon.adapt.question import Question
from carbon.uncertainty import bootstrap, wilson

_BINS = 10
_MOST_GROUPS, _LEAST_IN_GROUP, _RESAMPLES_OF_GROUP = 20, 10, 200
_MOST_WORST, _SHOWN_BP = 20, 60
_LEAST_PROBABILITY = 1e-6

Floats = NDArray[np.float64]
Predictions = NDArray[Any]


def details_of(
    question: Question, answers: Mapping[str, Predictions], test: Examples
) -> dict[str, Any]:
    """Return plain values on the test part for a report.

    Args:
        question: what is asked.
        answers: predictions, (rows, outputs), of the model first, and of what stands beside it.
        test: what they are of.
    """
    said = next(iter(answers.values()))
    return {
        "confusion": confusion(question, said, test.labels),
        "calibration": calibration(*certainties(question, said, test.labels)),
        "groups": by_group(question, answers, test),
        "worst": worst(question, said, test),
    }


def confusion(question: Question, said: Predictions, labels: Predictions) -> list[list[int]] | None:
    """Return how many rows of each class (first index) are said to be each; None of no classes."""
    if not question.of_kind.one_column:
        return None
    known = ~np.isnan(labels[:, 0])
    truth, number = labels[known, 0].astype(np.int64), len(question.names)
    cells = truth * number + classes_said(question, said[known])
    found = np.bincount(cells, minlength=number**2).reshape(number, number)
    return [[int(count) for count in row] for row in found]


def classes_said(question: Question, said: Predictions) -> NDArray[np.int64]:
    """Return the class of each row that is most probable, as an index of the names."""
    if question.of_kind.one_logit:
        return (said[:, 0] > 0.5).astype(np.int64)
    found: NDArray[np.int64] = said.argmax(axis=1).astype(np.int64)
    return found


def certainties(
    question: Question, said: Predictions, labels: Predictions
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return probabilities, and whether what each is of holds; none of numbers.

    Of two classes it is that of the second, of more that of the most probable, of many labels that
    of each.
    """
    if question.of_kind.is_number:
        return np.zeros(0), np.zeros(0, dtype=bool)
    if question.of_kind.one_column and not question.of_kind.one_logit:
        known = ~np.isnan(labels[:, 0])
        is_right = said[known].argmax(axis=1) == labels[known, 0]
        return said[known].max(axis=1).astype(np.float64), is_right
    known = ~np.isnan(labels)
    return said[known].astype(np.float64), labels[known] > 0.5


def calibration(probabilities: Floats, holds: NDArray[np.bool_]) -> dict[str, Any] | None:
    """Return the mean probability and the share that holds of ten bins of equally many.

    `error` is the mean distance of the two, by the rows of each bin (expected calibration error,
    Naeini et al. 2015, with bins of equal numbers).
    """
    if not len(probabilities):
        return None
    order = np.argsort(probabilities, kind="stable")
    parts = [part for part in np.array_split(order, _BINS) if len(part)]
    bins = [
        {"predicted": float(probabilities[part].mean())}
        | wilson(int(holds[part].sum()), len(part))._asdict()
        for part in parts
    ]
    apart = sum(each["num_samples"] * abs(each["predicted"] - each["value"]) for each in bins)
    return {"bins": bins, "error": float(apart / len(order))}


def by_group(
    question: Question, answers: Mapping[str, Predictions], test: Examples
) -> list[dict[str, Any]]:
    """Return the first score in the largest groups, with intervals over the examples of each.

    Nothing where there is one group, or no score is defined in any.
    """
    counts = Counter(group for group in test.groups if group)
    row_groups = np.repeat(np.asarray(test.groups, dtype=object), np.diff(test.starts))
    row_names = np.repeat(np.asarray(test.names, dtype=object), np.diff(test.starts))
    found: list[dict[str, Any]] = []
    for group, number in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
        if len(counts) < 2 or number < _LEAST_IN_GROUP or len(found) == _MOST_GROUPS:
            break
        rows = np.flatnonzero(row_groups == group)
        clusters = row_names[rows].tolist() if test.per_base else None
        scores = {
            name: _first_score(question, said[rows], test.labels[rows], clusters)
            for name, said in answers.items()
        }
        if any(score["value"] is not None for score in scores.values()):
            found.append({"group": group, "examples": number, "scores": scores})
    return found


def _first_score(
    question: Question, said: Predictions, labels: Predictions, clusters: Sequence[str] | None
) -> dict[str, Any]:
    statistics, rows = statistics_of(question.kind, question.names, said, labels)
    drawn = [clusters[row] for row in rows] if clusters else None
    first = next(iter(statistics.values()))
    found: dict[str, Any] = plain(
        bootstrap(first, len(rows), 0, drawn, _RESAMPLES_OF_GROUP)._asdict()
    )
    return found


def plain(value: Any) -> Any:
    """Return a value for JSON, which has no NaN and no infinity: None in their place, at any depth.

    >>> plain({"looks": [{"loss": float("nan"), "step": 2}]})
    {'looks': [{'loss': None, 'step': 2}]}
    """
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def worst(question: Question, said: Predictions, test: Examples) -> list[dict[str, Any]]:
    """Return the examples that are predicted worst, with their labels and predictions."""
    losses = losses_of(question, said, test)
    order = [int(n) for n in np.argsort(-losses, kind="stable") if np.isfinite(losses[n])]
    return [
        {
            "name": test.names[n],
            "group": test.groups[n],
            "bases": len(test.sequences[n]),
            "begins": test.sequences[n][:_SHOWN_BP],
            "loss": float(losses[n]),
        }
        | ({} if test.per_base else _label_and_prediction(test.labels[n], said[n]))
        for n in order[:_MOST_WORST]
    ]


def _label_and_prediction(label: Predictions, said: Predictions) -> dict[str, Any]:
    pairs = {"label": label, "prediction": said}
    return {
        name: [None if np.isnan(value) else float(value) for value in values]
        for name, values in pairs.items()
    }


def losses_of(question: Question, said: Predictions, test: Examples) -> Floats:
    """Return how wrong each example is, NaN where nothing of it is known.

    Cross-entropy in nats, the mean over labels or bases; of numbers squared errors in variances of
    the test part, the mean over numbers.
    """
    labels, said = test.labels.astype(np.float64), said.astype(np.float64)
    if question.of_kind.is_number:
        variance = np.nanvar(labels, axis=0)
        cells = (said - labels) ** 2 / np.where(variance > 0, variance, 1.0)
    else:
        cells = -np.log(np.clip(_of_the_truth(question, said, labels), _LEAST_PROBABILITY, 1.0))
    known = ~np.isnan(cells)
    sums = np.add.reduceat(np.where(known, cells, 0.0).sum(axis=1), test.starts[:-1])
    counts = np.add.reduceat(known.sum(axis=1), test.starts[:-1])
    found: Floats = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
    return found


def _of_the_truth(question: Question, said: Floats, labels: Floats) -> Floats:
    """Return the probability of what is true, (rows, columns), NaN where that is not known."""
    if question.of_kind.one_column and not question.of_kind.one_logit:
        index = np.nan_to_num(labels).astype(np.int64)
        found = np.take_along_axis(said, index, axis=1)
    else:
        found = np.where(labels > 0.5, said, 1 - said)
    return np.where(np.isnan(labels), np.nan, found)


def labels_of(question: Question, examples: Examples) -> dict[str, dict[str, Any]]:
    """Return of each part how often each class or label is there, or mean and SD of numbers."""
    return {part: _labels_of_part(question, examples.part(part).labels) for part in PARTS}


def _labels_of_part(question: Question, labels: Predictions) -> dict[str, Any]:
    if question.of_kind.one_column:
        known = labels[~np.isnan(labels)].astype(np.int64)
        counts = np.bincount(known, minlength=len(question.names))
        return {name: int(count) for name, count in zip(question.names, counts, strict=True)}
    columns = zip(question.names, labels.astype(np.float64).T, strict=True)
    if question.of_kind.is_number:
        return {n: plain({"mean": _mean(c), "sd": _sd(c)}) for n, c in columns}
    return {name: int((column == 1).sum()) for name, column in columns}


def _mean(column: Floats) -> float:
    known = column[~np.isnan(column)]
    return float(known.mean()) if len(known) else float("nan")


def _sd(column: Floats) -> float:
    known = column[~np.isnan(column)]
    return float(known.std()) if len(known) else float("nan")
