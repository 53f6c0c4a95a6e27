"""Results of a run: scores of model and baselines, details for the report, and their files."""

import csv
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict
from typing_extensions import TypedDict

from carbon.errors import ModelError
from carbon.finetune.baselines import FITS, has_deltas
from carbon.finetune.config import BASELINES, SPLITS, FinetuneConfig
from carbon.finetune.data import PreparedData
from carbon.finetune.folder import Manifest, read_manifest
from carbon.finetune.metrics import SCORES, confusion_cells
from carbon.finetune.predict_job import table_cells
from carbon.finetune.split import Examples
from carbon.finetune.tasks import LabelTask
from carbon.io.structured import read_json
from carbon.io.tables import write_tsv
from carbon.progress import say, shown
from carbon.uncertainty import bootstrap, verdict, wilson

MOST_SCORES = 40
RESULTS, CONFIG = "results.json", "config.toml"
PREDICTIONS, SEARCH = "predictions.tsv", "search.tsv"
_BINS = 10
_MOST_GROUPS, _LEAST_IN_GROUP, _RESAMPLES_OF_GROUP = 20, 10, 200
_MOST_WORST, _SHOWN_BP = 20, 60
_LEAST_PROBABILITY = 1e-6

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Predictions = NDArray[Any]


def details_of(
    task: LabelTask,
    tested: Mapping[str, Floats],
    predictions: Predictions,
    test: Examples,
    uncalibrated: Predictions | None = None,
) -> dict[str, Any]:
    """Return plain values on the test split for the report.

    Args:
        task: the fitted task.
        tested: `LabelTask.unsaturated`, (rows, outputs), of the model and of each baseline.
        predictions: of the model, (rows, outputs).
        test: the test split.
        uncalibrated: predictions of the model before a recalibration, if there is one.
    """
    before = predictions[:0] if uncalibrated is None else uncalibrated
    return {
        "confusion": confusion(task, predictions, test.labels),
        "calibration": calibration(*certainties(task, predictions, test.labels)),
        "uncalibrated": calibration(*certainties(task, before, test.labels[: len(before)])),
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
    cells, number = confusion_cells(predictions[known], labels[known, 0], threshold=0.5)
    counts: list[list[int]] = (
        np.bincount(cells, minlength=number**2).reshape(number, number).tolist()
    )
    return counts


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


def by_group(task: LabelTask, tested: Mapping[str, Floats], test: Examples) -> list[dict[str, Any]]:
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
            name: _first_score(task, outputs[rows], test.labels[rows], clusters)
            for name, outputs in tested.items()
        }
        if any(score["value"] is not None for score in scores.values()):
            groups.append({"group": group, "examples": number, "scores": scores})
    return groups


def _first_score(
    task: LabelTask, outputs: Floats, labels: Predictions, clusters: Sequence[str] | None
) -> dict[str, Any]:
    statistics, rows = task.statistics(outputs, labels)
    drawn = [clusters[row] for row in rows] if clusters else None
    first = next(iter(statistics.values()))
    score: dict[str, Any] = plain(bootstrap(first, len(rows), 0, drawn, _RESAMPLES_OF_GROUP))
    return score


def plain(value: Any) -> Any:
    """Return a value for JSON: named tuples as objects, None for NaN and infinity, at any depth.

    >>> plain({"validations": [{"loss": float("nan"), "step": 2}]})
    {'validations': [{'loss': None, 'step': 2}]}
    """
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
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
        return dict(zip(task.names, counts.tolist(), strict=True))
    columns = zip(task.names, labels.astype(np.float64).T, strict=True)
    if task.task_type.is_number:
        return {name: _moments(column[~np.isnan(column)]) for name, column in columns}
    return {name: int((column == 1).sum()) for name, column in columns}


def _moments(known: Floats) -> dict[str, float | None]:
    """Return mean and SD of known numbers."""
    if not len(known):
        return {"mean": None, "sd": None}
    return {"mean": float(known.mean()), "sd": float(known.std())}


