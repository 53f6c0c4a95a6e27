"""Runs that are stopped and go on, records, and the report, with a task of a few lines."""

import csv
import json
import re
from dataclasses import replace
from functools import partial

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carbon.errors import ConfigError, UserError
from eval.entrants import Baselines, Contender, Entrant, entrants_of
from eval.records import as_json, file_stem, read_folder, read_record
from eval.report import write_report
from eval.runner import run_suite
from eval.summary import summary_of
from tests.helpers.eval_runner import (
    LABELLED,
    TASK,
    Oracle,
    skipping,
    suite_of,
)


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
    opening = page.split("<h2>")[0]
    assert "Models measured: 3, on 1 task, each beside baselines" in opening
    assert opening.count(" of 1 tasks, behind on ") == 3 and "<svg" in opening
    for text in (
        "Markov 3",
        "chance",
        "m bfloat16",
        "other",
        "Carbon-3B",
        "no difference is shown",
    ):
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
