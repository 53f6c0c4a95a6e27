"""Report and card of a run, made of what its folder holds."""

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from carbon.cli import main
from carbon.finetune import report
from carbon.finetune.calibration import odds_of
from carbon.finetune.config import FinetuneConfig
from carbon.finetune.data import prepare
from carbon.finetune.folder import Manifest, read_manifest, write_manifest
from carbon.finetune.report import write_pages
from carbon.finetune.results import (
    Findings,
    estimate_text,
    number_text,
    read_findings,
    read_predictions,
    results_of,
    write_predictions,
)
from carbon.finetune.tasks import LabelTask

pytestmark = pytest.mark.usefixtures("few_resamples")
BINARY = LabelTask("binary", ("no", "yes"), "binary_cross_entropy")
KINDS = ("binary", "classes", "labels", "numbers", "bases")
LOOKS = [[5, 0.5, 0.9, 0.4, 0.8], [10, 1.0, 0.5, 0.6, 0.7]]
LOOK_KEYS = ("step", "epoch", "loss", "score", "validation_loss")
HISTORIES = {
    "lora": {"validations": [dict(zip(LOOK_KEYS, x, strict=True)) for x in LOOKS], "step": 10},
    "probe": {
        "layers": [{"layer": 1, "strength": 1.0, "score": 0.5}, {"layer": None, "score": 0.6}],
        "layer": None,
        "sizes": [{"examples": 10, "score": 0.5}, {"examples": 20, "score": 0.6}],
    },
}


def table_of(kind, path):
    random = np.random.default_rng(0)
    labels = {"labels": ["x<y", "z"], "numbers": ["act", "other"]}.get(kind, ["label"])
    lines = ["\t".join(["name", "sequence", "contig", *labels])]
    for n in range(120):
        bases = "".join(random.choice(list("ACGT"), 40))
        value = {
            "binary": ["no<", "yes"][n % 2],
            "classes": "abc"[n % 3],
            "labels": f"{n % 2}\t{n // 2 % 2}",
            "numbers": f"{n % 7}\t{'NA' if n % 5 == 0 else n % 3}",
            "bases": "ab" * 20,
        }[kind]
        lines.append(f"s{n}\t{bases}\tchr{n // 10}\t{value}")
    path.write_text("\n".join(lines) + "\n")
    return labels


def a_run(tmp_path, kind, method, baselines=("constant",)):
    """Write the folder of a run whose model says what is true of three rows in four."""
    labels = table_of(kind, tmp_path / "data.tsv")
    plain = {
        "model": "models/base", "output": str(tmp_path / "run"), "baselines": list(baselines),
        "data": {
            "path": str(tmp_path / "data.tsv"), "name": "name", "labels": labels,
            "split": {"by": "contig", "column": "contig", "test_share": 0.3},
        },
        "task": {"type": kind, "transform": "none"}, "method": {"name": method},
    }  # fmt: skip
    config = FinetuneConfig.from_table(plain, "config")
    prepared = prepare(config.data, config.task, 6)
    task = prepared.task
    said = {}
    for part in ("validation", "test"):
        truth = np.nan_to_num(prepared.examples.split(part).labels)
        truth = np.where((np.arange(len(truth)) % 4 == 0)[:, None], 0.0, truth)
        if task.task_type.one_column and not task.task_type.one_logit:
            truth = np.eye(len(task.names))[truth[:, 0].astype(int)]
        said[part] = (0.8 * truth + 0.1).astype(np.float32)
    history = {"seed": 0, "score": 0.6, **HISTORIES[method]}
    logits = said
    if not task.task_type.is_number:
        to_logits = np.log if task.is_one_of else odds_of
        logits = {part: to_logits(each) for part, each in said.items()}
    results = results_of(config, prepared, logits, [history])
    folder = tmp_path / "run"
    folder.mkdir()
    write_manifest(
        folder, Manifest(method=method, base="/home/me/base", base_sha256="ab" * 32, task=task, k=6)
    )
    (folder / "results.json").write_text(json.dumps(results), encoding="utf-8")
    (folder / "config.toml").write_text(config.to_toml(), encoding="utf-8")
    if not task.per_base:
        write_predictions(folder / "predictions.tsv", prepared, said)
    return folder, results, (prepared, said)


def pages_of(folder):
    return [path.read_text("utf-8") for path in write_pages(folder, read_findings(folder))]


@pytest.fixture
def no_page(monkeypatch):
    """Leave out the page, whose figures take a second, in tests of the card."""
    monkeypatch.setattr(report, "_page", lambda *_: "")


METHODS = ("lora", "probe", "lora", "probe", "probe")