def results_of(
    config: FinetuneConfig,
    prepared: PreparedData,
    logits: Mapping[str, Floats],
    histories: list[dict[str, Any]],
) -> dict[str, Any]:
    """Score the model and the baselines on the same rows, and their differences.

    Args:
        config: the run.
        prepared: examples and task.
        logits: of the model, for the validation and the test split.
        histories: of the seeds.

    Returns:
        Plain values for `results.json`, None where a number is not defined.
    """
    task, examples = prepared.task, prepared.examples
    uncalibrated = replace(task, calibration=None)  # the curves belong to the model's logits
    test, validation = examples.split("test"), examples.split("validation")
    tested = {"model": task.unsaturated(logits["test"])}
    for name in config.baselines:
        if name == "delta" and not has_deltas(examples):
            continue
        say(f"baseline: {name}")
        predict = FITS[name](examples.split("train"), validation, uncalibrated, config.seeds[0])
        tested[name] = predict(test)
    scored = {
        name: task.scores(outputs, test.labels, test.row_groups) for name, outputs in tested.items()
    }
    against = {
        name: task.differences(tested["model"], outputs, test.labels, test.row_groups)
        for name, outputs in tested.items()
        if name != "model"
    }
    before = uncalibrated.predictions(logits["test"]) if task.calibration else None
    lengths_bp = [len(sequence) for sequence in examples.sequences]
    results: dict[str, Any] = plain({
        "task": task.type,
        "method": config.method.name,
        "chosen_by": next(iter(scored["model"])),
        "test": scored,
        "model_minus": against,
        "validation": task.scores(
            task.unsaturated(logits["validation"]), validation.labels, validation.row_groups
        ),
        "seeds": histories,
        "examples": {split: len(examples.split(split)) for split in SPLITS},
        "labels": label_counts(task, examples),
        "lengths_bp": {"least": min(lengths_bp), "most": max(lengths_bp)},
        "drawn_together": test.drawn_together,
        "files": list(prepared.files),
        "split_sha256": prepared.split_sha256,
        "notes": list(prepared.notes),
        "leaks": list(prepared.leaks),
        "homology": {"method": prepared.homology, "identity": config.data.identity},
        "details": details_of(task, tested, task.predictions(logits["test"]), test, before),
    })  # fmt: skip
    return results


def seed_scores(task: LabelTask, members: Sequence[Floats], test: Examples) -> dict[str, Any]:
    """Return the scores of each seed's outputs of the test split, their mean and their SD."""
    each = []
    for outputs in members:
        statistics, rows = task.statistics(outputs, test.labels)
        each.append({name: of(np.ones(len(rows))) for name, of in statistics.items()})
    summary = {}
    for name in each[0]:
        values = np.array([scores[name] for scores in each])
        mean, sd = float(values.mean()), float(values.std(ddof=1))
        summary[name] = {"mean": mean, "sd": sd, "seeds": values.tolist()}
    plain_summary: dict[str, Any] = plain(summary)
    return plain_summary


def write_predictions(
    path: Path,
    prepared: PreparedData,
    predictions: Mapping[str, Floats32],
    spreads: Mapping[str, Floats32] | None = None,
) -> None:
    """Write labels and predictions of the validation and test split, classes by name.

    Args:
        path: the file.
        prepared: examples and task.
        predictions: (rows, outputs) of each split.
        spreads: of several seeds, the SD of each prediction.
    """
    task = prepared.task
    columns: dict[str, Any] = {"name": str, "split": str, "group": str}
    if task.task_type.one_column:
        columns |= {"label": str, "predicted": str}
    else:
        columns |= dict.fromkeys(label_columns(task), float)
    columns |= {f"predicted_{name}": float for name in task.output_names}
    if spreads:
        columns |= {f"sd_{name}": float for name in task.output_names}
        predictions = {
            split: np.concatenate([outputs, spreads[split]], axis=1)
            for split, outputs in predictions.items()
        }
    with write_tsv(path, columns, {"split_sha256": prepared.split_sha256}) as write:
        for split, outputs in predictions.items():
            examples = prepared.examples.split(split)
            places = zip(examples.names, examples.groups, strict=True)
            for (name, group), label, values in zip(places, examples.labels, outputs, strict=True):
                named = _label_cells(task, label, values[: task.num_outputs])
                cells = (*named, *table_cells(values))
                write((name, split, group or None, *cells))


