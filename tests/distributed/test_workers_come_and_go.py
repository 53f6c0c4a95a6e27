"""Workers of one store that die, stop, come late or lose a file, as commands of their own.

What each counts is in tests/unit/diloco/test_going_alone.py.
"""

import json
import os
import signal
import sys

import pytest
import torch
from safetensors.torch import load_file

from tests.helpers.processes import waits_for
from tests.helpers.runs import lines_of, steps_of_each
from tests.helpers.shared_store import LIMIT_SECONDS, SharedRun
from train.__main__ import main
from train.codecs import CODECS, decoded


@pytest.fixture
def shared_run(tmp_path):
    made = []

    def make(name="one", **given):
        made.append(SharedRun(tmp_path / name, **given))
        return made[-1]

    yield make
    for process in (process for one in made for process in one.started):
        if process.is_alive():
            os.kill(process.pid, signal.SIGCONT)
            process.kill()


def members(record):
    return [report["worker"] for report in record["members"]]


NIGHTLY = {"marks": pytest.mark.nightly}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("killed while it writes", **NIGHTLY),
        pytest.param("killed between rounds", **NIGHTLY),
        pytest.param("killed before its report", **NIGHTLY),
        pytest.param("killed before the record", **NIGHTLY),
    ],
)
def test_a_killed_worker_halts_nobody_and_comes_back(fault, shared_run):
    was_whole = fault == "killed before the record"
    run = shared_run(grace_seconds=30.0 if was_whole else 2.0)
    # The first worker creates the record; the worker to be killed must reach that.
    other = run.worker(0, "late with the record" if was_whole else "none")
    lost = run.worker(1, fault)
    lost.join(LIMIT_SECONDS)
    assert lost.exitcode == 9
    waits_for(lambda: (run.folder / "store/rounds/000001.json").exists())
    run.ends(other, run.worker(1, "none", "--resume", "auto"))
    assert len(run.digests(0, 1)) == 1
    assert members(run.records()[1]) == ([0, 1] if was_whole else [0])


@pytest.mark.nightly
def test_a_stopped_worker_takes_the_newer_outer_parameters(shared_run):
    run = shared_run(steps=20)
    other, stopped = run.worker(0), run.worker(1, "stopped")
    waits_for(lambda: (run.folder / "store/rounds/000003.json").exists())
    os.kill(stopped.pid, signal.SIGCONT)
    run.ends(other, stopped)
    assert len(run.digests(0, 1)) == 1
    assert members(run.records()[2]) == [0]


@pytest.mark.nightly
def test_alone_below_a_quorum_and_then_together(shared_run):
    run = shared_run(quorum=2, grace_seconds=0.3, steps=20)
    first = run.worker(0, "slow")
    # Its steps alone are sent before the other worker is there.
    waits_for(lambda: (run.folder / "store/pseudo_gradients/000000/0-1.json").exists())
    run.ends(first, run.worker(1))
    assert len(run.digests(0, 1)) == 1
    record = run.records()[0]
    assert members(record) == [0, 1]
    assert [report["extra"] > 0 for report in record["members"]] == [True, False]
    # Its report counts the steps alone.
    assert record["members"][0]["steps"] == 3 * (1 + record["members"][0]["extra"])
    assert all(members(record) == [0, 1] for record in run.records())
    # Steps alone that were not sent count for nothing.
    for report in [report for record in run.records()[1:] for report in record["members"]]:
        assert report["steps"] <= 3 and report["tokens"] <= 3 * 512
    cards_say_what_was_merged(run, planned=40)


def cards_say_what_was_merged(run, planned):
    """All workers' cards say the same, whichever steps each of them has taken."""
    merged = [
        report for record in run.records() for report in record["members"] if report["tokens"]
    ]
    tokens, steps = (sum(report[name] for report in merged) for name in ("tokens", "steps"))
    said = f"on {tokens:,} tokens, in {steps:,} of {planned:,} planned steps"
    for number in (0, 1):
        assert said in (run.run(number) / "export/README.md").read_text(encoding="utf-8")


@pytest.mark.nightly
def test_a_late_worker_counts_nothing_at_first(shared_run):
    run = shared_run(steps=40, quorum=2, grace_seconds=60.0)  # nobody is left out
    early = [run.worker(number, "slow") for number in (0, 1)]
    waits_for(lambda: (run.folder / "store/rounds/000000.json").exists())
    run.ends(*early, run.worker(2))
    assert len(run.digests(0, 1, 2)) == 1
    its = [report for m in run.records() for report in m["members"] if report["worker"] == 2]
    assert its[0]["tokens"] == 0
    assert len(its) > 1 and all(report["tokens"] > 0 for report in its[1:])
    steps = [line["step"] for n in (0, 1, 2) for line in lines_of(run.run(n))]
    assert len(set(steps)) == len(steps)  # no two read the same rows


