"""Rounds of workers as the reader of run folders, the page and the demo's panel show them."""

import io
import json
from types import SimpleNamespace

import pytest

from carbon.run_folder import read_lines
from demo.run_figures import run_curves
from demo.runs import Runs
from tests.helpers.run_lines import step_line, write_run
from train.runs.log import RunLog
from train.runs.summary import write_summary


def round_line(round_, sent, received, **changes):
    """A round of three workers after every tenth step; the cosines' mean is 0.6."""
    return {
        "step": 10 * round_ + 10, "round": round_, "fragments": [0], "workers": [0, 1, 3],
        "tokens": [5, 6, 7], "sent_bytes": sent, "received_bytes": received,
        "wait_seconds": 30.0, "late_steps": 0, "norms": [1.0, 1.0, 1.0],
        "cosines": [0.5, 0.6, 0.7], "mean_norm": 0.6,
    } | changes  # fmt: skip


def lab_without_a_model(runs):
    lab = SimpleNamespace(runs=runs, shown_name="none", offer=None)
    lab.first = lab
    return lab


@pytest.fixture
def run(tmp_path):
    """Bytes count from 0 again before the third round: the run was started again."""
    folder = write_run(tmp_path / "runs" / "worker-1", [step_line(n) for n in range(1, 61)])
    recipe = (folder / "config.toml").read_text().replace('until = "gradient_norm"\n', "")
    (folder / "config.toml").write_text(f"{recipe}[workers]\ncount = 4\n")
    counted = [(1_000_000, 2_000_000), (2_000_000, 4_500_000), (500_000, 700_000)]
    lines = [round_line(round_, *bytes_) for round_, bytes_ in enumerate(counted)]
    (folder / "rounds.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


def test_bytes_and_cosines_of_each_round(run):
    rounds = read_lines(run).rounds
    assert [line["sent"] for line in rounds] == [1_000_000, 1_000_000, 500_000]
    assert [line["received"] for line in rounds] == [2_000_000, 2_500_000, 700_000]
    assert [line["cosine"] for line in rounds] == pytest.approx([0.6, 0.6, 0.6])


def test_a_run_without_workers_has_no_rounds(tmp_path):
    assert read_lines(write_run(tmp_path / "run", [step_line(1)])).rounds == []


def test_the_page_shows_rounds_and_this_worker_s_own_time(run):
    page = write_summary(run).read_text(encoding="utf-8")
    assert "sent 2.5 MB, received 5.2 MB and waited 1.5 minutes" in page.replace("\n", " ")
    # 60 steps of 1,024 tokens at 2,048 a second, whatever the others have read meanwhile.
    assert "30.0 seconds" in page


def test_the_panel_draws_rounds_along_steps_and_tokens(run, tmp_path):
    runs = Runs(lab_without_a_model(tmp_path / "runs"))
    result = runs.values(runs.names[0], 0)
    assert [line["round"] for line in result["rounds"]] == [0, 1, 2]
    assert [line["tokens"] for line in result["rounds"]] == [10_240, 20_480, 30_720]
    drawn = run_curves(result, "tokens", "0")
    (seconds,) = (trace for trace in drawn["data"] if trace["name"] == "seconds")
    assert list(seconds["x"]) == [10_240, 20_480, 30_720] and list(seconds["y"]) == [30.0] * 3


def test_a_tracker_has_the_numbers_of_a_round():
    tracked, written = [], io.StringIO()
    log = object.__new__(RunLog)
    log._writes, log._sinks = True, {"rounds": written}
    log._tracker = SimpleNamespace(log=lambda step, numbers: tracked.append((step, numbers)))
    line = round_line(2, 100, 250)
    log.round(line, took_part=True)
    ((step, numbers),) = tracked
    assert step == 30 and json.loads(written.getvalue()) == line
    assert numbers.pop("round/cosine") == pytest.approx(0.6)
    assert numbers == {
        "round/round": 2, "round/workers": 3, "round/tokens": 18, "round/sent_bytes": 100,
        "round/received_bytes": 250, "round/wait_seconds": 30.0, "round/late_steps": 0,
        "round/mean_norm": 0.6,
    }  # fmt: skip