def write_search(path: Path, results: Mapping[str, Any]) -> None:
    """Write a row for each combination of a search: values, validation score and seconds."""
    keys = list(results["search"][0]["values"])
    columns: dict[str, Any] = dict.fromkeys(keys, str) | {"score": float, "seconds": float}
    settings = {"score": results["chosen_by"], "split": "validation"}
    with write_tsv(path, columns, settings) as write:
        for trial in results["search"]:
            values = (str(trial["values"][key]) for key in keys)
            write((*values, trial["score"], trial["seconds"]))


def _label_cells(task: LabelTask, label: Floats32, values: Floats32) -> list[Any]:
    """Return the true and the predicted class; for other task types the labels."""
    if not task.task_type.one_column:
        return table_cells(label)
    true = None if np.isnan(label[0]) else task.names[int(label[0])]
    return [true, *task.classes_of(values[None])]


class _Results(TypedDict):
    """The keys of `results.json` that tell a whole file; it has more."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    details: Any
    leaks: Any
    files: list[dict[str, Any]]


Json = dict[str, Any]
Row = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The results of a completed run.

    Attributes:
        name: of its folder.
        results: content of `results.json`.
        manifest: content of `finetune.json`.
        config: content of `config.toml`.
    """

    name: str
    results: Json
    manifest: Manifest
    config: FinetuneConfig

    @property
    def first(self) -> str:
        """The score that selected the model."""
        return str(self.results["chosen_by"])

    @property
    def base(self) -> str:
        """Name of the base model, without its folder."""
        return Path(self.manifest.base).name

    def spread_rows(self) -> list[Row]:
        """Return the mean and SD of each score over the seeds, and the ensemble's score."""
        ensemble = self.results["test"]["model"]
        spread = list(self.results.get("of_seeds", {}).items())[:MOST_SCORES]
        return [
            (
                score_label(name),
                *(score_text(value) for value in (of["mean"], of["sd"], ensemble[name]["value"])),
            )
            for name, of in spread
        ]

    def search_keys(self) -> list[str]:
        """Return the keys that a search varied."""
        return list(self.results["search"][0]["values"])

    def search_rows(self) -> list[Row]:
        """Return a row for each combination of a search: its values and its validation score."""
        return [
            (*map(str, trial["values"].values()), score_text(trial["score"]))
            for trial in self.results.get("search", ())
        ]

    def cross_validation_rows(self) -> list[Row]:
        """Return a row for each class of variants and predictor of the nested cross-validation."""
        nested = self.results.get("cross_validation")
        if nested is None:
            return []
        parts = {"all": nested["all"], **nested["classes"]}
        return [
            (
                f"{name}: {part['examples']:,}, {part['positives']:,} positive",
                predictor,
                *map(estimate_text, scores.values()),
            )
            for name, part in parts.items()
            for predictor, scores in part["scores"].items()
        ]

    def classes_left_out(self) -> list[str]:
        """Return a sentence for each class of variants without a cross-validation."""
        left_out = self.results["cross_validation"]["left_out"]
        return [f"{name} is left out: {reason}." for name, reason in left_out.items()]

    def best_baseline(self) -> str | None:
        """Return the baseline with the highest first score."""
        scores = {name: scores[self.first]["value"] for name, scores in self.results["test"].items()
                  if name != "model" and scores[self.first]["value"] is not None}  # fmt: skip
        return max(scores, key=lambda name: scores[name]) if scores else None

    def answer(self) -> list[str]:
        """Return the model's score, its lead over the best baseline, and the score's meaning."""
        return [self._model_score(), self._lead(), self._meaning()]

    def _model_score(self) -> str:
        number = self.results["examples"]["test"]
        score = estimate_text(self.results["test"]["model"][self.first])
        mean = "mean " if self._is_mean() else ""
        validate = f"the model's {mean}{score_label(self.first)} is {score}"
        leaks = self.leaks_of_test()
        if not leaks:
            clear = "none of which occurs in another split"
            return f"On {number:,} test sequences, {clear}, {validate}."
        return (
            f"On {number:,} test sequences, {validate}. But {leaks:,} of these sequences, or "
            "near duplicates, also occur in another split, so the scores are too high."
        )

    def leaks_of_test(self) -> int:
        """Return the number of test sequences that another split has, or nearly has."""
        leaks = [leak for leak in self.results["leaks"] if leak["split"] == "test"]
        return sum(leak["num_equal"] + leak["num_near"] for leak in leaks)

    def _is_mean(self) -> bool:
        task = self.manifest.task
        return not task.task_type.one_column and len(task.names) > 1

    def _lead(self) -> str:
        best = self.best_baseline()
        if best is None:
            return "There is no baseline to compare the model with."
        its_score = estimate_text(self.results["test"][best][self.first])
        lead = self.results["model_minus"][best][self.first]
        return (
            f"The best baseline, {best} ({BASELINES[best]}), has {its_score}. "
            f"{verdict('The model', best, lead, estimate_text)}"
        )

    def _meaning(self) -> str:
        names = self.manifest.task.names
        return self.manifest.task.task_type.meaning.format(
            first=names[0], second=names[-1], number=len(names)
        )

    def score_rows(self, key: str, most: int) -> list[Row]:
        """Return a row for each score, a column for each predictor of `test` or `model_minus`."""
        names = list(self.results["test"]["model"])[:most]
        columns = self.results[key].values()
        return [(score_label(n), *(estimate_text(scores[n]) for scores in columns)) for n in names]

    def file_rows(self) -> list[Row]:
        """Return role, name and SHA-256 of each file."""
        return [(each["role"], each["name"], each["sha256"]) for each in self.results["files"]]

    def label_rows(self, most: int) -> list[Row]:
        """Return the number of examples of each split, and label counts of the first names."""
        counts = self.results["examples"]
        rows: list[Row] = [("examples", *(f"{counts[split]:,}" for split in SPLITS))]
        for name in self.manifest.task.names[:most]:
            values = [self.results["labels"][split][name] for split in SPLITS]
            rows.append((name, *map(_label_text, values)))
        return rows

    def setting_rows(self) -> list[Row]:
        """Return the model and its hyperparameters."""
        method, manifest, task = self.config.method, self.manifest, self.manifest.task
        rows: list[tuple[str, Any]] = [
            ("base model", self.base),
            ("SHA-256 of its weights", manifest.base_sha256),
            ("task", task.type),
            ("loss", task.loss),
            ("class weights", self.config.task.class_weights),
            ("recalibration", self.config.task.calibration),
            ("method", method.name),
            ("pool", manifest.pool),
            ("layer", manifest.layer or "last"),
            ("strands of a prediction", manifest.strands),
            ("sequences longer than the context", manifest.too_long),
        ]
        if manifest.variant_input != "alt":
            rows.append(("features of both alleles", manifest.variant_input))
        if task.transforms:
            rows.append(("transform", self.config.task.transform))
        if method.name == "lora":
            rows += [("rank", method.rank), ("alpha", method.scale), ("dropout", method.dropout)]
        if method.name != "probe":
            rows += [
                ("peak learning rate", f"{method.rate:g}"),
                ("sequences per step", method.batch_sequences),
                ("maximum epochs", f"{method.most_epochs:g}"),
                ("early stopping patience, validation steps", method.patience),
                ("weight decay", f"{method.weight_decay:g}"),
                ("reverse complements in training", "half" if method.augment else "none"),
                ("seeds", ", ".join(map(str, self.config.seeds))),
            ]
        return [(name, shown(value)) for name, value in rows]


