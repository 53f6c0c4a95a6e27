"""Blocks that many processes do: whole or absent, done by one at a time, merged only if all are."""

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from carbon.blocks import claims
from carbon.blocks import folder as block_folder
from carbon.blocks.claims import claimed, is_held
from carbon.blocks.crew import Crew
from carbon.blocks.folder import BlockFolder, Plan
from carbon.blocks.journal import Journal
from carbon.blocks.launches import Launch
from carbon.blocks.work import Work, run_work
from carbon.errors import UserError
from carbon.files import MACHINE
from tests.helpers.blocks import Stopped
from tests.helpers.files import room_for

NUMBERS = list(range(103))


def squares(block):
    return [number**2 for number in block]


def job_of(output, *, compute=squares, resume=False, numbers=NUMBERS, **job):
    """Squares of numbers, ten a block; the last has three."""
    return Work(
        what="squaring",
        output=output,
        job={"power": 2, **job},
        check=lambda: len(numbers),
        blocks=lambda: (numbers[i : i + 10] for i in range(0, len(numbers), 10)),
        block_records=10,
        even=True,
        compute=compute,
        resume=resume,
    )


def run(work, crew=None):
    def write(results):
        pairs = (pair for block, found in results for pair in zip(block, found, strict=True))
        lines = [f"{number} {square}\n" for number, square in pairs]
        work.output.write_text("".join(lines))
        return len(lines)

    return run_work(work, crew, write)


@pytest.fixture
def expected(tmp_path):
    assert run(job_of(tmp_path / "expected")) == 103
    content = (tmp_path / "expected").read_bytes()
    (tmp_path / "expected").unlink()
    return content


def of_launch(name="l"):
    return Crew(Launch(name))


def stopped(output, after, crew=None):
    """Leave what a run has that was stopped behind so many blocks."""
    done = []

    def compute(block):
        if len(done) == after:
            raise Stopped
        done.append(block)
        return squares(block)

    with pytest.raises(Stopped):
        run(job_of(output, compute=compute), crew or Crew())


