"""Runs that are stopped and go on, and what stops one, with a task of a few lines."""

import csv
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carbon.errors import ConfigError, ModelError, UserError
from carbon.io.locks import locked_folder
from carbon.uncertainty import bootstrap
from eval import cost
from eval.cost import software
from eval.entrants import entrants_of
from eval.metrics import METRICS
from eval.records import read_folder, read_record, read_rows
from eval.report import write_report
from eval.runner import run_suite
from tests.helpers.eval_runner import LABELLED, TASK, answers, suite_of
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.parallel import Stopped, stop_once_behind


def test_a_run_writes_a_checked_record_for_everyone(folder):
    paths = run_suite(suite_of(folder))
    names = ["chance", "GC", "Markov-1", "Markov-3", "m"]
    assert [path.name for path in paths] == [f"{name}.json" for name in names]
    stored = {s.entrant: s for s in read_folder(folder / "out")}
    model = stored["m"].record
    scores = [row["score"] for row in read_rows(folder / "out/toy/m.jsonl")]
    assert model["summary"]["value"]["value"] == pytest.approx(np.mean(scores))
    clusters = [f"chr{n % 3}" for n in range(30)]
    rows = stored["m"].results()
    expected = bootstrap(METRICS["mean"].of(rows), 30, clusters=clusters)
    assert model["summary"]["value"]["low"] == pytest.approx(expected.low)
    assert model["counts"] == {"examples": 30, "measured": 30, "skipped": {}}
    assert model["data"]["rows"] == 30 and len(model["data"]["identity"]) == 64
    assert model["software"] == software()
    assert model["cost"]["seconds"] > 0 and model["hardware"]["cores"] >= 1
    assert not list((folder / "out").rglob(".*"))


def test_a_folder_that_another_run_writes_to_is_refused(folder):
    with (
        locked_folder(folder / "out"),
        pytest.raises(UserError, match=r"out: in use by process \d+ on .* wait or end it"),
    ):
        run_suite(suite_of(folder))
    assert not (folder / "out").exists()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder at a commit, as the one that the code runs from."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    (tmp_path / "file").write_text("one\n")
    author = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q"], ["add", "file"], [*author, "commit", "-q", "-m", "one"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(cost, "_ROOT", tmp_path)
    return tmp_path


def test_the_revision_of_a_checkout(checkout, monkeypatch):
    head = (checkout / ".git" / "HEAD").read_text().split()[1]
    commit = (checkout / ".git" / head).read_text().strip()
    assert re.fullmatch("[0-9a-f]{40}", commit)
    assert software()["git_revision"] == commit
    (checkout / "file").write_text("two\n")
    assert software()["git_revision"] == f"{commit}+"

    monkeypatch.setenv("PATH", str(checkout))
    assert software()["git_revision"] is None, "without git"


def test_an_archive_has_no_revision(checkout, monkeypatch):
    """Here it is unpacked inside the checkout of something else."""
    (checkout / "carbon-0.1").mkdir()
    monkeypatch.setattr(cost, "_ROOT", checkout / "carbon-0.1")
    assert software()["git_revision"] is None


def test_a_record_is_not_begun_by_one_version_and_ended_by_another(folder, monkeypatch):
    stop_once_behind(monkeypatch, 1)
    with pytest.raises(Stopped):
        run_suite(suite_of(folder))
    monkeypatch.setattr("eval.runner.__version__", "0.0.1")
    with pytest.raises(UserError, match="differs in: carbon"):
        run_suite(suite_of(folder, resume=True))


def test_results_of_another_version_of_the_task_are_not_gone_on_with(folder):
    run_suite(suite_of(folder))
    with pytest.raises(UserError, match="is of another version"):
        run_suite(suite_of(folder, resume=True, task=replace(TASK, version="2")))


def test_a_genome_may_lie_elsewhere_but_not_change(folder):
    fasta, moved = folder / "g.fa", folder / "moved.fa"
    write_fasta(fasta, {"c": random_bases(200, 1)})
    suite = replace(suite_of(folder), references={"": str(fasta)})
    run_suite(suite)
    fasta.rename(moved)
    run_suite(replace(suite, references={"": str(moved)}, resume=True))
    write_fasta(moved, {"c": random_bases(200, 2)})
    with pytest.raises(UserError, match="is of another reference"):
        run_suite(replace(suite, references={"": str(moved)}, resume=True))


