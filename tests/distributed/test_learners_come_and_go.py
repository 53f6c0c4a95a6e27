"""Learners of one mailbox that die, stop, come late or lose a file, as commands of their own.

What each counts is in tests/unit/learners/test_going_alone.py.
"""

import json
import os
import signal
import sys

import pytest
import torch
from safetensors.torch import load_file

from tests.helpers.mailbox import LIMIT_SECONDS, Mailbox
from tests.helpers.processes import waits_for
from tests.helpers.runs import lines_of, steps_of_each
from train.__main__ import main
from train.diloco.codecs import CODECS, decoded


@pytest.fixture
def mailbox(tmp_path):
    made = []

    def make(name="one", **given):
        made.append(Mailbox(tmp_path / name, **given))
        return made[-1]

    yield make
    for process in (process for one in made for process in one.started):
        if process.is_alive():
            os.kill(process.pid, signal.SIGCONT)
            process.kill()


def members(meeting):
    return [told["learner"] for told in meeting["members"]]


NIGHTLY = {"marks": pytest.mark.nightly}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("killed while it writes", **NIGHTLY),
        pytest.param("killed between meetings", **NIGHTLY),
        pytest.param("killed before it tells", **NIGHTLY),
        pytest.param("killed before the record", **NIGHTLY),
    ],
)
def test_a_killed_learner_halts_nobody_and_comes_back(fault, mailbox):
    was_whole = fault == "killed before the record"
    run = mailbox(grace_seconds=30.0 if was_whole else 2.0)
    # Who is there first creates the record; the one that is to die must come to it.
    other = run.learner(0, "late with the record" if was_whole else "none")
    lost = run.learner(1, fault)
    lost.join(LIMIT_SECONDS)
    assert lost.exitcode == 9
    waits_for(lambda: (run.folder / "mailbox/meetings/000001.json").exists())
    run.ends(other, run.learner(1, "none", "--resume", "auto"))
    assert len(run.digests(0, 1)) == 1
    assert members(run.meetings()[1]) == ([0, 1] if was_whole else [0])


@pytest.mark.nightly
def test_a_stopped_learner_takes_the_newer_anchor(mailbox):
    run = mailbox(steps=20)
    other, stopped = run.learner(0), run.learner(1, "stopped")
    waits_for(lambda: (run.folder / "mailbox/meetings/000003.json").exists())
    os.kill(stopped.pid, signal.SIGCONT)
    run.ends(other, stopped)
    assert len(run.digests(0, 1)) == 1
    assert members(run.meetings()[2]) == [0]


@pytest.mark.nightly
def test_alone_below_a_quorum_and_then_together(mailbox):
    run = mailbox(quorum=2, grace_seconds=0.3, steps=20)
    first = run.learner(0, "slow")
    # What it has learned alone is sent before the other is there.
    waits_for(lambda: (run.folder / "mailbox/rounds/000000/0-1.json").exists())
    run.ends(first, run.learner(1))
    assert len(run.digests(0, 1)) == 1
    meeting = run.meetings()[0]
    assert members(meeting) == [0, 1]
    assert [told["extra"] > 0 for told in meeting["members"]] == [True, False]
    # What it has learned alone is in what it sends.
    assert meeting["members"][0]["steps"] == 3 * (1 + meeting["members"][0]["extra"])
    assert all(members(meeting) == [0, 1] for meeting in run.meetings())
    # What it took alone and did not send counts for nothing.
    for told in [told for meeting in run.meetings()[1:] for told in meeting["members"]]:
        assert told["steps"] <= 3 and told["tokens"] <= 3 * 512
    cards_say_what_was_merged(run, planned=40)


def cards_say_what_was_merged(run, planned):
    """All learners' cards say the same, whichever steps each of them has taken."""
    merged = [told for meeting in run.meetings() for told in meeting["members"] if told["tokens"]]
    tokens, steps = (sum(told[name] for told in merged) for name in ("tokens", "steps"))
    said = f"on {tokens:,} tokens, in {steps:,} of {planned:,} planned steps"
    for number in (0, 1):
        assert said in (run.run(number) / "export/README.md").read_text(encoding="utf-8")