@pytest.mark.parametrize("most_files", [2**14, 4])
def test_many_give_the_bytes_of_one(tmp_path, expected, monkeypatch, most_files):
    """11 blocks, a file each, or three in each of the first files."""
    monkeypatch.setattr(block_folder, "MOST_FILES", most_files)
    output, done, results = tmp_path / "o", [], []

    def compute(block):
        done.append(block[0])
        time.sleep(0.01)  # so that all have a share
        return squares(block)

    def take_part():
        results.append(run(job_of(output, compute=compute), of_launch()))

    threads = [threading.Thread(target=take_part, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert sorted(results, key=str) == [103, None, None, None]
    assert output.read_bytes() == expected
    assert sorted(done) == NUMBERS[::10]  # nothing twice
    # A late process finds the output, and does nothing.
    assert run(job_of(output, compute=compute), of_launch("other")) is None
    assert [path.name for path in (tmp_path / ".o.blocks").iterdir()] == ["job.json"]


def test_a_crew_of_this_machine_leaves_nothing_behind(tmp_path, expected):
    assert run(job_of(tmp_path / "o"), Crew()) == 103
    assert (tmp_path / "o").read_bytes() == expected
    assert run(job_of(tmp_path / "none", numbers=[]), Crew()) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["none", "o"]


def test_a_stopped_run_goes_on(tmp_path, expected, capsys):
    output = tmp_path / "o"
    stopped(output, 4)
    assert "what is done is kept in" in capsys.readouterr().err
    for crew in (Crew(), of_launch(), None):
        with pytest.raises(UserError, match="an earlier run was stopped"):
            run(job_of(output), crew)
        with pytest.raises(UserError, match="differs in: power;"):
            run(job_of(output, power=3, resume=True), crew)
    left = []

    def compute(block):
        left.append(block[0])
        return squares(block)

    assert run(job_of(output, compute=compute, resume=True)) == 103
    assert left == NUMBERS[::10][4:] and output.read_bytes() == expected
    assert not (tmp_path / ".o.blocks").exists()
    # A process of the same launch needs no --resume.
    stopped(tmp_path / "p", 4, of_launch())
    assert run(job_of(tmp_path / "p"), of_launch()) == 103
    assert (tmp_path / "p").read_bytes() == expected


@pytest.mark.parametrize("damage", ["cut off", "a bit", "of another place", "of another job"])
def test_what_is_not_whole_is_done_again(tmp_path, expected, capsys, damage):
    output = tmp_path / "o"
    stopped(output, 9)
    first, second = (tmp_path / ".o.blocks" / f"0000{number}.block" for number in (0, 1))
    content = bytearray(first.read_bytes())
    if damage == "cut off":
        first.write_bytes(content[:-5])
    elif damage == "a bit":
        content[12] ^= 4
        first.write_bytes(content)
    elif damage == "of another place":
        second.write_bytes(content)
    else:
        BlockFolder(output, {"power": 3}).write(2, [[7]])
    assert run(job_of(output, resume=True), Crew()) == 103
    assert output.read_bytes() == expected
    assert "1 damaged files of blocks are done again" in capsys.readouterr().err


def test_a_merge_that_lacks_a_block_is_refused(tmp_path):
    folder, plan = BlockFolder(tmp_path / "o", {}), Plan(30, 3)
    assert folder.begin(lambda: plan, "l", resume=False) == plan
    for number in (0, 2):
        folder.write(number, [[number]])
    with pytest.raises(UserError, match=r"00001\.block: is missing"):
        list(folder.results(plan))
    folder.write(1, [[1]])
    assert list(folder.results(plan)) == [[0], [1], [2]]


def test_a_block_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (calls.append("sync"), fsync(handle)))
    monkeypatch.setattr(os, "replace", lambda *names: (calls.append(Path(names[1]).name),
                                                       replace(*names)))  # fmt: skip
    folder = BlockFolder(tmp_path / "o", {})
    folder.begin(lambda: Plan(1, 1), "l", resume=False)
    folder.write(0, [[1]])
    journal = Journal(tmp_path / "p", {}, resume=False)
    journal.add([1])
    journal.say_what_is_kept()
    assert calls == ["sync", "job.json", "sync", "00000.block", "sync", "sync"]


def test_a_full_disk_keeps_what_is_done(tmp_path, expected, capsys):
    """The fifth block is too large for it, and so is the output."""
    output, blocks = tmp_path / "o", tmp_path / ".o.blocks"

    def compute(block):
        return [f"{number**2}{' ' * (1000 if block[0] == 40 else 0)}" for number in block]

    with room_for(2000), pytest.raises(OSError, match="File too large") as full:
        run(job_of(output, compute=compute), Crew())
    assert full.value.filename == str(blocks / "00004.block")
    assert "what is done is kept" in capsys.readouterr().err
    names = ["00000.block", "00001.block", "00002.block", "00003.block", "job.json"]
    assert sorted(path.name for path in blocks.iterdir()) == names
    with room_for(500), pytest.raises(OSError, match="File too large"):
        run(job_of(output, resume=True), Crew())
    output.unlink()  # `run` writes it in place
    assert len(list(blocks.glob("*.block"))) == 11
    assert run(job_of(output, resume=True), Crew()) == 103
    assert output.read_bytes() == expected


def test_a_block_of_a_process_that_is_gone_is_done_by_another(tmp_path, expected):
    output = tmp_path / "o"
    stopped(output, 4)
    gone = subprocess.Popen(["true"])
    gone.wait()
    (tmp_path / ".o.blocks" / "00005.claim").write_text(f"{MACHINE} {gone.pid}")
    assert run(job_of(output, resume=True), Crew()) == 103
    assert output.read_bytes() == expected
    with pytest.raises(SystemExit):  # a child of a parent that is gone
        Crew(Launch("l"), parent=1).wait()


def test_a_block_is_claimed_by_one_and_the_claim_of_another_machine_expires(tmp_path):
    path = tmp_path / "c"
    with claimed(path) as first, claimed(path) as second:
        assert (first, second) == (True, False)
        assert is_held(path)
    assert not path.exists()
    path.write_text("ffffffff 1")
    assert is_held(path)
    aged = time.time() - claims.LEASE_SECONDS - 5
    os.utime(path, (aged, aged))
    assert not is_held(path) and not path.exists()
