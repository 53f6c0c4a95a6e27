"""Read the results of a run, and the tables that its report and its model card share."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict
from typing_extensions import TypedDict

from carbon.errors import ModelError
from carbon.finetune.config import BASELINES, FinetuneConfig
from carbon.finetune.data import SPLITS
from carbon.finetune.folder import Manifest, read_manifest
from carbon.finetune.metrics import SCORE_INFO
from carbon.finetune.tasks import LabelTask
from carbon.io.structured import read_json
from carbon.progress import shown
from carbon.uncertainty import verdict

MOST_SCORES = 40
RESULTS, CONFIG, PREDICTIONS = "results.json", "config.toml", "predictions.tsv"


class _Results(TypedDict):
    """The keys of `results.json` that tell a whole file; it has more."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    details: Any
    leaks: Any
    files: list[dict[str, Any]]


class TaskText(NamedTuple):
    """Texts about a task type in reports and model cards.

    Attributes:
        score: meaning of the first score; `first` and `second` are class names.
        prediction: description of the predictions.
        certainty: the probability whose calibration is shown; empty for numbers.
        pipeline: task of the Hugging Face hub.
    """

    score: str
    prediction: str
    certainty: str
    pipeline: str = "text-classification"


TASK_TEXTS: dict[str, TaskText] = {
    "binary": TaskText(
        "AUROC is the probability that an example of class '{second}' ranks above one of "
        "'{first}': 1 is perfect, 0.5 is chance.",
        "one of two classes of a sequence; the prediction is the probability of the second",
        "the probability of the second class",
    ),
    "classes": TaskText(
        "MCC (Matthews' correlation) is 1 if every class is correct, and 0 for a guess.",
        "one of many classes of a sequence; the prediction is the probability of each",
        "the probability of the predicted class",
    ),
    "labels": TaskText(
        "AUROC is the probability that an example with a label ranks above one without it, as a "
        "mean over {number} labels: 1 is perfect, 0.5 is chance.",
        "any of many labels of a sequence; the prediction is the probability of each",
        "the probability of each label",
    ),
    "numbers": TaskText(
        "Pearson's r is 1 if predictions rise linearly with the measured values, and 0 without a "
        "linear relation.",
        "numbers of a sequence, in the unit of the training table",
        "",
    ),
    "bases": TaskText(
        "MCC (Matthews' correlation) is 1 if every base is correct, and 0 for a guess.",
        "a class of every base; the prediction is the probability of each class",
        "the probability of the predicted class",
        "token-classification",
    ),
}

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
        return TASK_TEXTS[self.manifest.task.type].score.format(
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
            ("method", method.name),
            ("pool", manifest.pool),
            ("layer", manifest.layer or "last"),
            ("strands of a prediction", manifest.strands),
            ("sequences longer than the context", manifest.too_long),
        ]
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
    label = SCORE_INFO[name].label
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


def number_text(value: float) -> str:
    """Return a score with three decimals, or three significant digits if it is large or small."""
    is_plain = value == 0 or 0.001 <= abs(value) < 1000
    return f"{value:.3f}" if is_plain else f"{value:.3g}"
