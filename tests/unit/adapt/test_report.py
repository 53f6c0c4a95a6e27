"""Report and card of a run, made of what its folder holds."""

import csv
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from carbon.adapt import details, intervals
from carbon.adapt.card import write_card
from carbon.adapt.config import AdaptConfig
from carbon.adapt.findings import (
    Findings,
    estimate_text,
    number_text,
    read_findings,
    read_predictions,
    spoken,
)
from carbon.adapt.folder import Manifest, write_manifest
from carbon.adapt.outcome import _write_predictions, results_of
from carbon.adapt.prepare import prepare
from carbon.adapt.question import Question
from carbon.adapt.report import write_report
from carbon.cli import main
from carbon.config import from_table, to_toml

BINARY = Question("binary", ("no", "yes"), "binary_cross_entropy")
KINDS = ("binary", "classes", "labels", "numbers", "bases")
WAYS = ("lora", "probe")
LOOKS = [[5, 0.5, 0.9, 0.4, 0.8], [10, 1.0, 0.5, 0.6, 0.7]]
LOOK_KEYS = ("step", "epoch", "loss", "score", "validation_loss")
HISTORIES = {
    "lora": {"looks": [dict(zip(LOOK_KEYS, x, strict=True)) for x in LOOKS], "step": 10},
    "probe": {
        "layers": [{"layer": 1, "strength": 1.0, "score": 0.5}, {"layer": None, "score": 0.6}],
        "layer": None,
        "sizes": [{"examples": 10, "score": 0.5}, {"examples": 20, "score": 0.6}],
    },
}


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    """How wide the intervals are is no matter here."""
    monkeypatch.setattr(intervals, "affordable_resamples", lambda num_samples: 20)
    monkeypatch.setattr(details, "_RESAMPLES_OF_GROUP", 20)


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


def a_run(tmp_path, kind, way, baselines=("constant",)):
    """Write the folder of a run whose model says what is true of three rows in four."""
    labels = table_of(kind, tmp_path / "data.tsv")
    plain = {
        "model": "models/base", "output": str(tmp_path / "run"), "baselines": list(baselines),
        "data": {
            "path": str(tmp_path / "data.tsv"), "name": "name", "labels": labels,
            "split": {"by": "contig", "column": "contig", "test_share": 0.3},
        },
        "question": {"kind": kind, "transform": "none"}, "way": {"name": way},
    }  # fmt: skip
    config = from_table(AdaptConfig, plain, "config")
    prepared = prepare(config.data, config.question)
    question = prepared.question
    said = {}
    for part in ("validation", "test"):
        truth = np.nan_to_num(prepared.examples.part(part).labels)
        truth = np.where((np.arange(len(truth)) % 4 == 0)[:, None], 0.0, truth)
        if question.of_kind.one_column and not question.of_kind.one_logit:
            truth = np.eye(len(question.names))[truth[:, 0].astype(int)]
        said[part] = (0.8 * truth + 0.1).astype(np.float32)
    history = {"seed": 0, "score": 0.6, **HISTORIES[way]}
    results = results_of(config, prepared, said, [history])
    folder = tmp_path / "run"
    folder.mkdir()
    write_manifest(
        folder, Manifest(way=way, base="/home/me/base", base_sha256="ab" * 32, question=question)
    )
    (folder / "results.json").write_text(json.dumps(results), encoding="utf-8")
    (folder / "config.toml").write_text(to_toml(config), encoding="utf-8")
    if not question.per_base:
        _write_predictions(folder / "predictions.tsv", prepared, said)
    return folder, results, (prepared, said)


class _Tags(HTMLParser):
    """Tags that are open, and addresses that a page names."""

    def __init__(self):
        super().__init__()
        self.open, self.addresses, self.headings = [], [], []

    def handle_starttag(self, tag, attributes):
        self.addresses += [v for k, v in attributes if k in ("src", "href", "xlink:href")]
        if tag not in ("meta", "html", "path", "use"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.addresses += [v for k, v in attributes if k in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag):
        if tag not in ("html", "path", "use"):
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] == ["h2"]:
            self.headings.append(data)


@pytest.mark.parametrize(("kind", "way"), [*zip(KINDS, WAYS * 3, strict=False)])
def test_a_page_and_a_card_of_each_kind(tmp_path, kind, way):
    folder, results, _ = a_run(tmp_path, kind, way)
    page = write_report(folder).read_text(encoding="utf-8")
    tags = _Tags()
    tags.feed(page)
    assert not tags.open and all(a.startswith(("#", "data:")) for a in tags.addresses)
    assert tags.headings == [
        "Scores", "Learning", "Predictions", "By group", "Worst examples", "Data and split",
        "Model and settings",
    ]  # fmt: skip
    assert (
        page.index(" test sequences") < page.index("<svg") < page.index("<h2>")
    )  # the answer comes first
    score = results["test"]["model"][results["chosen_by"]]
    card = write_card(folder).read_text(encoding="utf-8")
    for text in (page, card):
        assert estimate_text(score) in text and results["split_sha256"] in text
        assert results["files"][0]["sha256"] in text and "ab" * 32 in text
        assert "/home/me" not in text and str(tmp_path) not in text
    assert card.startswith("---\nlibrary_name: carbon-dna\n") and "nan" not in card
    assert "calls.vcf" in card
    assert "minus constant" in page and "minus constant" in card
    if kind == "labels":
        assert "<th>label (x&lt;y, z)</th><th>predicted</th>" in page
    if kind == "binary":
        assert write_report(folder).read_text(encoding="utf-8") == page  # the same bytes twice
        assert "no&lt;" in page and "`no&lt;`" in card and "no<" not in page + card


