"""What a run came to: measured on the test part beside the baselines, and written as a folder."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.adapt.baselines import FITS
from carbon.adapt.card import write_card
from carbon.adapt.config import AdaptConfig
from carbon.adapt.details import classes_said, details_of, labels_of, plain
from carbon.adapt.examples import PARTS
from carbon.adapt.findings import CONFIG, PREDICTIONS, RESULTS, label_columns
from carbon.adapt.intervals import beside
from carbon.adapt.loading import write_adapted
from carbon.adapt.network import OpenedModel
from carbon.adapt.predictor import Adapted
from carbon.adapt.prepare import Prepared
from carbon.adapt.question import Question
from carbon.adapt.report import write_report
from carbon.console import say
from carbon.io.files import atomic_folder
from carbon.io.tables import write_tsv
from carbon.uncertainty import Estimate

Floats32 = NDArray[np.float32]


class Learned(NamedTuple):
    """What one seed came to.

    Attributes:
        adapted: ready to predict.
        opened: the model inside.
        score: on the validation part; higher is better.
        history: how it came about, as plain values.
        told: whole sentences on what it was learned from.
    """

    adapted: Adapted
    opened: OpenedModel
    score: float
    history: dict[str, Any]
    told: tuple[str, ...] = ()


def results_of(
    config: AdaptConfig,
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
    config: AdaptConfig,
    prepared: Prepared,
    best: Learned,
    said: Mapping[str, Floats32],
    results: dict[str, Any],
) -> None:
    """Write the folder, which appears when it is whole."""
    short = {"chosen_by": results["chosen_by"], "test": results["test"]["model"]}
    manifest = replace(best.adapted.manifest, results=short)
    with atomic_folder(config.output_folder) as folder:
        write_adapted(folder, best.adapted.network, best.opened, manifest)
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