@pytest.mark.nightly
def test_a_late_learner_counts_nothing_at_first(mailbox):
    run = mailbox(steps=40, quorum=2, grace_seconds=60.0)  # nobody is left out
    early = [run.learner(number, "slow") for number in (0, 1)]
    waits_for(lambda: (run.folder / "mailbox/meetings/000000.json").exists())
    run.ends(*early, run.learner(2))
    assert len(run.digests(0, 1, 2)) == 1
    its = [told for m in run.meetings() for told in m["members"] if told["learner"] == 2]
    assert its[0]["tokens"] == 0
    assert len(its) > 1 and all(told["tokens"] > 0 for told in its[1:])
    steps = [line["step"] for n in (0, 1, 2) for line in lines_of(run.run(n))]
    assert len(set(steps)) == len(steps)  # no two read the same rows


def asks_to_take_part(run, number):
    file = run.folder / f"mailbox/learners/{number}.json"
    return file.exists() and json.loads(file.read_text())["asks_after"] is not None


@pytest.mark.nightly
def test_a_late_learner_of_two_processes(start, mailbox):
    """All its processes learn where the others are, and one alone speaks to the mailbox."""
    run = mailbox(steps=40)
    first = run.learner(0, "slow")
    waits_for(lambda: (run.folder / "mailbox/meetings/000002.json").exists())
    os.kill(first.pid, signal.SIGSTOP)
    words = ["--config", f"{run.folder}/recipe.toml", "--set", "learners.number=1"]
    launcher = ["-m", "train.launch", "--standalone", "--nproc-per-node", "2", "-m", "train"]
    late = start([sys.executable, *launcher, *words])
    waits_for(lambda: asks_to_take_part(run, 1))
    os.kill(first.pid, signal.SIGCONT)
    _, said = late.communicate(timeout=LIMIT_SECONDS)
    assert late.returncode == 0, said
    run.ends(first)
    assert any(members(meeting) == [0, 1] for meeting in run.meetings())
    assert len(run.digests(0, 1)) == 1


FLYING = {"every_steps": 4, "fragments": 2, "delay_steps": 1, "alpha": 0.5}


@pytest.mark.nightly
@pytest.mark.parametrize("method", [{"codec": "top2"}, FLYING], ids=["between", "in flight"])
def test_a_learner_that_was_stopped_goes_on_bit_for_bit(method, mailbox):
    learners = {"quorum": 2, "grace_seconds": 60.0} | method
    alone = mailbox("alone", **learners)
    alone.ends(alone.learner(0), alone.learner(1))
    run = mailbox("stopped", **learners)
    other, told = run.learner(0), run.learner(1, "told to stop")
    run.ends(told)
    assert "SIGTERM: saved" in told.said()
    run.ends(other, run.learner(1, "none", "--resume", "auto"))
    assert run.digests(0, 1) == alone.digests(0, 1)
    clocked = {"seconds": 0}
    for found, wanted in zip(run.meetings(), alone.meetings(), strict=True):
        assert [m | clocked for m in found["members"]] == [m | clocked for m in wanted["members"]]


@pytest.mark.nightly
def test_what_is_torn_late_or_foreign_is_named_and_left_out(mailbox):
    clean = mailbox("clean", grace_seconds=0.2, steps=6)
    clean.ends(clean.learner(0))
    own = json.loads((clean.folder / "mailbox/rounds/000000/0-0.json").read_text())
    run = mailbox("junk", grace_seconds=0.2, steps=6)
    folder = run.folder / "mailbox/rounds/000000"
    folder.mkdir(parents=True)
    tables = {
        "1-0": None,
        "1-1": own | {"learner": 1, "extra": 1, "base": "another"},
        "1-2": own | {"learner": 1, "extra": 2},
        "7-0": own | {"learner": 7},
    }
    for name, table in tables.items():
        (folder / f"{name}.json").write_text("{" if table is None else json.dumps(table))
        (folder / f"{name}.safetensors").write_bytes(b"torn")
    alone = run.learner(0, "disk full")
    run.ends(alone)
    assert run.digests(0) == clean.digests(0)
    for said in ("1-0.json: is not whole", "1-1.json: is from another anchor",
                 "1-2.safetensors: is not what its sha256 says", "7-0.json: is of no member",
                 "No space left"):  # fmt: skip
        assert alone.said().count(said) == 1, said


