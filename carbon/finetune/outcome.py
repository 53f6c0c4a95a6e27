"""What lies behind the scores: where a model is wrong, how sure it is, and in which groups."""

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
from carbon.finetune.data import PARTS, Examples
from carbon.finetune.findings import CONFIG, PREDICTIONS, RESULTS, label_columns
from carbon.finetune.load import write_finetuned
from carbon.finetune.metrics import beside, statistics_of
from carbon.finetune.network import OpenedModel
from carbon.finetune.predict import FinetunedModel
from carbon.finetune.prepare import Prepared
from carbon.finetune.report import write_report
from carbon.finetune.tasks import Question
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


Floats32 = NDArray[np.float32]


class Learned(NamedTuple):
    """What one seed came to.

    Attributes:
        finetuned: ready to predict.
        opened: the model inside.
        score: on the validation part; higher is better.
        history: how it came about, as plain values.
        told: whole sentences on what it was learned from.
    """

    finetuned: FinetunedModel
    opened: OpenedModel
    score: float
    history: dict[str, Any]
    told: tuple[str, ...] = ()


def results_of(
    config: FinetuneConfig,
    prepared: Prepared,
    said: Mapping[str, Floats32],
    histories: list[dict[str, Any]],
) -> dict[str, Any]:
    """Measure the model and the baselines on the same rows, and both beside one another.

    Args:
        config: of the run.
        prepared: examples and question.
        said: predictions of the model, of the validation and the test part.
        histories: of the seeds.

    Returns:
        Plain values for `results.json`, None where a number is not defined.
    """
    question, examples = prepared.question, prepared.examples
    test, validation = examples.part("test"), examples.part("validation")
    answers = {"model": said["test"]}
    for name in config.baselines:
        say(f"baseline: {name}")
        answer = FITS[name](examples.part("train"), validation, question, config.seeds[0])
        answers[name] = answer(test)
    scored = {
        name: question.scores(found, test.labels, test.row_groups)
        for name, found in answers.items()
    }
    against = beside(question.kind, question.names, answers, test.labels, test.row_groups)
    results: dict[str, Any] = plain({
        "kind": question.kind,
        "way": config.way.name,
        "chosen_by": next(iter(scored["model"])),
        "test": {name: _plain(scores) for name, scores in scored.items()},
        "model_minus": {name: _plain(scores) for name, scores in against.items()},
        "validation": _plain(
            question.scores(said["validation"], validation.labels, validation.row_groups)
        ),
        "seeds": histories,
        "examples": {part: len(examples.part(part)) for part in PARTS},
        "labels": labels_of(question, examples),
        "lengths_bp": _lengths_of(prepared),
        "drawn_together": "groups" if test.row_groups[:1] != test.names[:1] else "examples",
        "files": list(prepared.files),
        "split_sha256": prepared.split_hash,
        "told": list(prepared.told),
        "leaks": [leak._asdict() for leak in prepared.leaks],
        "details": details_of(question, answers, test),
    })  # fmt: skip
    return results


def _lengths_of(prepared: Prepared) -> dict[str, int]:
    lengths_bp = [len(sequence) for sequence in prepared.examples.sequences]
    return {"least": min(lengths_bp), "most": max(lengths_bp)}


def _plain(scores: Mapping[str, Estimate]) -> dict[str, Any]:
    return {name: each._asdict() for name, each in scores.items()}


def write_outcome(
    config: FinetuneConfig,
    prepared: Prepared,
    best: Learned,
    said: Mapping[str, Floats32],
    results: dict[str, Any],
) -> None:
    """Write the folder, which appears when it is whole."""
    short = {"chosen_by": results["chosen_by"], "test": results["test"]["model"]}
    manifest = replace(best.finetuned.manifest, results=short)
    with atomic_folder(config.output_folder) as folder:
        write_finetuned(folder, best.finetuned.network, best.opened, manifest)
        text = json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False)
        (folder / RESULTS).write_text(text + "\n", encoding="utf-8")
        (folder / CONFIG).write_text(config.to_toml(), encoding="utf-8")
        if not prepared.question.per_base:
            _write_predictions(folder / PREDICTIONS, prepared, said)
        write_report(folder, config.output_folder.name)
        write_card(folder, config.output_folder.name)


def _write_predictions(path: Path, prepared: Prepared, said: Mapping[str, Floats32]) -> None:
    """Write labels and predictions of validation and test part; classes stand by their names."""
    question = prepared.question
    columns: dict[str, Any] = {"name": str, "part": str, "group": str}
    if question.of_kind.one_column:
        columns |= {"label": str, "predicted": str}
    else:
        columns |= dict.fromkeys(label_columns(question), float)
    columns |= {f"predicted_{name}": float for name in question.output_names}
    with write_tsv(path, columns, {"split_sha256": prepared.split_hash}) as write:
        for part, found in said.items():
            examples = prepared.examples.part(part)
            places = zip(examples.names, examples.groups, strict=True)
            for (name, group), label, values in zip(places, examples.labels, found, strict=True):
                cells = (*_label_cells(question, label, values), *_cells(values))
                write((name, part, group or None, *cells))


def _label_cells(question: Question, label: Floats32, values: Floats32) -> list[Any]:
    """Return the class that is true and the one that is predicted; of other kinds the labels."""
    if not question.of_kind.one_column:
        return _cells(label)
    (said,) = classes_said(question, values[None])
    true = None if np.isnan(label[0]) else question.names[int(label[0])]
    return [true, None if np.isnan(values).any() else question.names[said]]


def _cells(values: Floats32) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]
