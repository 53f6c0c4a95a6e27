"""Training runs of the Inside page, on disk and recorded."""

import json
import os

import numpy as np
import pytest

from carbon.errors import UserError
from carbon.genome.genome import Genome
from carbon.run_folder import read_lines
from demo.folders import find_folders
from demo.lab import Lab
from demo.panels.inside import Inside
from demo.run_figures import run_curves
from demo.runs import OWN, Runs, run_tables, run_text
from tests.helpers.demo import learned_example, make_lab, visited
from tests.helpers.files import place_gene, write_fasta
from tests.helpers.run_lines import probe_line, step_line, write_run


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "runs"
    write_run(folder / "older", [step_line(1)])
    os.utime(folder / "older" / "metrics.jsonl", (1, 1))
    steps = [step_line(n) for n in range(1, 61)]
    steps[6] |= {"skipped": "a spike", "loss": 99.0}
    events = [{"step": 0, "event": "start", "message": "from step 0"},
              {"step": 20, "event": "save", "message": "saved"}]  # fmt: skip
    write_run(folder / "deep" / "mine", steps, [probe_line(20), probe_line(60)], events)
    return folder


@pytest.fixture
def lab(model, tmp_path, runs):
    fasta = write_fasta(tmp_path / "genome.fa", {"c1": place_gene()[0]})
    return Lab(model, "MODEL", Genome.open(fasta, None), runs)


def values_of_run(lab, name="deep/mine", last_steps=0):
    return Runs(lab).values(name, last_steps)


def find_runs(root):
    return find_folders(root, ("config.toml", "metrics.jsonl"))


def test_runs_are_found_the_newest_first(lab, runs):
    assert Runs(lab).names == ("deep/mine", "older")
    (field,) = [field for field in Inside(lab).fields if field.name == "run"]
    assert field.choices == (OWN, "deep/mine", "older") and field.default == "deep/mine"
    far = write_run(runs / "a" / "b" / "c" / "d", [step_line(1)])
    write_run(runs / ".hidden", [step_line(1)])
    write_run(runs / "older" / "inside", [step_line(1)])
    assert set(find_runs(runs)) == {"deep/mine", "older"}
    assert find_runs(far) == {"d": far}
    assert find_runs(runs / "nowhere") == {}


def test_what_is_answered(lab):
    result = values_of_run(lab)
    assert (result["run"], result["model"], result["step"]) == ("deep/mine", "tiny", 60)
    assert (result["tokens"], result["planned_tokens"]) == (61_440, 61_440)
    starts = [(s["step"], s["phase"], s["objective"]) for s in result["switches"]]
    assert starts == [(1, "first", "ce"), (41, "second", "blend")]
    points = result["points"]
    assert points["step"] == list(range(1, 61)) and points["mfu"] == [None] * 60
    assert points["nats_per_base"][0] == 1.4 - 1 / 1000
    assert points["loss"][6] is None and result["skipped_steps"] == [7]
    assert [event["event"] for event in result["events"]] == ["start"]
    curves = run_curves(result, "steps", "0")
    names = [trace["name"] for trace in curves["data"]]
    assert {"chain", "marginals", "chain, held out", "loss", "fp32", "bf16"} <= set(names)
    assert "MFU" not in names
    lines = [s for s in curves["layout"]["shapes"] if s["type"] == "line"]
    assert [line["x0"] for line in lines] == [41]
    assert "eukaryote 0.75, mrna 0.25" in run_tables(result)


def test_along_tokens_and_the_last_steps(lab):
    result = values_of_run(lab, last_steps=10)
    assert result["points"]["step"] == list(range(51, 61))
    assert [probe["step"] for probe in result["probes"]] == [60]
    first = run_curves(result, "tokens", "10")["data"][0]
    assert first["x"] == [1024 * step for step in range(51, 61)]


def test_the_page_shows_a_run_below_the_prediction(lab):
    _, result, shown = visited(Inside(lab), input="ACGTTGCATTAG", run="older")
    assert result["training"]["run"] == "older" and "older" in shown["training"]