def asks_to_take_part(run, number):
    file = run.folder / f"store/workers/{number}.json"
    return file.exists() and json.loads(file.read_text())["asks_after"] is not None


@pytest.mark.nightly
def test_a_late_worker_of_two_processes(start, shared_run):
    """All its processes learn where the others are, and one alone speaks to the store."""
    run = shared_run(steps=40, quorum=2, grace_seconds=60.0)  # nobody is left out
    early = [run.worker(number, "slow") for number in (0, 1)]
    waits_for(lambda: (run.folder / "store/rounds/000000.json").exists())
    for worker in early:
        os.kill(worker.pid, signal.SIGSTOP)
    words = ["--config", f"{run.folder}/recipe.toml", "--set", "workers.number=2"]
    launcher = ["-m", "train.launch", "--standalone", "--nproc-per-node", "2", "-m", "train"]
    late = start([sys.executable, *launcher, *words])
    waits_for(lambda: asks_to_take_part(run, 2))
    for worker in early:
        os.kill(worker.pid, signal.SIGCONT)
    _, said = late.communicate(timeout=LIMIT_SECONDS)
    assert late.returncode == 0, said
    run.ends(*early)
    assert any(members(record) == [0, 1, 2] for record in run.records())
    assert len(run.digests(0, 1, 2)) == 1


FLYING = {"every_steps": 4, "fragments": 2, "delay_steps": 1, "alpha": 0.5}


@pytest.mark.nightly
@pytest.mark.parametrize("method", [{"codec": "top2"}, FLYING], ids=["between", "in flight"])
def test_a_worker_that_was_stopped_goes_on_bit_for_bit(method, shared_run):
    workers = {"quorum": 2, "grace_seconds": 60.0} | method
    alone = shared_run("alone", **workers)
    alone.ends(alone.worker(0), alone.worker(1))
    run = shared_run("stopped", **workers)
    other, asked = run.worker(0), run.worker(1, "asked to stop")
    run.ends(asked)
    assert "SIGTERM: saved" in asked.said()
    run.ends(other, run.worker(1, "none", "--resume", "auto"))
    assert run.digests(0, 1) == alone.digests(0, 1)
    clocked = {"seconds": 0}
    for found, wanted in zip(run.records(), alone.records(), strict=True):
        assert [m | clocked for m in found["members"]] == [m | clocked for m in wanted["members"]]


@pytest.mark.nightly
def test_what_is_torn_late_or_foreign_is_named_and_left_out(shared_run):
    clean = shared_run("clean", grace_seconds=0.2, steps=6)
    clean.ends(clean.worker(0))
    own = json.loads((clean.folder / "store/pseudo_gradients/000000/0-0.json").read_text())
    run = shared_run("junk", grace_seconds=0.2, steps=6)
    folder = run.folder / "store/pseudo_gradients/000000"
    folder.mkdir(parents=True)
    tables = {
        "1-0": None,
        "1-1": own | {"worker": 1, "extra": 1, "base": "another"},
        "1-2": own | {"worker": 1, "extra": 2},
        "7-0": own | {"worker": 7},
    }
    for name, table in tables.items():
        (folder / f"{name}.json").write_text("{" if table is None else json.dumps(table))
        (folder / f"{name}.safetensors").write_bytes(b"torn")
    alone = run.worker(0, "disk full")
    run.ends(alone)
    assert run.digests(0) == clean.digests(0)
    for said in ("1-0.json: is not whole", "1-1.json: starts from other outer parameters",
                 "1-2.safetensors: differs from its sha256", "7-0.json: is of no member",
                 "No space left"):  # fmt: skip
        assert alone.said().count(said) == 1, said


