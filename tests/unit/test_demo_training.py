"""The demo's page of training runs."""

import contextlib
import html
import io
import json
import os
import re
import shlex

import numpy as np
import pytest

from carbon.errors import ConfigError, UserError
from carbon.genome.opened import Genome
from carbon.run_folder import read_lines, read_recipe
from demo.fields import checked_values
from demo.lab import Lab
from demo.panels.training import Training, find_runs
from tests.helpers.files import place_gene, write_fasta
from train.__main__ import main as train

RECIPE = """
output = "elsewhere"
seed = 0
[model]
preset = "tiny"
[data]
corpus = "corpus"
microbatch_tokens = 512
[[stages]]
name = "{first}"
objective = "ce"
tokens = 40_960
mixture = {{ eukaryote = 0.75, mrna = 0.25 }}
context_tokens = 256
batch_rows = 4
learning_rate = 3e-3
schedule = "constant"
[[stages]]
name = "second"
objective = "fns"
tokens = 20_480
mixture = {{ eukaryote = 0.5, mrna = 0.5 }}
context_tokens = 256
batch_rows = 4
learning_rate = 1e-3
schedule = "linear"
"""  # 40 steps and 20


def step_line(step, first="first", switch=40, **changes):
    stage, objective = (first, "ce") if step <= switch else ("second", "fns")
    return {
        "step": step, "tokens": 1024 * step, "stage": stage, "objective": objective,
        "context_tokens": 256, "loss": 8.0 if step <= switch else 1.3,
        "nats_per_base": 1.4 - step / 10_000, "marginal_nats_per_base": 1.4 - step / 20_000,
        "learning_rate": 1e-3, "gradient_norm": 1 / step, "tokens_per_second": 2048.0, "mfu": None,
    } | changes  # fmt: skip


def probe_line(step):
    return {"step": step, "tokens": 1024 * step, "heldout_nats_per_base": 1.41, "recovery": 0.3,
            "recovery_bf16": 0.29}  # fmt: skip


def write_run(folder, steps, probes=(), events=(), first="first"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(RECIPE.format(first=first))
    for name, lines in (("metrics", steps), ("probes", probes), ("events", events)):
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text)
    return folder


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


@pytest.fixture
def panel(lab):
    return Training(lab)


def ask(panel, **given):
    values = checked_values(panel.fields, given)
    *_, result = panel.answer(values)
    json.dumps(result, allow_nan=False)
    return values, result


def test_runs_are_found_the_newest_first(panel, runs):
    assert panel.fields[0].choices == ("newest", "deep/mine", "older")
    far = write_run(runs / "a" / "b" / "c" / "d", [step_line(1)])
    write_run(runs / ".hidden", [step_line(1)])
    write_run(runs / "older" / "inside", [step_line(1)])
    assert set(find_runs(runs)) == {"deep/mine", "older"}
    assert find_runs(far) == {"d": far}
    assert find_runs(runs / "nowhere") == {}


def test_what_is_answered(panel):
    values, result = ask(panel)
    assert (result["run"], result["model"], result["step"]) == ("deep/mine", "tiny", 60)
    assert (result["tokens"], result["planned_tokens"]) == (61_440, 61_440)
    starts = [(s["step"], s["stage"], s["objective"]) for s in result["switches"]]
    assert starts == [(1, "first", "ce"), (41, "second", "fns")]
    points = result["points"]
    assert points["step"] == list(range(1, 61)) and points["mfu"] == [None] * 60
    assert points["nats_per_base"][0] == 1.4 - 1 / 10_000
    assert points["loss"][6] is None and result["skipped_steps"] == [7]
    assert [event["event"] for event in result["events"]] == ["start"]
    shown = panel.show(values, result)
    names = [trace["name"] for trace in shown["curves"]["data"]]
    assert {"chain", "marginals", "chain, held out", "loss", "fp32", "bf16"} <= set(names)
    assert "MFU" not in names
    lines = [s for s in shown["curves"]["layout"]["shapes"] if s["type"] == "line"]
    assert [line["x0"] for line in lines] == [41]
    shares = {trace["name"]: trace["x"] for trace in shown["mixture"]["data"]}
    assert shares == {"eukaryote": [0.75, 0.5], "mrna": [0.25, 0.5]}


def test_along_tokens_and_the_last_steps(panel):
    values, result = ask(panel, axis="tokens", last_steps=10)
    assert result["points"]["step"] == list(range(51, 61))
    assert [probe["step"] for probe in result["probes"]] == [60]
    first = panel.show(values, result)["curves"]["data"][0]
    assert first["x"] == [1024 * step for step in range(51, 61)]


def test_long_runs_are_thinned_by_means_within_stages(panel, runs):
    steps = [step_line(n, switch=4001) for n in range(1, 9002)]
    write_run(runs / "long", steps)
    panel = Training(panel.lab)
    _, result = ask(panel, run="long")
    points = result["points"]
    assert len(points["step"]) <= 402 and 2 < result["steps_per_point"] <= 23
    # A mean over both stages would lie between their losses.
    assert {round(loss, 9) for loss in points["loss"]} == {8.0, 1.3}
    assert points["gradient_norm_most"][0] == 1.0 > points["gradient_norm"][0]
    assert np.mean(points["step"]) == pytest.approx(4501, rel=0.01)