@pytest.mark.parametrize(("kind", "method"), list(zip(KINDS, METHODS, strict=True)))
def test_a_page_and_a_card_of_each_kind(tmp_path, kind, method):
    folder, results, _ = a_run(tmp_path, kind, method)
    write_manifest(folder, replace(read_manifest(folder), k=3))
    page, card = pages_of(folder)
    score = results["test"]["model"][results["chosen_by"]]
    for text in (page, card):
        assert estimate_text(score) in text and results["split_sha256"] in text
        assert results["files"][0]["sha256"] in text and "ab" * 32 in text
        assert "minus constant" in text
        assert "/home/me" not in text and str(tmp_path) not in text
    assert not re.search(r"""(?:src|href)=["'](?!#|data:)""", page)  # nothing is fetched
    assert card.startswith("---\nlibrary_name: carbon-dna\n") and "nan" not in card
    if kind == "labels":
        assert "x&lt;y" in page and "x<y" not in page
    if kind == "binary":
        assert pages_of(folder) == [page, card]  # the same bytes twice
        assert "no&lt;" in page and "`no&lt;`" in card and "no<" not in page + card
    if kind == "bases":  # the rows of its probe are the tokens of its model
        assert "By 3-mers of the train split" in page and "6-mers" not in page


@pytest.mark.parametrize("kind", ["binary", "classes", "numbers"])
def test_predictions_are_read_as_they_were_written(tmp_path, kind):
    folder, _, (prepared, said) = a_run(tmp_path, kind, "probe")
    test, names = prepared.examples.split("test"), prepared.task.names
    labels, predictions = read_predictions(folder, read_findings(folder))
    np.testing.assert_array_equal(labels, test.labels)
    np.testing.assert_array_equal(predictions.astype(np.float32), said["test"])
    if kind == "numbers":
        assert np.isnan(labels).any()
        return
    text = (folder / "predictions.tsv").read_text(encoding="utf-8").splitlines()[1:]
    rows = [row for row in csv.DictReader(text, delimiter="\t") if row["split"] == "test"]
    assert [row["label"] for row in rows] == [names[int(label)] for label in test.labels[:, 0]]
    for row, found in zip(rows, said["test"], strict=True):
        best = int(found[0] > 0.5) if kind == "binary" else max(range(len(found)), key=found.item)
        assert row["predicted"] == names[best]
        assert float(row[f"predicted_{names[-1]}"]) == pytest.approx(float(found[-1]))


def findings_of(ahead, leaks=()):
    def score(value):
        return {"auroc": {"value": value, "low": value - 0.05, "high": value + 0.05}}

    return Findings(
        name="run",
        results={
            "chosen_by": "auroc",
            "examples": {"test": 1234},
            "test": {"model": score(0.8), "constant": score(0.5), "kmers": score(0.8 - ahead[0])},
            "model_minus": {
                name: {"auroc": dict(zip(("value", "low", "high"), ahead, strict=True))}
                for name in ("constant", "kmers")
            },
            "leaks": list(leaks),
        },
        manifest=Manifest(method="lora", base="b", base_sha256="", task=BINARY, k=6),
        config=None,
    )


def test_the_answer_in_sentences():
    """Which difference is one is tested in test_verdicts."""
    answer = findings_of((0.1, 0.05, 0.15)).answer()
    assert "1,234 test" in answer[0] and "AUROC is 0.800 (0.750 to 0.850)" in answer[0]
    assert "none of which occurs in another split" in answer[0]
    assert "ahead of kmers by 0.100 (0.050 to 0.150)" in answer[1] and "class 'yes'" in answer[2]


def test_no_sentence_says_that_copies_were_not_learned_from():
    leak = {"split": "test", "num_equal": 2, "num_near": 3}
    of_train = {"split": "train", "num_equal": 7, "num_near": 0}
    answer = " ".join(findings_of((0.1, 0.05, 0.15), [leak, of_train]).answer())
    assert "5 of these sequences" in answer and "none of which" not in answer
    # A leak between train and validation says nothing of the test part.
    other = findings_of((0.1, 0.05, 0.15), [leak | {"split": "validation"}]).answer()
    assert "none of which occurs in another split" in other[0]


def test_without_a_baseline_nothing_is_compared(tmp_path, no_page):
    folder, *_ = a_run(tmp_path, "binary", "probe", baselines=())
    assert "minus" not in pages_of(folder)[1]


def test_numbers_and_scores_as_they_are_said():
    assert [number_text(v) for v in (0.12345, 1234.5, 0.00012, 0)] == [
        "0.123", "1.23e+03", "0.00012", "0.000",
    ]  # fmt: skip
    assert estimate_text({"value": None, "low": None, "high": None}) == "not defined"


def test_the_command_writes_them_again(tmp_path, no_page, capsys):
    folder, *_ = a_run(tmp_path, "binary", "lora")
    assert main(["finetune", "--report", str(folder)]) == 0
    notes = json.loads(capsys.readouterr().out)
    assert notes["report"] == str(folder / "report.html") and (folder / "README.md").is_file()
    (folder / "results.json").write_text("{}")
    assert main(["finetune", "--report", str(folder)]) == 2
    assert "results.json: details: Field required" in capsys.readouterr().err


def test_the_card_of_an_ensemble_names_the_folder_of_a_seed(tmp_path, no_page):
    folder, *_ = a_run(tmp_path, "binary", "lora")
    manifest = read_manifest(folder)
    write_manifest(folder, replace(manifest, method="full", members=("seed-3", "seed-4")))
    assert "(`seed-3/model/`)" in pages_of(folder)[1]
    write_manifest(folder, replace(manifest, method="full"))
    assert "(`model/`)" in pages_of(folder)[1]
