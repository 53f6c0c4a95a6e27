"""Records and the report about them, with a task of a few lines."""

import csv
import json
import re
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carbon.errors import ConfigError, UserError
from eval.entrants import Baselines, Entrant, entrants_of
from eval.records import as_json, file_stem, read_folder, read_record
from eval.report import write_report
from eval.runner import run_suite
from tests.helpers.eval_runner import TASK, Oracle, suite_of
from tests.helpers.files import write_fasta


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
    page = write_report(folders, folder / "report", "A <title>").read_text()
    assert "A &lt;title&gt;" in page and "a note &lt;to&gt; show" in page
    assert not re.search(r"<(script|link|img|iframe)|@import|src=|(href=.|url\()http", page)
    markdown = (folder / "report/report.md").read_text()
    for name in ("Markov 3", "chance", "m bfloat16", "other", "Carbon-3B"):
        assert name in page and name in markdown, name
    values = list(csv.DictReader((folder / "report/csv/toy-values.csv").open()))
    by_name = {row["entrant"]: row for row in values if row["kind"] != "expected"}
    record = read_record(folder / "out/toy/m.json").record["summary"]["value"]
    assert float(by_name["m"]["value"]) == record["value"]
    assert (by_name["Carbon-3B"]["kind"], by_name["Carbon-3B"]["value"]) == ("published", "0.6")
    (gap,) = csv.DictReader((folder / "report/csv/precision-gap.csv").open())
    assert (gap["first"], gap["second"], gap["verdict"]) == ("m", "m bfloat16", "m is ahead")
    grid = list(csv.reader((folder / "report/csv/toy-m-depth.csv").open()))
    assert grid == [["depth", "length", "value"], ["0", "1", "0.5"], ["0", "2", ""]]


def test_what_cannot_stand_in_one_report(folder):
    other = [Entrant("m", "model", "s", "i2", "float32")]
    for output, more, models in (
        ("alone", {}, None),
        ("few", {"max_samples": 9}, None),
        ("all", {}, None),
        ("o", {}, other),
        ("newer", {"task": replace(TASK, version="2")}, None),
    ):
        suite = suite_of(folder, output=output, **more)
        run_suite(replace(suite, models=models or suite.models))
    for path in (folder / "alone/toy").glob("[!m]*.json"):
        path.unlink()
    for names, message in (
        (["alone"], "no baseline of toy"),
        (["few", "all"], "not of the same max_samples"),
        (["all", "o"], "both called 'm' and differ"),
        (["all", "newer"], "of versions 2 and 1 of toy"),
    ):
        with pytest.raises(ConfigError, match=message):
            write_report([folder / name for name in names], folder / "r", "T")
    assert not (folder / "r").exists()


def test_records_on_two_references_cannot_stand_in_one_report(folder):
    for name in ("one", "two", "none"):
        given = {} if name == "none" else {"": str(write_fasta(folder / f"{name}.fa", {name: "A"}))}
        run_suite(replace(suite_of(folder, output=name), references=given))
    with pytest.raises(ConfigError, match="not of the same reference"):
        write_report([folder / "one", folder / "two"], folder / "r", "T")
    # What is measured without a reference reads none.
    assert write_report([folder / "one", folder / "none"], folder / "r", "T").exists()


def test_one_example_shows_no_difference_and_the_numbers_are_json(folder):
    run_suite(suite_of(folder, max_samples=1, share=0))
    write_report([folder / "out"], folder / "r", "T")
    numbers = json.loads((folder / "r/results.json").read_text(), parse_constant=pytest.fail)
    (found,) = numbers["tasks"]["toy"]["differences"]
    assert found["value"] and (found["low"], found["high"]) == (None, None)
    assert found["verdict"] == "no difference is shown"
    for name in ("report.md", "csv/comparisons.csv"):
        assert "nan" not in (folder / "r" / name).read_text()


def test_skipped_steps_of_a_training_run_have_no_part_in_its_last_loss(folder):
    run_suite(suite_of(folder, max_samples=3))
    lines = [{"step": n, "tokens": n, "phase": "p", "objective": "ce"} for n in range(1, 31)]
    for line in lines[:-1]:
        line["nats_per_base"] = 1.0 if line["step"] <= 10 else 1.25
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_report([folder / "out"], folder / "r", "T", run=folder)
    numbers = json.loads((folder / "r/results.json").read_text(), parse_constant=pytest.fail)
    assert numbers["training"]["nats_per_base_first"] == 1
    assert numbers["training"]["nats_per_base_last"] == 1.25


def test_torn_records_and_rows_are_named(folder):
    run_suite(suite_of(folder))
    path = folder / "out/toy/m.json"
    whole = path.read_text()
    record = json.loads(whole)
    del record["summary"]["value"]["low"]
    for torn, message in (
        (b"\xff\xfe" + whole.encode(), "Invalid JSON"),
        (json.dumps(record).encode(), "is no record of an evaluation"),
    ):
        path.write_bytes(torn)
        with pytest.raises(ConfigError, match=rf"m\.json: {message}"):
            read_folder(folder / "out")
    path.write_text(whole)
    rows = path.with_suffix(".jsonl")
    text = rows.read_bytes()
    for torn, message in (
        (text[:-20], " line 30: Invalid JSON"),
        (b"".join(text.splitlines(keepends=True)[:-1]), ": has 29 results, of 30"),
        (b"\xff\xfe", " line 1: Invalid JSON"),
        (None, ": no such file"),
    ):
        rows.unlink() if torn is None else rows.write_bytes(torn)
        with pytest.raises(ConfigError, match=rf"m\.jsonl{message}"):
            write_report([folder / "out"], folder / "r", "T")


def test_names_of_models_and_files(tmp_path):
    (tmp_path / "run" / "export").mkdir(parents=True)
    export = str(tmp_path / "run" / "export")
    found = entrants_of([export, f"x={tmp_path}", "org/model"], ["float32", "bfloat16"])
    assert [e.name for e in found] == [name for name in ("run", "x", "model") for _ in range(2)]
    assert [e.shown_as for e in found[:2]] == ["run", "run bfloat16"]
    for absent in ("x=", "./a", "a/b/c"):
        with pytest.raises(UserError, match=f"--model {absent}: no such model folder"):
            entrants_of([absent], ["float32"])
    assert file_stem("../x y") == "x-y"
    assert as_json({"a": (1, None), "b": float("nan")}) == {"a": [1, None], "b": None}


def test_what_baselines_cannot_be_fitted_on_is_named(folder, tmp_path):
    namesake = Entrant("Markov-3", "model", "m", "", "float32")
    with pytest.raises(UserError, match="is the name of another"):
        run_suite(replace(suite_of(folder), models=[namesake]))
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"text": ["ACGT"]}), path)
    baselines = Baselines([path], [1], [])
    fit = next(make for entrant, make in baselines.of(TASK).items() if entrant.name == "Markov 1")
    with pytest.raises(UserError, match="has no column 'sequence'"):
        fit()
    for rows in ([None, "ACGT"], [1, 2]):
        pq.write_table(pa.table({"sequence": rows}), path)
        with pytest.raises(UserError, match=r"t\.parquet: column 'sequence'"):
            fit()