def test_predictions_are_read_as_they_were_written(tmp_path):
    folder, _, (prepared, said) = a_run(tmp_path, "numbers", "probe")
    labels, predictions = read_predictions(folder, read_findings(folder))
    np.testing.assert_array_equal(labels, prepared.examples.part("test").labels)
    np.testing.assert_array_equal(predictions.astype(np.float32), said["test"])
    assert np.isnan(labels).any()


@pytest.mark.parametrize("kind", ["binary", "classes"])
def test_predictions_have_the_names_of_classes(tmp_path, kind):
    folder, _, (prepared, said) = a_run(tmp_path, kind, "probe")
    names = prepared.question.names
    text = (folder / "predictions.tsv").read_text(encoding="utf-8").splitlines()[1:]
    rows = [row for row in csv.DictReader(text, delimiter="\t") if row["part"] == "test"]
    test = prepared.examples.part("test")
    assert [row["label"] for row in rows] == [names[int(label)] for label in test.labels[:, 0]]
    for row, found in zip(rows, said["test"], strict=True):
        best = int(found[0] > 0.5) if kind == "binary" else max(range(len(found)), key=found.item)
        assert row["predicted"] == names[best]
        assert float(row[f"predicted_{names[-1]}"]) == pytest.approx(float(found[-1]))
    labels, predictions = read_predictions(folder, read_findings(folder))
    np.testing.assert_array_equal(labels, test.labels)
    np.testing.assert_array_equal(predictions.astype(np.float32), said["test"])


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
        manifest=Manifest(way="lora", base="b", base_sha256="", question=BINARY),
        config=None,
    )


def test_the_answer_in_sentences():
    better = findings_of((0.1, 0.05, 0.15)).answer()
    assert better[0] == (
        "On 1,234 test sequences, none of which was found in another part, the model's AUROC is "
        "0.800 (0.750 to 0.850)."
    )
    assert better[1].startswith("The best baseline, kmers (")
    assert better[1].endswith(
        "), has 0.700 (0.650 to 0.750). The model is ahead of kmers by 0.100 (0.050 to 0.150)."
    )
    assert len(better) == 3 and "class 'yes'" in better[2]
    worse = findings_of((-0.1, -0.15, -0.05)).answer()[1]
    assert worse.endswith("The model is behind kmers by 0.100 (0.050 to 0.150).")
    for unclear in ((0.01, -0.02, 0.04), (-0.046, -0.144, 0.013)):
        told = findings_of(unclear).answer()[1]
        assert "No difference is shown between the model and kmers: " in told
        assert told.endswith("an interval that includes 0.")


def test_no_sentence_says_that_copies_were_not_learned_from():
    leak = {"part": "test", "num_equal": 2, "num_near": 3}
    of_train = {"part": "train", "num_equal": 7, "num_near": 0}
    answer = findings_of((0.1, 0.05, 0.15), [leak, of_train]).answer()
    assert answer[0] == (
        "On 1,234 test sequences, the model's AUROC is 0.800 (0.750 to 0.850). But 5 of these "
        "sequences, or nearly the same, stand in another part too, so the scores are too high."
    )
    assert not any("learned from" in line or "none of which" in line for line in answer)
    # A leak between train and validation says nothing of the test part.
    other = findings_of((0.1, 0.05, 0.15), [leak | {"part": "validation"}]).answer()
    assert "none of which was found in another part" in other[0]


def test_without_a_baseline_nothing_is_compared(tmp_path):
    folder, *_ = a_run(tmp_path, "binary", "probe", baselines=())
    page = write_report(folder).read_text()
    assert "No baseline stands beside the model" in page
    assert "Model minus baseline" not in page and "minus" not in write_card(folder).read_text()


def test_numbers_and_scores_as_they_are_said():
    assert [number_text(v) for v in (0.12345, 1234.5, 0.00012, 0)] == [
        "0.123", "1.23e+03", "0.00012", "0.000",
    ]  # fmt: skip
    nothing = {"value": None, "low": None, "high": None}
    assert estimate_text(nothing) == "not defined"
    assert spoken("r2[a[b]]").endswith("a[b]") and spoken("balanced_accuracy") == (
        "balanced accuracy"
    )


def test_the_command_writes_them_again(tmp_path, capsys):
    folder, *_ = a_run(tmp_path, "binary", "lora")
    assert main(["adapt", "--report", str(folder)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["report"] == str(folder / "report.html")
    assert re.search(r"<h1>run</h1>", (folder / "report.html").read_text())
    (folder / "results.json").write_text("{}")
    assert main(["adapt", "--report", str(folder)]) == 2
    assert "cannot be reported" in capsys.readouterr().err
    assert main(["adapt", "--report", str(tmp_path)]) == 2
    assert "has no adapt.json" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["adapt"])
    assert ended.value.code == 2