def test_the_recorded_training_of_the_model_is_shown_by_kind_of_base(model, tmp_path):
    lab = make_lab(tmp_path, model, learned=learned_example())
    _, result, shown = visited(Inside(lab), input="ACGTTGCATTAG")
    learned = result["training"]["learned"]
    assert learned["steps"] == [0, 25, 9000]
    # At step 25 the first base of each codon of exon 1 alone is known: 2 - 0.7 / ln 2 bits.
    assert learned["bits"]["codon base 2"][:2] == pytest.approx([0, 0], abs=1e-2)
    assert 0.4 < learned["bits"]["codon base 1"][1] < 2 - 0.7 / np.log(2)
    assert {trace["name"] for trace in shown["curves"]["data"]} == set(learned["bits"])


def test_long_runs_are_thinned_by_means_within_phases(lab, runs):
    steps = [step_line(n, switch=4001) for n in range(1, 9002)]
    write_run(runs / "long", steps)
    result = values_of_run(lab, "long")
    points = result["points"]
    assert len(points["step"]) <= 402 and 2 < result["steps_per_point"] <= 23
    # A mean over both phases would lie between their losses.
    assert {round(loss, 9) for loss in points["loss"]} == {8.0, 1.3}
    assert points["gradient_norm_most"][0] == 1.0 > points["gradient_norm"][0]
    assert np.mean(points["step"]) == pytest.approx(4501, rel=0.01)


def test_a_file_of_many_lines_is_read_in_part(tmp_path):
    run = write_run(tmp_path / "run", [step_line(n) for n in range(1, 101)])
    found = [line["step"] for line in read_lines(run, most_lines=30).steps]
    assert found == list(range(4, 101, 4))
    assert len(read_lines(run, most_lines=100).steps) == 100


def test_what_was_written_since_is_seen(lab, runs):
    known = Runs(lab)
    assert known.values("deep/mine", 0)["step"] == 60
    path = runs / "deep" / "mine" / "metrics.jsonl"
    with path.open("a") as sink:
        sink.write(json.dumps(step_line(61)) + "\n")
    assert known.values("deep/mine", 0)["step"] == 61
    # Resumed from step 30: the trainer takes the lines behind it back.
    path.write_text("".join(f"{line}\n" for line in path.read_text().splitlines()[:30]))
    result = known.values("deep/mine", 0)
    assert result["step"] == 30 and len(result["switches"]) == 1


def test_a_run_that_has_not_begun_or_has_gone(lab, runs):
    for name in ("metrics.jsonl", "probes.jsonl"):
        (runs / "deep" / "mine" / name).write_text("")
    result = values_of_run(lab)
    assert result["step"] == 0 and result["switches"] == []
    assert "not begun" in run_text(result)
    (runs / "deep" / "mine" / "config.toml").unlink()
    with pytest.raises(UserError, match="no longer there"):
        values_of_run(lab)


def test_without_a_run_the_page_says_how_to_show_one(lab, tmp_path):
    lab.runs = tmp_path / "empty"
    _, result, shown = visited(Inside(lab), input="ACGTTGCATTAG")
    assert result["training"] == {"run": "MODEL"}
    assert "--runs FOLDER" in shown["training"] and shown["curves"] is None


def test_a_broken_run_is_named_without_its_folder(lab, tmp_path):
    lab.runs = tmp_path / "others"
    run = write_run(lab.runs / "a", [step_line(1), step_line(2)])
    for name, text in (("metrics.jsonl", b"\xff\n"), ("config.toml", b"= 3")):
        (run / name).write_bytes(text)
        with pytest.raises(UserError, match=rf"^a/{name}( line 1)?: ") as raised:
            values_of_run(lab, "a")
        assert str(tmp_path) not in str(raised.value)


def test_a_folder_whose_name_is_no_text_is_passed_over(lab, tmp_path):
    lab.runs = tmp_path / "others"
    for name in ("a", os.fsdecode(b"b\xff")):
        write_run(lab.runs / name, [step_line(1), step_line(2)])
    assert Runs(lab).names == ("a",)
    assert "Run a" in Inside(lab).example_links()