def test_what_does_not_fit_is_skipped_and_said(folder):
    run_suite(suite_of(folder, context_bp=30))
    record = read_record(folder / "out/toy/m.json").record
    reason = "longer than the context: needs 40 bp, 30 fit"
    assert record["counts"] == {"examples": 30, "measured": 20, "skipped": {reason: 10}}
    page = write_report([folder / "out"], folder / "out", "T").read_text()
    assert "m skipped 10: longer than the context<" in page
    # Compared on what both have measured.
    comparisons = list(csv.DictReader((folder / "out/csv/comparisons.csv").open()))
    assert {row["samples"] for row in comparisons} == {"20"}


@pytest.mark.parametrize(("key", "value"), [("score", float("inf")), ("jsd", float("nan"))])
def test_a_score_that_is_no_number_stops_the_run_and_names_the_example(folder, key, value):
    def broken(model, some):
        for n, result in enumerate(answers(model, some)):
            yield {**result, "jsd": 0.5} | ({key: value} if n == 3 else {})

    with pytest.raises(
        ModelError, match=r"^toy \(.*\), .+: example 'e3': the model.s output is not finite"
    ):
        run_suite(suite_of(folder, task=replace(TASK, run=broken)))
    assert not (folder / "out/toy/m.json").exists()


def test_results_that_are_not_those_of_the_examples_are_a_defect(folder):
    def careless(model, some):
        yield from reversed(list(answers(model, some)))

    with pytest.raises(RuntimeError, match="not those of the examples"):
        run_suite(suite_of(folder, task=replace(TASK, run=careless)))


def test_columns_of_the_user_stand_beside_models_of_variants(folder):
    """They are measured on the variants that models are measured on: two are left out."""
    run_suite(suite_of(folder, task=LABELLED, columns=["phyloP"]))
    stored = {stored.entrant: stored.results() for stored in read_folder(folder / "out")}
    assert set(stored) == {"chance", "GC", "Markov 1", "Markov 3", "m", "column phyloP", "CpG",
                           "transition/transversion"}  # fmt: skip
    measured = [n for n in range(30) if n not in (3, 4)]
    for name in ("column phyloP", "m", "CpG"):
        assert [row["id"] for row in stored[name]] == [f"e{n}" for n in measured]
    assert [row["score"] for row in stored["column phyloP"]] == [n / 30 for n in measured]
    for column, message in (("CADD", "no column 'CADD'"), ("group", "'a', which is not a number")):
        with pytest.raises(UserError, match=message):
            run_suite(suite_of(folder, task=LABELLED, columns=[column], output=column))


def test_what_is_broken_is_said_with_its_task_data_and_entrant(folder):
    def rows(table, options):
        raise UserError("row 7: label is 9")

    with pytest.raises(UserError, match=r"^toy \(.*toy\.parquet\): row 7: label is 9$"):
        run_suite(suite_of(folder, task=replace(TASK, examples=rows)))
    # A column that says nothing of one label leaves nothing to tell apart.
    table = pq.read_table(folder / "toy.parquet").to_pylist()
    half = [row | {"phyloP": None if n % 2 else 1.0} for n, row in enumerate(table)]
    pq.write_table(pa.Table.from_pylist(half), folder / "toy.parquet")
    with pytest.raises(UserError, match=r"^toy \(.*\), column phyloP: 14 examples, only label 0"):
        run_suite(suite_of(folder, task=LABELLED, columns=["phyloP"]))
    assert not (folder / "out/toy/column-phyloP.jsonl").exists()


def test_a_model_that_is_stretched_is_another(folder):
    """Else results with YaRN and without would stand in one record."""
    (folder / "model").mkdir()
    suite = suite_of(folder)
    for yarn, output in ((None, "out"), (4.0, "stretched")):
        models = entrants_of([f"m={folder / 'model'}"], ["float32"], yarn)
        run_suite(replace(suite, models=models, output=folder / output))
    with pytest.raises(UserError, match="is of another identity"):
        run_suite(replace(suite, models=models, resume=True))
    with pytest.raises(ConfigError, match="both called 'm' and differ"):
        write_report([folder / "out", folder / "stretched"], folder / "r", "T")
