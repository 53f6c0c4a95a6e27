"""Runs that are stopped and go on, records, and the report, with a task of a few lines."""

import csv
import json
import re
import shutil
import subprocess
from dataclasses import replace
from functools import partial

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carbon.errors import ConfigError, UserError
from eval import cost, runner
from eval.contract import Curve, Example, Grid, Model, Options, Task
from eval.cost import software
from eval.entrants import Baselines, Contender, Entrant, entrants_of
from eval.metrics import METRICS
from eval.records import as_json, file_stem, read_folder, read_record, read_rows
from eval.report import write_report
from eval.runner import Suite, run_suite
from eval.summary import summary_of
from eval.uncertainty import bootstrap
from tests.helpers.files import random_bases, write_fasta


class Oracle(Model):
    """Knows a share of the answers."""

    def __init__(self, name: str, share: float, context_bp: int | None = None) -> None:
        self.name, self.share, self.context_bp = name, share, context_bp

    def generate(self, prompts, length_bp, mode="token"):
        return [prompt[::-1][:length_bp] if self.knows(prompt) else "N" * length_bp
                for prompt in prompts]  # fmt: skip

    def knows(self, prompt: str) -> bool:
        return sum(prompt.encode()) % 100 < 100 * self.share


def read(source) -> pa.Table:
    return pq.read_table(source)


def examples(table: pa.Table, options: Options) -> list[Example]:
    rows = table.to_pylist()[: options.max_samples]
    return [
        Example(f"e{n}", row["group"],
                {"row": row, "chrom": f"chr{n % 3}", "label": n % 2, "skip": None},
                len(row["prompt"]))
        for n, row in enumerate(rows)
    ]  # fmt: skip


def answers(model: Model, asked) -> "Iterator":  # noqa: F821
    for example in asked:
        prompt = example.data["row"]["prompt"]
        (text,) = model.generate([prompt], 4)
        hits = sum(a == b for a, b in zip(text, prompt[::-1][:4], strict=True))
        yield {"id": example.id, "group": example.group, "score": hits / 4,
               "chrom": example.data["chrom"]}  # fmt: skip


def summarise(results):
    found = summary_of(results, "mean", cluster="chrom")
    places = [1.0, 2.0]
    return replace(
        found,
        others={"again": found.value},
        curves={"by_position": Curve("place", "right", places, [0.5, 0.25])},
        grids={"depth": Grid("length", "depth", ["1", "2"], ["0"], [[0.5, None]])},
        notes=["a note <to> show"],
    )


