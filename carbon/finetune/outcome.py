"""Score the best model and the baselines, collect details for the report, and write the folder."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.finetune.baselines import FITS
from carbon.finetune.card import write_card
from carbon.finetune.config import FinetuneConfig
from carbon.finetune.data import SPLITS, Examples
from carbon.finetune.findings import (
    CONFIG,
    PREDICTIONS,
    RESULTS,
    label_columns,
    read_findings,
)
from carbon.finetune.load import write_finetuned
from carbon.finetune.metrics import statistics_of
from carbon.finetune.network import OpenedModel
from carbon.finetune.predict import FinetunedModel
from carbon.finetune.prediction_sources import table_cells
from carbon.finetune.prepare import PreparedData
from carbon.finetune.report import write_report
from carbon.finetune.tasks import LabelTask
from carbon.io.files import atomic_folder
from carbon.io.tables import write_tsv
from carbon.progress import say
from carbon.uncertainty import Estimate, bootstrap, wilson

_BINS = 10
_MOST_GROUPS, _LEAST_IN_GROUP, _RESAMPLES_OF_GROUP = 20, 10, 200
_MOST_WORST, _SHOWN_BP = 20, 60
_LEAST_PROBABILITY = 1e-6

Floats = NDArray[np.float64]
Predictions = NDArray[Any]


def details_of(
    task: LabelTask, tested: Mapping[str, Predictions], test: Examples
) -> dict[str, Any]:
    """Return plain values on the test split for the report.

    Args:
        task: the fitted task.
        tested: predictions, (rows, outputs), of the model first, then of each baseline.
        test: the test split.
    """
    predictions = next(iter(tested.values()))
    return {
        "confusion": confusion(task, predictions, test.labels),
        "calibration": calibration(*certainties(task, predictions, test.labels)),
        "groups": by_group(task, tested, test),
        "worst": worst(task, predictions, test),
    }


def confusion(
    task: LabelTask, predictions: Predictions, labels: Predictions
) -> list[list[int]] | None:
    """Return row counts by true class (first index) and predicted class; None without classes."""
    if not task.task_type.one_column:
        return None
    known = ~np.isnan(labels[:, 0])
    truth, number = labels[known, 0].astype(np.int64), len(task.names)
    cells = truth * number + predicted_classes(task, predictions[known])
    counts = np.bincount(cells, minlength=number**2).reshape(number, number)
    return [[int(count) for count in row] for row in counts]


def predicted_classes(task: LabelTask, predictions: Predictions) -> NDArray[np.int64]:
    """Return the index of the most probable class of each row."""
    if task.task_type.one_logit:
        return (predictions[:, 0] > 0.5).astype(np.int64)
    classes: NDArray[np.int64] = predictions.argmax(axis=1).astype(np.int64)
    return classes


def certainties(
    task: LabelTask, predictions: Predictions, labels: Predictions
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return probabilities, and whether the predicted event holds; empty for numbers.

    The event is the second of two classes, the most probable of many classes, or each of many
    labels.
    """
    if task.task_type.is_number:
        return np.zeros(0), np.zeros(0, dtype=bool)
    if task.task_type.one_column and not task.task_type.one_logit:
        known = ~np.isnan(labels[:, 0])
        is_right = predictions[known].argmax(axis=1) == labels[known, 0]
        return predictions[known].max(axis=1).astype(np.float64), is_right
    known = ~np.isnan(labels)
    return predictions[known].astype(np.float64), labels[known] > 0.5


def calibration(probabilities: Floats, holds: NDArray[np.bool_]) -> dict[str, Any] | None:
    """Return mean probability and observed share of ten bins of equal size.

    `error` is the mean distance of the two, weighted by the rows of each bin (expected calibration
    error, Naeini et al. 2015, with bins of equal size).
    """
    if not len(probabilities):
        return None
    order = np.argsort(probabilities, kind="stable")
    bins = [
        {"predicted": float(probabilities[rows].mean())}
        | wilson(int(holds[rows].sum()), len(rows))._asdict()
        for rows in np.array_split(order, _BINS)
        if len(rows)
    ]
    distance = sum(each["num_samples"] * abs(each["predicted"] - each["value"]) for each in bins)
    return {"bins": bins, "error": float(distance / len(order))}


def by_group(
    task: LabelTask, tested: Mapping[str, Predictions], test: Examples
) -> list[dict[str, Any]]:
    """Return the first score of the largest groups, with intervals over the examples of each.

    The list is empty with a single group, or if no group has a score.
    """
    counts = Counter(group for group in test.groups if group)
    row_groups = np.repeat(np.asarray(test.groups, dtype=object), np.diff(test.starts))
    row_names = np.repeat(np.asarray(test.names, dtype=object), np.diff(test.starts))
    groups: list[dict[str, Any]] = []
    for group, number in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
        if len(counts) < 2 or number < _LEAST_IN_GROUP or len(groups) == _MOST_GROUPS:
            break
        rows = np.flatnonzero(row_groups == group)
        clusters = row_names[rows].tolist() if test.per_base else None
        scores = {
            name: _first_score(task, predictions[rows], test.labels[rows], clusters)
            for name, predictions in tested.items()
        }
        if any(score["value"] is not None for score in scores.values()):
            groups.append({"group": group, "examples": number, "scores": scores})
    return groups