def tear(run, meeting):
    """Put half of learner 0's change in its place; who has the whole one open goes on reading."""
    told = run.meetings()[meeting]["members"][0]
    file = run.folder / f"mailbox/rounds/{meeting:06d}/0-{told['extra']}.safetensors"
    whole = file.read_bytes()
    file.unlink()
    file.write_bytes(whole[: len(whole) // 2])


@pytest.mark.nightly
def test_who_lacks_a_change_waits_for_an_anchor_and_may_be_stopped(mailbox):
    run = mailbox(grace_seconds=4.0, anchor_every=99)
    other, lost = run.learner(0, "slow"), run.learner(1, "killed between meetings")
    waits_for(lambda: (run.folder / "mailbox/meetings/000002.json").exists())
    lost.join(LIMIT_SECONDS)
    os.kill(other.pid, signal.SIGSTOP)
    tear(run, 1)
    back = run.learner(1, "none", "--resume", "auto")
    waits_for(lambda: "waits for the next anchor that is kept" in back.said())
    os.kill(back.pid, signal.SIGTERM)
    run.ends(back)
    assert "SIGTERM: saved" in back.said()
    assert not (run.run(1) / "export").exists()
    os.kill(other.pid, signal.SIGCONT)
    run.ends(other, run.learner(1, "none", "--resume", "auto"))
    assert len(run.digests(0, 1)) == 1


@pytest.mark.nightly
@pytest.mark.parametrize("steps", [12, 6], ids=["in the run", "at its end"])
def test_who_is_alone_keeps_its_anchor_for_those_who_lack_a_change(steps, mailbox):
    run = mailbox(quorum=2, grace_seconds=4.0, anchor_every=99, steps=steps)
    other, lost = run.learner(0, "slow"), run.learner(1, "killed between meetings")
    waits_for(lambda: (run.folder / "mailbox/anchors/000000.json").exists())
    lost.join(LIMIT_SECONDS)
    tear(run, 0)
    run.ends(other, run.learner(1, "none", "--resume", "auto"))
    assert len(run.digests(0, 1)) == 1
    assert all(members(meeting) == [0, 1] for meeting in run.meetings())


@pytest.mark.nightly
def test_the_records_replay_by_torch(mailbox):
    """From the files of the mailbox alone, with torch's SGD as the outer optimizer."""
    run = mailbox(codec="int8", quorum=2, grace_seconds=60.0, anchor_every=99, steps=6)
    run.ends(run.learner(0), run.learner(1))
    settings = [
        "learners.count=0",
        "learners.quorum=0",
        "learners.mailbox=",
        f"output={run.folder}/begun",
    ]
    settings += steps_of_each(1)
    for stage in (0, 1):  # weights as they are drawn: steps of 1e-30 change none
        settings += [f"phases.{stage}.learning_rate=1e-30",
                     f"phases.{stage}.final_learning_rate=0"]  # fmt: skip
    words = [word for setting in settings for word in ("--set", setting)]
    assert main(["--config", f"{run.folder}/recipe.toml", *words]) == 0
    weights = load_file(f"{run.folder}/begun/export/model.safetensors")
    anchor = {name: torch.nn.Parameter(weight.clone()) for name, weight in weights.items()}
    outer = torch.optim.SGD(anchor.values(), lr=0.7, momentum=0.9, nesterov=True)
    shapes = {name: weight.shape for name, weight in weights.items()}
    for meeting in run.meetings():
        total = sum(told["tokens"] for told in meeting["members"])
        for parameter in anchor.values():
            parameter.grad = torch.zeros_like(parameter)
        for told in meeting["members"]:
            file = f"rounds/{meeting['round']:06d}/{told['learner']}-{told['extra']}.safetensors"
            parts = load_file(run.folder / "mailbox" / file)
            for name, change in decoded(CODECS["int8"], parts, shapes).items():
                anchor[name].grad += change * (told["tokens"] / total)
        outer.step()
    for name, weight in load_file(run.run(0) / "export/model.safetensors").items():
        torch.testing.assert_close(anchor[name].detach(), weight, rtol=0, atol=1e-6)
    assert len(run.digests(0, 1)) == 1


def test_a_mailbox_of_another_run_is_refused(mailbox, capsys):
    run = mailbox(grace_seconds=0.2, steps=3)
    words = ["--config", f"{run.folder}/recipe.toml", "--set"]
    assert main([*words, "learners.number=0"]) == 0
    assert main([*words, "learners.number=1", "--set", "seed=5"]) == 2
    assert "is of a run with other settings: " in capsys.readouterr().err


@pytest.mark.nightly
def test_a_number_that_two_launches_have(mailbox):
    run = mailbox(grace_seconds=0.2, steps=40)
    first = run.learner(0, "slow")
    waits_for(lambda: (run.folder / "mailbox/meetings/000000.json").exists())
    second = run.learner(0, "none", "--set", f"output={run.folder}/elsewhere")
    first.join(LIMIT_SECONDS)
    assert first.exitcode == 2
    assert "another launch is learner 0 since this one began" in first.said()
    second.kill()