TASK = Task(
    name="toy", version="1", axis="generation", measures="what is read backwards", metric="mean",
    chance=0.25, published={"Carbon-3B": 0.6}, citation="nobody", columns={"prompt": str},
    hub_id=None, hub_file=None, read=read, build=lambda output: None, examples=examples,
    run=answers, summarise=summarise, cluster="chrom",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    rows = [
        {"prompt": random_bases(20 + 10 * (n % 3), n), "group": "ab"[n % 2], "phyloP": n / 30}
        for n in range(30)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "toy.parquet")
    write_fasta(tmp_path / "train.fa", {"c": random_bases(2000, 99)})
    return tmp_path


def suite_of(folder, *, share=0.8, task=TASK, resume=False, output="out", **more) -> Suite:
    models = {"m": Oracle("m", share, more.pop("context_bp", None))}
    return Suite(
        tasks=[task],
        models=[Entrant("m", "model", "somewhere", "id", "float32")],
        baselines=Baselines([folder / "train.fa"], [1, 3], more.pop("columns", [])),
        load=lambda entrant: models[entrant.name],
        output=folder / output,
        datasets={"": str(folder)},
        references={},
        options=Options(more.pop("max_samples", None)),
        resume=resume,
        **more,
    )


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
    expected = bootstrap(METRICS["mean"](rows), 30, clusters=clusters)
    assert model["summary"]["value"]["low"] == pytest.approx(expected.low)
    assert model["counts"] == {"examples": 30, "measured": 30, "skipped": {}}
    assert model["data"]["rows"] == 30 and len(model["data"]["identity"]) == 64
    assert model["software"] == software()
    assert model["cost"]["seconds"] > 0 and model["hardware"]["cores"] >= 1
    assert not list((folder / "out").rglob(".*"))


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


def test_a_run_that_is_killed_goes_on_by_example(folder, monkeypatch):
    monkeypatch.setattr(runner, "_BLOCK_SECONDS", 0.0)
    run_suite(suite_of(folder, output="whole"))
    asked: list[str] = []
    for after in (7, 20):
        with pytest.raises(Killed):
            stopped = replace(TASK, run=stopping(after, asked))
            run_suite(suite_of(folder, task=stopped, resume=after > 7))
    with pytest.raises(UserError, match="go on with --resume"):
        run_suite(suite_of(folder))
    (journal,) = (folder / "out").rglob(".m.json.progress")
    with journal.open("ab") as sink:
        sink.write(b'{"results": [{"id": "e2')  # torn as by a power cut
    run_suite(suite_of(folder, task=replace(TASK, run=stopping(99, asked)), resume=True))
    assert asked == [f"e{n}" for n in range(30)]  # none twice
    for name in ("m.jsonl", "GC.jsonl"):
        ours, whole = (folder / o / "toy" / name for o in ("out", "whole"))
        assert ours.read_bytes() == whole.read_bytes()
    ours, whole = (read_record(folder / o / "toy/m.json").record for o in ("out", "whole"))
    assert ours["summary"] == whole["summary"]
    before = (folder / "out/toy/m.json").read_bytes()
    run_suite(suite_of(folder, resume=True))
    assert (folder / "out/toy/m.json").read_bytes() == before


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
    assert f"m skipped 10: {reason}" in page and "<td>30 bp</td>" in page
    # Compared on what both have measured.
    comparisons = list(csv.DictReader((folder / "out/csv/comparisons.csv").open()))
    assert {row["samples"] for row in comparisons} == {"20"}
    run_suite(suite_of(folder, context_bp=3, output="none"))
    assert read_record(folder / "none/toy/m.json").record["summary"] is None
    assert "0 of 30" in write_report([folder / "none"], folder / "none", "T").read_text()


def test_a_score_that_is_no_number_is_left_out(folder):
    def broken(model, some):
        for n, result in enumerate(answers(model, some)):
            yield {**result, "score": float("nan") if n == 3 else result["score"]}

    run_suite(suite_of(folder, task=replace(TASK, run=broken)))
    record = read_record(folder / "out/toy/m.json").record
    assert record["counts"]["skipped"] == {"the score is not finite": 1}


def test_results_that_are_not_those_of_the_examples_are_a_defect(folder):
    def careless(model, some):
        yield from reversed(list(answers(model, some)))

    with pytest.raises(RuntimeError, match="not those of the examples"):
        run_suite(suite_of(folder, task=replace(TASK, run=careless)))


def test_columns_of_the_user_stand_beside_models_of_variants(folder):
    def labelled(model, some):
        for example, result in zip(some, answers(model, some), strict=True):
            yield {**result, "label": example.data["label"]}

    task = replace(
        TASK, axis="variants", metric="auroc", run=labelled, cluster=None,
        summarise=partial(summary_of, metric="auroc"),
    )  # fmt: skip
    run_suite(suite_of(folder, task=task, columns=["phyloP"]))
    names = {stored.entrant for stored in read_folder(folder / "out")}
    assert names == {"chance", "GC", "Markov 1", "Markov 3", "m", "column phyloP", "CpG",
                     "transition/transversion"}  # fmt: skip
    rows = read_rows(folder / "out/toy/column-phyloP.jsonl")
    assert [row["score"] for row in rows] == [n / 30 for n in range(30)]
    for column, message in (("CADD", "no column 'CADD'"), ("group", "has 'a', which is no number")):
        with pytest.raises(UserError, match=message):
            run_suite(suite_of(folder, task=task, columns=[column], output=column))


def skipping(table, options):
    """Leave some out, and all of one label in the last third."""
    found = examples(table, options)
    for n, example in enumerate(found):
        example.data["skip"] = "REF is not in the reference" if n in (3, 4) else None
    return found


def labelled_answers(model, some):
    for example, result in zip(some, answers(model, some), strict=True):
        if example.data["skip"]:
            yield {"id": example.id, "group": example.group, "skipped": example.data["skip"]}
        else:
            yield {**result, "label": example.data["label"]}


LABELLED = replace(
    TASK, axis="variants", metric="auroc", examples=skipping, run=labelled_answers, cluster=None,
    summarise=partial(summary_of, metric="auroc"),
)  # fmt: skip


def test_a_column_is_measured_on_the_variants_that_models_are_measured_on(folder):
    run_suite(suite_of(folder, task=LABELLED, columns=["phyloP"]))
    ids = {s.entrant: {row["id"] for row in s.results()} for s in read_folder(folder / "out")}
    assert ids["column phyloP"] == ids["m"] == ids["CpG"] == {f"e{n}" for n in range(30)} - {
        "e3", "e4"
    }  # fmt: skip


def test_what_is_broken_is_said_with_its_task_data_and_entrant(folder):
    def rows(table, options):
        raise UserError("row 7: label is 9")

    with pytest.raises(UserError, match=r"^toy \(.*toy\.parquet\): row 7: label is 9$"):
        run_suite(suite_of(folder, task=replace(TASK, examples=rows)))

    def unread(source):
        raise ConfigError("x.parquet: has no row")

    with pytest.raises(ConfigError, match=r"^toy: x\.parquet: has no row$"):
        run_suite(suite_of(folder, task=replace(TASK, read=unread)))
    # A column that says nothing of one label leaves nothing to tell apart.
    table = pq.read_table(folder / "toy.parquet").to_pylist()
    half = [row | {"phyloP": None if n % 2 else 1.0} for n, row in enumerate(table)]
    pq.write_table(pa.Table.from_pylist(half), folder / "toy.parquet")
    message = r"^toy \(.*\), column phyloP: 14 examples, only label 0: both labels are needed"
    with pytest.raises(UserError, match=message):
        run_suite(suite_of(folder, task=LABELLED, columns=["phyloP"]))
    assert not (folder / "out/toy/column-phyloP.jsonl").exists()


def test_examples_of_one_id_are_a_defect(folder):
    def twice(table, options):
        return examples(table, options)[:1] * 2

    with pytest.raises(AssertionError, match="toy"):
        run_suite(suite_of(folder, task=replace(TASK, examples=twice)))


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
    run_suite(suite_of(folder))
    (folder / "file").touch()
    with pytest.raises(UserError, match="file: is a file; name a folder"):
        run_suite(suite_of(folder, output="file"))
    with pytest.raises(UserError, match="file: is a file; name a folder"):
        write_report([folder / "out"], folder / "file", "T")


def test_a_difference_without_a_value_is_not_shown(folder):
    """Average precision by chromosome, where no chromosome has both labels."""
    metric = "average_precision_by_chromosome"
    task = replace(
        LABELLED, metric=metric, summarise=partial(summary_of, metric=metric),
        examples=lambda table, options: [
            replace(example, data={**example.data, "chrom": f"chr{n % 2}"})
            for n, example in enumerate(skipping(table, options))
        ],
    )  # fmt: skip
    models = [Entrant("m", "model", "s", "i", dtype) for dtype in ("float32", "bfloat16")]
    run_suite(replace(suite_of(folder, task=task), models=models))
    page = write_report([folder / "out"], folder / "out", "T").read_text()
    assert "nan [" not in page and "nan" not in (folder / "out/report.md").read_text()
    assert len((folder / "out/csv/comparisons.csv").read_text().splitlines()) == 1


def two_runs(folder):
    run_suite(suite_of(folder))
    for name, dtype, share in (("m", "bfloat16", 0.2), ("other", "float32", 0.8)):
        suite = suite_of(folder, output=f"{name}-{dtype}")
        entrant = Entrant(name, "model", "elsewhere", "x", dtype)
        model = Oracle(name, share)
        run_suite(replace(suite, models=[entrant], load=lambda _, model=model: model))
    return [folder / "out", folder / "m-bfloat16", folder / "other-float32"]


def test_the_report_holds_everything_and_needs_nothing(folder):
    folders = two_runs(folder)
    path = write_report(folders, folder / "report", "A <title>")
    page, markdown = path.read_text(), (folder / "report/report.md").read_text()
    assert "A &lt;title&gt;" in page and "a note &lt;to&gt; show" in page
    assert not re.search(r"<(script|link|img|iframe)|@import|src=|(href=.|url\()http", page)
    for text in ("Markov 3", "chance", "m bfloat16", "other", "Carbon-3B", "inside the noise"):
        assert text in page and text in markdown, text
    names = {p.stem for p in (folder / "report/csv").iterdir()}
    assert names == {
        "overview", "throughput", "comparisons", "precision-gap", "toy-values", "toy-by_position",
        "toy-group", "toy-m-depth", "toy-m-bfloat16-depth", "toy-other-depth",
    }  # fmt: skip
    assert page.count("data:text/csv;base64,") == page.count("<svg") == len(names) - 2
    values = list(csv.DictReader((folder / "report/csv/toy-values.csv").open()))
    by_name = {row["entrant"]: row for row in values if row["kind"] != "expected"}
    record = read_record(folder / "out/toy/m.json").record["summary"]["value"]
    assert float(by_name["m"]["value"]) == record["value"]
    assert (by_name["Carbon-3B"]["kind"], by_name["Carbon-3B"]["value"]) == ("published", "0.6")
    (gap,) = csv.DictReader((folder / "report/csv/precision-gap.csv").open())
    assert (gap["first"], gap["second"], gap["verdict"]) == ("m", "m bfloat16", "m is ahead")
    grid = list(csv.reader((folder / "report/csv/toy-m-depth.csv").open()))
    assert grid == [["depth", "length", "value"], ["0", "1", "0.5"], ["0", "2", ""]]
    again = write_report(folders, folder / "again", "A <title>").read_text()
    assert again == page


def test_what_cannot_stand_in_one_report(folder):
    run_suite(suite_of(folder))
    for path in (folder / "out/toy").glob("[!m]*.json"):
        path.unlink()
    with pytest.raises(ConfigError, match="no baseline of toy beside it"):
        write_report([folder / "out"], folder / "r", "T")
    run_suite(suite_of(folder, output="few", max_samples=9))
    run_suite(suite_of(folder, output="all"))
    with pytest.raises(ConfigError, match="are not of the same options"):
        write_report([folder / "few", folder / "all"], folder / "r", "T")
    other = replace(
        suite_of(folder, output="o"), models=[Entrant("m", "model", "s", "i2", "float32")]
    )
    run_suite(other)
    with pytest.raises(ConfigError, match="both called 'm' and differ"):
        write_report([folder / "all", folder / "o"], folder / "r", "T")
    run_suite(suite_of(folder, output="newer", task=replace(TASK, version="2")))
    with pytest.raises(ConfigError, match="are of versions 2 and 1 of toy"):
        write_report([folder / "all", folder / "newer"], folder / "r", "T")
    with pytest.raises(ConfigError, match="no such folder"):
        write_report([folder / "absent"], folder / "r", "T")
    (folder / "empty").mkdir()
    with pytest.raises(ConfigError, match="holds no record"):
        write_report([folder / "empty"], folder / "r", "T")
    assert not (folder / "r").exists()


def test_torn_records_and_rows_are_named(folder):
    run_suite(suite_of(folder))
    path = folder / "out/toy/m.json"
    whole = path.read_text()
    for torn in (whole[:200].encode(), b"\xff\xfe" + whole.encode()):
        path.write_bytes(torn)
        with pytest.raises(ConfigError, match=r"m\.json: is not valid JSON"):
            read_folder(folder / "out")
    record = json.loads(whole)
    del record["summary"]["value"]["low"]
    path.write_text(json.dumps(record))
    with pytest.raises(ConfigError, match=r"m\.json: is no record of an evaluation \(summary"):
        read_folder(folder / "out")
    path.write_text(whole)
    rows = path.with_suffix(".jsonl")
    lines = rows.read_text().splitlines()
    rows.write_text(rows.read_text()[:-20])
    with pytest.raises(ConfigError, match=r"m\.jsonl line 30: is not valid JSON"):
        write_report([folder / "out"], folder / "r", "T")
    for text, words in (
        (lines[:-1], "m.jsonl: has 29 results, of 30 of the record"),
        (["\xff\xfe"], "m.jsonl line 1: is not valid JSON"),
    ):
        rows.write_text("\n".join(text), encoding="latin-1")
        with pytest.raises(ConfigError, match=words):
            write_report([folder / "out"], folder / "r", "T")
    rows.unlink()
    with pytest.raises(ConfigError, match=r"m\.jsonl: no such file"):
        write_report([folder / "out"], folder / "r", "T")


def test_names_of_models_and_files(tmp_path):
    (tmp_path / "run" / "export").mkdir(parents=True)
    export = str(tmp_path / "run" / "export")
    found = entrants_of([export, f"x={tmp_path}", "org/model"], ["float32", "bfloat16"])
    assert [(e.name, e.shown_as) for e in found] == [
        ("run", "run"), ("run", "run bfloat16"), ("x", "x"), ("x", "x bfloat16"),
        ("model", "model"), ("model", "model bfloat16"),
    ]  # fmt: skip
    with pytest.raises(UserError, match="'run' is taken; write NAME=b/run"):
        entrants_of([export, "b/run"], ["float32"])
    with pytest.raises(UserError, match="--model x=: no such model folder"):
        entrants_of(["x="], ["float32"])
    for absent in ("absent", "./a", "a/b/c"):
        with pytest.raises(UserError, match=f"--model {absent}: no such model folder"):
            entrants_of([absent], ["float32"])
    assert file_stem("../x y") == "x-y"
    nothing = {"a": (1, None), "b": float("nan")}
    assert as_json(nothing) == {"a": [1, None], "b": None}
    assert isinstance(Contender(lambda *_: iter([]), None), tuple)


def test_a_model_is_not_named_as_a_baseline(folder):
    suite = suite_of(folder)
    for name in ("GC", "Markov 3", "Markov-3"):
        namesake = Entrant(name, "model", "m", "", "float32")
        with pytest.raises(UserError, match="is the name of another; write NAME=MODEL"):
            run_suite(replace(suite, models=[namesake]))


def test_baselines_are_not_left_out(tmp_path):
    with pytest.raises(UserError, match="give --train FASTA or PARQUET"):
        Baselines([], [1], [])
    with pytest.raises(UserError, match="--orders 13: give 1 to 12"):
        Baselines([tmp_path], [13], [])
    with pytest.raises(UserError, match="no such file"):
        Baselines([tmp_path / "absent.fa"], [1], [])
    pq.write_table(pa.table({"text": ["ACGT"]}), tmp_path / "t.parquet")
    baselines = Baselines([tmp_path / "t.parquet"], [1], [])
    make = baselines.of(TASK)
    fit = next(m for e, m in make.items() if e.name == "Markov 1")
    with pytest.raises(UserError, match="has no column 'sequence'"):
        fit()
    for rows in ([None, "ACGT"], [1, 2]):
        pq.write_table(pa.table({"sequence": rows}), tmp_path / "t.parquet")
        with pytest.raises(UserError, match=r"t\.parquet: column 'sequence' has rows that are no"):
            fit()
    (tmp_path / "t.parquet").write_bytes(b"no")
    with pytest.raises(UserError, match=r"t\.parquet: cannot be read"):
        fit()


def test_the_schema_is_a_schema():
    from eval.records import _SCHEMA

    jsonschema.Draft202012Validator.check_schema(json.loads(_SCHEMA.read_text()))
