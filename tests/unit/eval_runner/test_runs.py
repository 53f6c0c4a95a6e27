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
from eval import answers as answers_module
from eval import cost
from eval.cost import software
from eval.entrants import entrants_of
from eval.metrics import METRICS
from eval.records import read_folder, read_record, read_rows
from eval.report import write_report
from eval.runner import run_suite
from tests.helpers.eval_runner import (
    LABELLED,
    TASK,
    answers,
    examples,
    suite_of,
)
from tests.helpers.files import random_bases, write_fasta


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


def test_the_revision_of_a_checkout(checkout):
    head = (checkout / ".git" / "HEAD").read_text().split()[1]
    commit = (checkout / ".git" / head).read_text().strip()
    assert re.fullmatch("[0-9a-f]{40}", commit)
    assert software()["git_revision"] == commit
    (checkout / "file").write_text("two\n")
    assert software()["git_revision"] == f"{commit}+"


def test_an_archive_has_no_revision(checkout, tmp_path_factory, monkeypatch):
    """Wherever it is unpacked: in a folder of its own, or inside the checkout of something else."""
    (checkout / "carbon-0.1").mkdir()
    for root in (checkout / "carbon-0.1", tmp_path_factory.mktemp("archive")):
        monkeypatch.setattr(cost, "_ROOT", root)
        assert software()["git_revision"] is None


def test_no_revision_without_git(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert software()["git_revision"] is None


class Killed(Exception):
    pass


def stopping(after: int, asked: list[str]):
    def run(model, some):
        for result in answers(model, some):
            if model.name == "m":
                if len(asked) == after:
                    raise Killed
                asked.append(result["id"])
            yield result

    return run


def test_a_run_that_is_killed_goes_on_by_piece(folder, monkeypatch):
    monkeypatch.setattr(answers_module, "_PIECE_EXAMPLES", 4)
    run_suite(suite_of(folder, output="whole"))
    asked: list[str] = []
    for after in (7, 20):
        with pytest.raises(Killed):
            stopped = replace(TASK, run=stopping(after, asked))
            run_suite(suite_of(folder, task=stopped, resume=after > 7))
    with pytest.raises(UserError, match="go on with --resume"):
        run_suite(suite_of(folder))
    journal = folder / ".out.progress"
    with journal.open("ab") as sink:
        sink.write(b'{"results": [{"id": "e2')  # torn as by a power cut
    run_suite(suite_of(folder, task=replace(TASK, run=stopping(99, asked)), resume=True))
    again = [f"e{n}" for n in (4, 5, 6, 16)]  # of the pieces that were not complete
    assert sorted(asked) == sorted([f"e{n}" for n in range(30)] + again)
    for name in ("m.jsonl", "GC.jsonl"):
        ours, whole = (folder / o / "toy" / name for o in ("out", "whole"))
        assert ours.read_bytes() == whole.read_bytes()
    ours, whole = (read_record(folder / o / "toy/m.json").record for o in ("out", "whole"))
    assert ours["summary"] == whole["summary"]
    before = (folder / "out/toy/m.json").read_bytes()
    run_suite(suite_of(folder, resume=True))
    assert (folder / "out/toy/m.json").read_bytes() == before


def test_a_record_is_not_begun_by_one_version_and_ended_by_another(folder, monkeypatch):
    monkeypatch.setattr(answers_module, "_BATCH_SECONDS", 0.0)
    with pytest.raises(Killed):
        run_suite(suite_of(folder, task=replace(TASK, run=stopping(7, []))))
    monkeypatch.setattr("eval.runner.__version__", "0.0.1")
    with pytest.raises(UserError, match="differs in: carbon"):
        run_suite(suite_of(folder, resume=True))


@pytest.mark.parametrize(
    ("change", "what"),
    [({"max_samples": 5}, "max_samples"), ({"task": replace(TASK, version="2")}, "version")],
)
def test_other_results_are_not_gone_on_with(folder, change, what):
    run_suite(suite_of(folder))
    with pytest.raises(UserError, match=f"is of another {what}"):
        run_suite(suite_of(folder, resume=True, **change))


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
    assert "m skipped 10: longer than the context<" in page and "<td>30 bp</td>" in page
    # Compared on what both have measured.
    comparisons = list(csv.DictReader((folder / "out/csv/comparisons.csv").open()))
    assert {row["samples"] for row in comparisons} == {"20"}
    run_suite(suite_of(folder, context_bp=3, output="none"))
    assert read_record(folder / "none/toy/m.json").record["summary"] is None
    assert "0 of 30" in write_report([folder / "none"], folder / "none", "T").read_text()


@pytest.mark.parametrize("no_number", ["nan", "inf"])
def test_a_score_that_is_no_number_stops_the_run_and_names_the_example(folder, no_number):
    def broken(model, some):
        for n, result in enumerate(answers(model, some)):
            yield {**result, "score": float(no_number) if n == 3 else result["score"]}

    with pytest.raises(
        ModelError, match=r"^toy \(.*\), .+: example 'e3': the model.s output is not finite"
    ):
        run_suite(suite_of(folder, task=replace(TASK, run=broken)))
    assert not (folder / "out/toy/m.json").exists()


def test_results_that_are_not_those_of_the_examples_are_a_defect(folder):
    def careless(model, some):
        yield from reversed(list(answers(model, some)))

    def twice(table, options):
        return examples(table, options)[:1] * 2

    with pytest.raises(RuntimeError, match="not those of the examples"):
        run_suite(suite_of(folder, task=replace(TASK, run=careless)))
    with pytest.raises(AssertionError, match="toy"):
        run_suite(suite_of(folder, output="b", task=replace(TASK, examples=twice)))


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

    def unread(source):
        raise ConfigError("x.parquet: has no row")

    with pytest.raises(UserError, match=r"^toy \(.*toy\.parquet\): row 7: label is 9$"):
        run_suite(suite_of(folder, task=replace(TASK, examples=rows)))
    with pytest.raises(ConfigError, match=r"^toy: x\.parquet: has no row$"):
        run_suite(suite_of(folder, task=replace(TASK, reads=unread)))
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


def test_a_file_in_the_way_of_a_folder_is_said(folder):
    (folder / "file").touch()
    with pytest.raises(UserError, match="file: is a file"):
        run_suite(suite_of(folder, output="file"))