def test_a_file_of_many_lines_is_read_in_part(tmp_path):
    run = write_run(tmp_path / "run", [step_line(n) for n in range(1, 101)])
    found = [line["step"] for line in read_lines(run, most_lines=30).steps]
    assert found == list(range(4, 101, 4))
    assert len(read_lines(run, most_lines=100).steps) == 100


def test_a_line_that_is_being_written(panel, runs):
    path = runs / "deep" / "mine" / "metrics.jsonl"
    with path.open("a") as sink:
        sink.write('{"step": 61, "tok')
    assert ask(panel)[1]["step"] == 60


def test_what_was_written_since_is_seen(panel, runs):
    assert ask(panel)[1]["step"] == 60
    path = runs / "deep" / "mine" / "metrics.jsonl"
    with path.open("a") as sink:
        sink.write(json.dumps(step_line(61)) + "\n")
    assert ask(panel)[1]["step"] == 61
    # Resumed from step 30: the trainer takes the lines behind it back.
    path.write_text("".join(f"{line}\n" for line in path.read_text().splitlines()[:30]))
    _, result = ask(panel)
    assert result["step"] == 30 and len(result["switches"]) == 1


def test_a_run_that_has_not_begun_or_has_gone(panel, runs):
    for name in ("metrics.jsonl", "probes.jsonl"):
        (runs / "deep" / "mine" / name).write_text("")
    values, result = ask(panel, run="deep/mine")
    assert result["step"] == 0 and result["switches"] == []
    assert "not begun" in panel.show(values, result)["facts"]
    (runs / "deep" / "mine" / "config.toml").unlink()
    with pytest.raises(UserError, match="no longer there"):
        ask(panel, run="deep/mine")


def test_only_runs_that_were_found(panel):
    for name in ("../older", "/etc", str(panel.lab.runs / "older")):
        with pytest.raises(UserError, match="there is no"):
            ask(panel, run=name)


def test_no_run_is_said(lab, tmp_path):
    lab.runs = tmp_path / "empty"
    with pytest.raises(UserError, match=r"no training run under .*train/recipes/tiny.toml") as told:
        ask(Training(lab))
    assert str(tmp_path) not in str(told.value)


def test_a_broken_run_is_named_without_its_folder(lab, tmp_path):
    lab.runs = tmp_path / "others"
    run = write_run(lab.runs / "a", [step_line(1), step_line(2)])
    for name, text in (("metrics.jsonl", b"\xff\n"), ("config.toml", b"= 3")):
        (run / name).write_bytes(text)
        with pytest.raises(UserError, match=rf"^a/{name}: ") as told:
            ask(Training(lab))
        assert str(tmp_path) not in str(told.value)


def test_a_folder_whose_name_is_no_text_is_passed_over(lab, tmp_path):
    lab.runs = tmp_path / "others"
    for name in ("a", os.fsdecode(b"b\xff")):
        write_run(lab.runs / name, [step_line(1), step_line(2)])
    panel = Training(lab)
    assert panel.fields[0].choices == ("newest", "a")
    assert "run=a" in panel.example_links()


def test_files_that_are_broken(tmp_path):
    run = write_run(tmp_path / "run", [step_line(1), step_line(2)])
    for text, message in (("{\n{}\n", "line 1: is not valid JSON"), ("[]\n", "no object")):
        (run / "metrics.jsonl").write_text(text)
        with pytest.raises(ConfigError, match=message):
            read_lines(run)
    (run / "config.toml").write_text("= 3")
    with pytest.raises(ConfigError, match="not valid TOML"):
        read_recipe(run)
    (run / "config.toml").unlink()
    with pytest.raises(ConfigError, match="no such file"):
        read_recipe(run)


@pytest.mark.parametrize("last_steps", [0, 25])
def test_python_prints_the_points(panel, last_steps):
    values, result = ask(panel, last_steps=last_steps)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(panel.python(values), {})
    printed = [[float(v) for v in line.split()] for line in out.getvalue().splitlines()]
    names = ("step", "loss", "nats_per_base", "marginal_nats_per_base", "learning_rate")
    columns = [[np.nan if v is None else v for v in result["points"][n]] for n in names]
    np.testing.assert_array_equal(printed, np.transpose(columns))


def test_command_writes_the_page(panel, runs, capsys):
    values, result = ask(panel)
    _, command = panel.command(values).splitlines()
    words = shlex.split(command)
    assert words[:3] == ["python", "-m", "train"] and train(words[3:]) == 0
    path = runs / "deep" / "mine" / "summary.html"
    assert capsys.readouterr().out.strip() == str(path)
    page = html.unescape(re.sub(r"<[^>]+>", " ", path.read_text()))
    assert f"{result['points']['nats_per_base'][-1]:.4f} at step 60" in page


def test_hostile_names_are_shown(panel, runs):
    name = "<img src=x onerror=alert(1)>"
    steps = [step_line(n, name) for n in range(1, 61)]
    events = [{"step": 1, "event": name, "message": name}]
    write_run(runs / "deep" / "mine", steps, [], events, first=name)
    values, result = ask(panel)
    shown = json.dumps(panel.show(values, result))
    assert "<img" not in shown and "&lt;img" in shown


def test_examples_are_answered(panel):
    for example in panel.examples():
        assert ask(panel, **example.values)[1]["points"]["step"]