def _label_text(value: Any) -> str:
    if isinstance(value, dict):
        mean, sd = (v if v is None else number_text(v) for v in (value["mean"], value["sd"]))
        return f"mean {mean}, SD {sd}" if mean else "none known"
    return f"{value:,}"


def read_findings(folder: Path, name: str | None = None) -> Findings:
    """Read the results of a run.

    Args:
        folder: folder that `carbon finetune` wrote.
        name: name of the run; the folder's own if None.

    Raises:
        ModelError: the folder has no fine-tuned model, has another format, or is damaged.
    """
    manifest = read_manifest(folder)
    try:
        results = read_json(folder / RESULTS, _Results, error=ModelError, remedy="fine-tune again")
    except OSError as error:
        raise ModelError(f"{folder / RESULTS}: {error.strerror}; fine-tune again") from None
    return Findings(
        name=name or folder.resolve().name,
        results=dict(results),
        manifest=manifest,
        config=FinetuneConfig.load(folder / CONFIG, ()),
    )


def read_predictions(folder: Path, findings: Findings) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return labels and predictions of the test split, (rows, columns) each, NaN where unknown.

    Classes are indices of the task's names.
    """
    task = findings.manifest.task
    with (folder / PREDICTIONS).open(encoding="utf-8", newline="") as lines:
        next(lines)  # settings
        rows = [row for row in csv.DictReader(lines, delimiter="\t") if row["split"] == "test"]
    outputs = [f"predicted_{name}" for name in task.output_names]
    labels = [[_label_of(task, row[name]) for name in label_columns(task)] for row in rows]
    predictions = [[_number_of(row[name]) for name in outputs] for row in rows]
    return (
        np.array(labels, dtype=np.float64).reshape(len(rows), -1),
        np.array(predictions, dtype=np.float64).reshape(len(rows), -1),
    )


def label_columns(task: LabelTask) -> list[str]:
    """Return the columns of `predictions.tsv` that hold labels."""
    if task.num_columns == 1:
        return ["label"]
    return [f"label_{name}" for name in task.names]


def _label_of(task: LabelTask, text: str) -> float:
    """Return a number, or the index of a class."""
    if task.task_type.one_column and text != ".":
        return float(task.names.index(text))
    return _number_of(text)


def _number_of(text: str) -> float:
    return float("nan") if text == "." else float(text)


def score_label(score: str) -> str:
    """Return the displayed name of a score.

    >>> score_label("auroc[liver]")
    'AUROC, liver'
    """
    name, _, of = score.partition("[")
    label = SCORES[name].label
    return f"{label}, {of.removesuffix(']')}" if of else label


def estimate_text(estimate: Mapping[str, Any]) -> str:
    """Return a value with its 95 % interval.

    >>> estimate_text({"value": 0.5, "low": 0.25, "high": 0.75})
    '0.500 (0.250 to 0.750)'
    """
    if estimate["value"] is None:
        return "not defined"
    if estimate["low"] is None or estimate["high"] is None:
        return number_text(estimate["value"])
    value, low, high = (number_text(estimate[key]) for key in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def score_text(value: float | None) -> str:
    """Return a score as text."""
    return "not defined" if value is None else number_text(value)


def number_text(value: float) -> str:
    """Return a score with three decimals, or three significant digits if it is large or small."""
    is_plain = value == 0 or 0.001 <= abs(value) < 1000
    return f"{value:.3f}" if is_plain else f"{value:.3g}"