def _first_score(
    task: LabelTask, predictions: Predictions, labels: Predictions, clusters: Sequence[str] | None
) -> dict[str, Any]:
    statistics, rows = statistics_of(task.type, task.names, predictions, labels)
    drawn = [clusters[row] for row in rows] if clusters else None
    first = next(iter(statistics.values()))
    score: dict[str, Any] = plain(
        bootstrap(first, len(rows), 0, drawn, _RESAMPLES_OF_GROUP)._asdict()
    )
    return score


def plain(value: Any) -> Any:
    """Return a value for JSON, with None for NaN and infinity, at any depth.

    >>> plain({"validations": [{"loss": float("nan"), "step": 2}]})
    {'validations': [{'loss': None, 'step': 2}]}
    """
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def worst(task: LabelTask, predictions: Predictions, test: Examples) -> list[dict[str, Any]]:
    """Return the examples with the largest losses, with their labels and predictions."""
    losses = losses_of(task, predictions, test)
    order = [int(n) for n in np.argsort(-losses, kind="stable") if np.isfinite(losses[n])]
    return [
        {
            "name": test.names[n],
            "group": test.groups[n],
            "bases": len(test.sequences[n]),
            "begins": test.sequences[n][:_SHOWN_BP],
            "loss": float(losses[n]),
        }
        | (
            {}
            if test.per_base
            else {
                "label": table_cells(test.labels[n]),
                "prediction": table_cells(predictions[n]),
            }
        )
        for n in order[:_MOST_WORST]
    ]


def losses_of(task: LabelTask, predictions: Predictions, test: Examples) -> Floats:
    """Return the loss of each example, NaN without a known label.

    Cross-entropy in nats, mean over labels or bases; for numbers, squared errors in variances of
    the test split, mean over numbers.
    """
    labels, predictions = test.labels.astype(np.float64), predictions.astype(np.float64)
    if task.task_type.is_number:
        variance = np.nanvar(labels, axis=0)
        cells = (predictions - labels) ** 2 / np.where(variance > 0, variance, 1.0)
    else:
        cells = -np.log(
            np.clip(_true_probabilities(task, predictions, labels), _LEAST_PROBABILITY, 1.0)
        )
    known = ~np.isnan(cells)
    sums = np.add.reduceat(np.where(known, cells, 0.0).sum(axis=1), test.starts[:-1])
    counts = np.add.reduceat(known.sum(axis=1), test.starts[:-1])
    losses: Floats = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
    return losses


def _true_probabilities(task: LabelTask, predictions: Floats, labels: Floats) -> Floats:
    """Return the probability of the true label, (rows, columns), NaN where unknown."""
    if task.task_type.one_column and not task.task_type.one_logit:
        index = np.nan_to_num(labels).astype(np.int64)
        probabilities = np.take_along_axis(predictions, index, axis=1)
    else:
        probabilities = np.where(labels > 0.5, predictions, 1 - predictions)
    return np.where(np.isnan(labels), np.nan, probabilities)


def label_counts(task: LabelTask, examples: Examples) -> dict[str, dict[str, Any]]:
    """Return, for each split, the count of each class or label, or mean and SD of numbers."""
    return {split: _label_counts_of_split(task, examples.split(split).labels) for split in SPLITS}


def _label_counts_of_split(task: LabelTask, labels: Predictions) -> dict[str, Any]:
    if task.task_type.one_column:
        known = labels[~np.isnan(labels)].astype(np.int64)
        counts = np.bincount(known, minlength=len(task.names))
        return {name: int(count) for name, count in zip(task.names, counts, strict=True)}
    columns = zip(task.names, labels.astype(np.float64).T, strict=True)
    if task.task_type.is_number:
        return {n: plain({"mean": _mean(c), "sd": _sd(c)}) for n, c in columns}
    return {name: int((column == 1).sum()) for name, column in columns}


def _mean(column: Floats) -> float:
    known = column[~np.isnan(column)]
    return float(known.mean()) if len(known) else float("nan")


def _sd(column: Floats) -> float:
    known = column[~np.isnan(column)]
    return float(known.std()) if len(known) else float("nan")


Floats32 = NDArray[np.float32]