def tear(run, number):
    """Halve worker 0's file; a worker with the whole file open can still read it."""
    report = run.records()[number]["members"][0]
    file = run.folder / f"store/pseudo_gradients/{number:06d}/0-{report['extra']}.safetensors"
    whole = file.read_bytes()
    file.unlink()
    file.write_bytes(whole[: len(whole) // 2])


@pytest.mark.nightly
def test_a_worker_that_lacks_a_file_waits_for_a_snapshot_and_may_be_stopped(shared_run):
    run = shared_run(grace_seconds=4.0, snapshot_rounds=99)
    other, lost = run.worker(0, "slow"), run.worker(1, "killed between rounds")
    waits_for(lambda: (run.folder / "store/rounds/000002.json").exists())
    lost.join(LIMIT_SECONDS)
    os.kill(other.pid, signal.SIGSTOP)
    tear(run, 1)
    back = run.worker(1, "none", "--resume", "auto")
    waits_for(lambda: "waits for the next snapshot" in back.said())
    os.kill(back.pid, signal.SIGTERM)
    run.ends(back)
    assert "SIGTERM: saved" in back.said()
    assert not (run.run(1) / "export").exists()
    os.kill(other.pid, signal.SIGCONT)
    run.ends(other, run.worker(1, "none", "--resume", "auto"))
    assert len(run.digests(0, 1)) == 1


@pytest.mark.nightly
@pytest.mark.parametrize("steps", [12, 6], ids=["in the run", "at its end"])
def test_a_worker_alone_writes_a_snapshot_for_those_that_lack_a_file(steps, shared_run):
    run = shared_run(quorum=2, grace_seconds=4.0, snapshot_rounds=99, steps=steps)
    other, lost = run.worker(0, "slow"), run.worker(1, "killed between rounds")
    waits_for(lambda: (run.folder / "store/snapshots/000000.json").exists())
    lost.join(LIMIT_SECONDS)
    tear(run, 0)
    run.ends(other, run.worker(1, "none", "--resume", "auto"))
    assert len(run.digests(0, 1)) == 1
    assert all(members(record) == [0, 1] for record in run.records())


@pytest.mark.nightly
def test_the_records_replay_by_torch(shared_run):
    """From the files of the store alone, with torch's SGD as the outer optimizer."""
    run = shared_run(codec="int8", quorum=2, grace_seconds=60.0, snapshot_rounds=99, steps=6)
    run.ends(run.worker(0), run.worker(1))
    settings = [
        "workers.count=0",
        "workers.quorum=0",
        "workers.store=",
        f"output={run.folder}/begun",
    ]
    settings += steps_of_each(1)
    for phase in (0, 1):  # initial weights: steps of 1e-30 change none
        settings += [f"phases.{phase}.learning_rate=1e-30",
                     f"phases.{phase}.final_learning_rate=0"]  # fmt: skip
    words = [word for setting in settings for word in ("--set", setting)]
    assert main(["--config", f"{run.folder}/recipe.toml", *words]) == 0
    weights = load_file(f"{run.folder}/begun/export/model.safetensors")
    outer_params = {name: torch.nn.Parameter(weight.clone()) for name, weight in weights.items()}
    outer = torch.optim.SGD(outer_params.values(), lr=0.7, momentum=0.9, nesterov=True)
    shapes = {name: weight.shape for name, weight in weights.items()}
    for record in run.records():
        total = sum(report["tokens"] for report in record["members"])
        for parameter in outer_params.values():
            parameter.grad = torch.zeros_like(parameter)
        for report in record["members"]:
            folder = run.folder / f"store/pseudo_gradients/{record['round']:06d}"
            parts = load_file(folder / f"{report['worker']}-{report['extra']}.safetensors")
            for name, gradient in decoded(CODECS["int8"], parts, shapes).items():
                outer_params[name].grad += gradient * (report["tokens"] / total)
        outer.step()
    for name, weight in load_file(run.run(0) / "export/model.safetensors").items():
        torch.testing.assert_close(outer_params[name].detach(), weight, rtol=0, atol=0)
    assert len(run.digests(0, 1)) == 1


def test_a_store_of_another_run_is_refused(shared_run, capsys, monkeypatch):
    """Before processes form a group."""
    run = shared_run(grace_seconds=0.2, steps=3)
    words = ["--config", f"{run.folder}/recipe.toml", "--set"]
    assert main([*words, "workers.number=0"]) == 0
    monkeypatch.setattr("train.distributed.mesh.joined_ranks", lambda *_: pytest.fail("a group"))
    assert main([*words, "workers.number=1", "--set", "seed=5"]) == 2
    assert "is of a run with other settings: " in capsys.readouterr().err


@pytest.mark.nightly
def test_a_number_that_two_launches_have(shared_run):
    run = shared_run(grace_seconds=0.2, steps=40)
    first = run.worker(0, "slow")
    waits_for(lambda: (run.folder / "store/rounds/000000.json").exists())
    second = run.worker(0, "none", "--set", f"output={run.folder}/elsewhere")
    first.join(LIMIT_SECONDS)
    assert first.exitcode == 2
    assert "another launch is worker 0 since this one began" in first.said()
    second.kill()
