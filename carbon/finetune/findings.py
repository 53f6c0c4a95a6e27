"""What the folder of a run says, for its report and its card."""

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carbon.errors import ModelError
from carbon.finetune.config import BASELINES, FinetuneConfig
from carbon.finetune.folder import Manifest, read_manifest
from carbon.finetune.tasks import Question
from carbon.uncertainty import verdict

RESULTS, CONFIG, PREDICTIONS = "results.json", "config.toml", "predictions.tsv"

_SPOKEN = {
    "auroc": "AUROC", "auprc": "AUPRC", "mcc": "MCC", "macro_f1": "macro F1", "f1": "F1",
    "pearson": "Pearson's r", "spearman": "Spearman's rho", "r2": "R²",
    "mse": "mean squared error",
}  # fmt: skip
_MEANING = {
    "binary": "AUROC is the chance that an example of class '{second}' is ranked above one of "
    "'{first}': 1 is perfect, 0.5 a guess.",
    "classes": "MCC (Matthews' correlation) is 1 where every class is right, and 0 of a guess.",
    "labels": "AUROC is the chance that an example with a label is ranked above one without, the "
    "mean over {number} labels: 1 is perfect, 0.5 a guess.",
    "numbers": "Pearson's r is 1 where predictions rise with what was measured along a line, and 0 "
    "where they have nothing to do with one another.",
    "bases": "MCC (Matthews' correlation) is 1 where every base is right, and 0 of a guess.",
}

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Findings:
    """A run that has ended.

    Attributes:
        name: of its folder.
        results: `results.json`.
        manifest: `finetune.json`.
        config: `config.toml`.
    """

    name: str
    results: Json
    manifest: Manifest
    config: FinetuneConfig

    @property
    def first(self) -> str:
        """The score that the model was chosen by."""
        return str(self.results["chosen_by"])

    @property
    def base(self) -> str:
        """Name of the model that was fine-tuned; where it lies is nobody else's business."""
        return Path(self.manifest.base).name

    def best_baseline(self) -> str | None:
        """Return the baseline with the highest first score."""
        scores = {name: scores[self.first]["value"] for name, scores in self.results["test"].items()
                  if name != "model" and scores[self.first]["value"] is not None}  # fmt: skip
        return max(scores, key=lambda name: scores[name]) if scores else None

    def answer(self) -> list[str]:
        """Return plain sentences: how good it is, compared with what, and what that means."""
        return [self._how_good(), self._beside(), self._meaning()]

    def _how_good(self) -> str:
        number = self.results["examples"]["test"]
        score = estimate_text(self.results["test"]["model"][self.first])
        mean = "mean " if self._is_mean() else ""
        measured = f"the model's {mean}{spoken(self.first)} is {score}"
        leaks = self.leaks_of_test()
        if not leaks:
            clear = "none of which was found in another part"
            return f"On {number:,} test sequences, {clear}, {measured}."
        return (
            f"On {number:,} test sequences, {measured}. But {leaks:,} of these sequences, or "
            "nearly the same, stand in another part too, so the scores are too high."
        )

    def leaks_of_test(self) -> int:
        """Return how many test sequences another part has, or nearly."""
        leaks = [leak for leak in self.results["leaks"] if leak["part"] == "test"]
        return sum(leak["num_equal"] + leak["num_near"] for leak in leaks)

    def _is_mean(self) -> bool:
        question = self.manifest.question
        return not question.of_kind.one_column and len(question.names) > 1

    def _beside(self) -> str:
        best = self.best_baseline()
        if best is None:
            return "No baseline stands beside the model, so whether that is much is not known."
        theirs = estimate_text(self.results["test"][best][self.first])
        ahead = self.results["model_minus"][best][self.first]
        return (
            f"The best baseline, {best} ({BASELINES[best]}), has {theirs}. "
            f"{verdict('The model', best, ahead, estimate_text)}"
        )

    def _meaning(self) -> str:
        names = self.manifest.question.names
        return _MEANING[self.manifest.question.kind].format(
            first=names[0], second=names[-1], number=len(names)
        )


def read_findings(folder: Path, name: str | None = None) -> Findings:
    """Read what `carbon finetune` wrote.

    Args:
        folder: of the run.
        name: to call it by; the folder's own, if none is given.

    Raises:
        ModelError: it is no such folder, or one of another version, or damaged.
    """
    manifest = read_manifest(folder)
    try:
        results = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
        _ = results["details"], results["leaks"], results["files"]
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(
            f"{folder / RESULTS}: cannot be reported ({error!r}); fine-tune again"
        ) from None
    return Findings(
        name=name or folder.resolve().name,
        results=results,
        manifest=manifest,
        config=FinetuneConfig.load(folder / CONFIG, ()),
    )


def read_predictions(folder: Path, findings: Findings) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return labels and predictions of the test part, (rows, columns) each, NaN where unknown.

    Classes are indices of the names of the question.
    """
    question = findings.manifest.question
    with (folder / PREDICTIONS).open(encoding="utf-8", newline="") as lines:
        next(lines)  # settings
        rows = [row for row in csv.DictReader(lines, delimiter="\t") if row["part"] == "test"]
    outputs = [f"predicted_{name}" for name in question.output_names]
    labels = [[_label_of(question, row[name]) for name in label_columns(question)] for row in rows]
    said = [[_number_of(row[name]) for name in outputs] for row in rows]
    return (
        np.array(labels, dtype=np.float64).reshape(len(rows), -1),
        np.array(said, dtype=np.float64).reshape(len(rows), -1),
    )


def label_columns(question: Question) -> list[str]:
    """Return the columns of `predictions.tsv` that hold labels."""
    if question.num_columns == 1:
        return ["label"]
    return [f"label_{name}" for name in question.names]


def _label_of(question: Question, text: str) -> float:
    """Return a number, or the index of a class."""
    if question.of_kind.one_column and text != ".":
        return float(question.names.index(text))
    return _number_of(text)


def _number_of(text: str) -> float:
    return float("nan") if text == "." else float(text)


def spoken(score: str) -> str:
    """Write the key of a score as it is said.

    >>> spoken("auroc[liver]")
    'AUROC, liver'
    """
    name, _, of = score.partition("[")
    said = _SPOKEN.get(name, name.replace("_", " "))
    return f"{said}, {of.removesuffix(']')}" if of else said


def estimate_text(estimate: Mapping[str, Any]) -> str:
    """Write a value with its 95 % interval.

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
    """Write a score: three digits behind the point, or three that count of a large or small one."""
    is_plain = value == 0 or 0.001 <= abs(value) < 1000
    return f"{value:.3f}" if is_plain else f"{value:.3g}"