class TrainedSeed(NamedTuple):
    """The model of one seed.

    Attributes:
        finetuned: ready to predict.
        opened: the base model inside.
        score: on the validation split; higher is better.
        history: validations or layers, as plain values.
        notes: sentences for the report.
    """

    finetuned: FinetunedModel
    opened: OpenedModel
    score: float
    history: dict[str, Any]
    notes: tuple[str, ...] = ()


def results_of(
    config: FinetuneConfig,
    prepared: PreparedData,
    predictions: Mapping[str, Floats32],
    histories: list[dict[str, Any]],
) -> dict[str, Any]:
    """Score the model and the baselines on the same rows, and their differences.

    Args:
        config: the run.
        prepared: examples and task.
        predictions: of the model, for the validation and the test split.
        histories: of the seeds.

    Returns:
        Plain values for `results.json`, None where a number is not defined.
    """
    task, examples = prepared.task, prepared.examples
    test, validation = examples.split("test"), examples.split("validation")
    tested = {"model": predictions["test"]}
    for name in config.baselines:
        say(f"baseline: {name}")
        predict = FITS[name](examples.split("train"), validation, task, config.seeds[0])
        tested[name] = predict(test)
    scored = {
        name: task.scores(outputs, test.labels, test.row_groups) for name, outputs in tested.items()
    }
    against = {
        name: task.differences(tested["model"], outputs, test.labels, test.row_groups)
        for name, outputs in tested.items()
        if name != "model"
    }
    results: dict[str, Any] = plain({
        "task": task.type,
        "method": config.method.name,
        "chosen_by": next(iter(scored["model"])),
        "test": {name: _plain(scores) for name, scores in scored.items()},
        "model_minus": {name: _plain(scores) for name, scores in against.items()},
        "validation": _plain(
            task.scores(predictions["validation"], validation.labels, validation.row_groups)
        ),
        "seeds": histories,
        "examples": {split: len(examples.split(split)) for split in SPLITS},
        "labels": label_counts(task, examples),
        "lengths_bp": _lengths_of(prepared),
        "drawn_together": "groups" if test.row_groups[:1] != test.names[:1] else "examples",
        "files": list(prepared.files),
        "split_sha256": prepared.split_sha256,
        "notes": list(prepared.notes),
        "leaks": [leak._asdict() for leak in prepared.leaks],
        "details": details_of(task, tested, test),
    })  # fmt: skip
    return results


def _lengths_of(prepared: PreparedData) -> dict[str, int]:
    lengths_bp = [len(sequence) for sequence in prepared.examples.sequences]
    return {"least": min(lengths_bp), "most": max(lengths_bp)}


def _plain(scores: Mapping[str, Estimate]) -> dict[str, Any]:
    return {name: each._asdict() for name, each in scores.items()}


def write_outcome(
    config: FinetuneConfig,
    prepared: PreparedData,
    best: TrainedSeed,
    predictions: Mapping[str, Floats32],
    results: dict[str, Any],
) -> None:
    """Write the folder, which appears when it is complete."""
    short = {"chosen_by": results["chosen_by"], "test": results["test"]["model"]}
    manifest = replace(best.finetuned.manifest, results=short)
    with atomic_folder(config.output_folder) as folder:
        write_finetuned(folder, best.finetuned.network, best.opened, manifest)
        text = json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False)
        (folder / RESULTS).write_text(text + "\n", encoding="utf-8")
        (folder / CONFIG).write_text(config.to_toml(), encoding="utf-8")
        if not prepared.task.per_base:
            _write_predictions(folder / PREDICTIONS, prepared, predictions)
        findings = read_findings(folder, config.output_folder.name)
        write_report(folder, findings)
        write_card(folder, findings)


def _write_predictions(
    path: Path, prepared: PreparedData, predictions: Mapping[str, Floats32]
) -> None:
    """Write labels and predictions of the validation and test split, classes by name."""
    task = prepared.task
    columns: dict[str, Any] = {"name": str, "split": str, "group": str}
    if task.task_type.one_column:
        columns |= {"label": str, "predicted": str}
    else:
        columns |= dict.fromkeys(label_columns(task), float)
    columns |= {f"predicted_{name}": float for name in task.output_names}
    with write_tsv(path, columns, {"split_sha256": prepared.split_sha256}) as write:
        for split, outputs in predictions.items():
            examples = prepared.examples.split(split)
            places = zip(examples.names, examples.groups, strict=True)
            for (name, group), label, values in zip(places, examples.labels, outputs, strict=True):
                cells = (*_label_cells(task, label, values), *table_cells(values))
                write((name, split, group or None, *cells))


def _label_cells(task: LabelTask, label: Floats32, values: Floats32) -> list[Any]:
    """Return the true and the predicted class; for other task types the labels."""
    if not task.task_type.one_column:
        return table_cells(label)
    (predicted,) = predicted_classes(task, values[None])
    true = None if np.isnan(label[0]) else task.names[int(label[0])]
    return [true, None if np.isnan(values).any() else task.names[predicted]]
