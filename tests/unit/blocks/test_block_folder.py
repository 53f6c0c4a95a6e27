"""Blocks that many processes do: whole or absent, done by one at a time, merged only if all are."""

import json
import os
import random
import subprocess
import sys
import threading
import time

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


def job_of(output, *, compute=None, resume=False, numbers=NUMBERS, **job):
    """Squares of numbers, ten a block; the last has three."""
    return Work(
        what="squaring",
        output=output,
        job={"power": 2, **job},
        check=lambda: len(numbers),
        blocks=lambda: (numbers[i : i + 10] for i in range(0, len(numbers), 10)),
        block_records=10,
        even=True,
        compute=compute or (lambda block: [number**2 for number in block]),
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
    return (tmp_path / "expected").read_bytes()


def of_launch(name="l"):
    return Crew(Launch(name))


def in_threads(number, target):
    threads = [threading.Thread(target=target) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.parametrize("most_files", [2**14, 4])
def test_many_give_the_bytes_of_one(tmp_path, expected, monkeypatch, most_files):
    """11 blocks, a file each, or three in each of the first files."""
    monkeypatch.setattr(block_folder, "MOST_FILES", most_files)
    output, done, results = tmp_path / "o", [], []

    def compute(block):
        done.append(block[0])
        time.sleep(0.01)
        return [number**2 for number in block]

    in_threads(4, lambda: results.append(run(job_of(output, compute=compute), of_launch())))
    assert sorted(results, key=str) == [103, None, None, None]
    assert output.read_bytes() == expected
    assert sorted(done) == NUMBERS[::10]  # nothing twice
    # Who comes late finds the output, and does nothing.
    assert run(job_of(output, compute=compute), of_launch("other")) is None
    assert [path.name for path in (tmp_path / ".o.blocks").iterdir()] == ["job.json"]


def test_a_crew_of_this_machine_leaves_nothing_behind(tmp_path, expected):
    assert run(job_of(tmp_path / "o"), Crew()) == 103
    assert (tmp_path / "o").read_bytes() == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["expected", "o"]


def test_no_records(tmp_path):
    assert run(job_of(tmp_path / "o", numbers=[]), Crew()) == 0


def test_an_output_that_was_changed_is_written_anew(tmp_path, expected):
    output = tmp_path / "o"
    assert run(job_of(output), of_launch()) == 103
    output.write_text("mine")
    assert run(job_of(output), of_launch()) == 103
    assert output.read_bytes() == expected
    # So is that of another job, and one process alone takes the note away.
    assert run(job_of(output, power=3), of_launch()) == 103
    assert run(job_of(output)) == 103
    assert not (tmp_path / ".o.blocks").exists()


def stopped(output, after, crew=None):
    """Leave what a run has that was stopped behind so many blocks."""
    done = []

    def compute(block):
        if len(done) == after:
            raise Stopped
        done.append(block)
        return [number**2 for number in block]

    with pytest.raises(Stopped):
        run(job_of(output, compute=compute), crew or Crew())


def test_a_stopped_run_goes_on(tmp_path, expected, capsys):
    output = tmp_path / "o"
    stopped(output, 4)
    assert "what is done is kept in" in capsys.readouterr().err
    for crew in (Crew(), of_launch(), None):
        with pytest.raises(UserError, match="an earlier run was stopped, or is still going on"):
            run(job_of(output), crew)
        with pytest.raises(UserError, match="the earlier run differs in: power; give the same"):
            run(job_of(output, power=3, resume=True), crew)
    left = []

    def compute(block):
        left.append(block[0])
        return [number**2 for number in block]

    assert run(job_of(output, compute=compute, resume=True)) == 103
    assert left == NUMBERS[::10][4:] and output.read_bytes() == expected
    assert not (tmp_path / ".o.blocks").exists()


def test_one_of_the_same_launch_goes_on_without_being_told(tmp_path, expected):
    stopped(tmp_path / "o", 4, of_launch())
    assert run(job_of(tmp_path / "o"), of_launch()) == 103
    assert (tmp_path / "o").read_bytes() == expected


def test_a_journal_of_one_process_is_gone_on_with_by_one(tmp_path):
    journal = Journal(tmp_path / "o", {"power": 2}, resume=False)
    journal.add([0])
    journal.say_what_is_kept()
    for resume in (False, True):
        with pytest.raises(UserError, match=r"\.o\.progress: .* of one process"):
            run(job_of(tmp_path / "o", resume=resume), Crew())
    assert not (tmp_path / ".o.blocks").exists()


@pytest.mark.parametrize("seed", range(20))
def test_what_is_not_whole_is_done_again(tmp_path, expected, capsys, seed):
    """A file of blocks that is cut off, changed by a bit, or that of another place or job."""
    output, draw = tmp_path / "o", random.Random(seed)
    stopped(output, 9)
    blocks = sorted((tmp_path / ".o.blocks").glob("*.block"))
    assert len(blocks) == 9
    path, content = blocks[draw.randrange(9)], bytearray(blocks[0].read_bytes())
    match seed % 4:
        case 0:
            content = content[: draw.randrange(len(content))]
        case 1:
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        case 2:
            path = blocks[1 + draw.randrange(8)]
        case 3:
            other = BlockFolder(output, {"power": 3})
            other.write(2, [[7]])
            path, content = blocks[2], blocks[2].read_bytes()
    path.write_bytes(content)
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


def test_every_truncation_and_every_bit_of_a_file_is_told(tmp_path):
    folder = BlockFolder(tmp_path / "o", {"a": 1})
    folder.begin(lambda: Plan(1, 1), "l", resume=False)
    folder.write(0, [[0.5, None, "x"]])
    (path,) = folder.path.glob("*.block")
    whole = path.read_bytes()
    damaged = [whole[:size] for size in range(len(whole))]
    for at in range(8 * len(whole)):
        content = bytearray(whole)
        content[at // 8] ^= 1 << at % 8
        damaged.append(bytes(content))
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(UserError, match="is damaged"):
            folder.read(0)
    path.write_bytes(whole)
    assert folder.read(0) == [[0.5, None, "x"]]


def test_a_full_disk_keeps_what_is_done(tmp_path, expected, capsys):
    """The fifth block is too large for it, and so is the output."""
    output = tmp_path / "o"
    blocks = tmp_path / ".o.blocks"

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


def test_a_damaged_description_is_told(tmp_path):
    stopped(tmp_path / "o", 2)
    (tmp_path / ".o.blocks" / "job.json").write_text("garbage\n")
    with pytest.raises(UserError, match=r"job\.json: is damaged"):
        run(job_of(tmp_path / "o", resume=True), Crew())


def test_a_bad_input_leaves_nothing(tmp_path):
    def check():
        raise UserError("record 3: is bad")

    work = job_of(tmp_path / "o")
    bad = Work(**{name: getattr(work, name) for name in work.__slots__} | {"check": check})
    with pytest.raises(UserError, match="record 3"):
        run(bad, Crew())
    assert list(tmp_path.iterdir()) == []


class TestClaims:
    def test_one_at_a_time_and_given_back(self, tmp_path):
        path = tmp_path / "c"
        with claimed(path) as first, claimed(path) as second:
            assert (first, second) == (True, False)
            assert is_held(path)
        assert not path.exists()

    def test_of_a_process_that_was_killed(self, tmp_path):
        path = tmp_path / "c"
        code = (
            "import pathlib, time; from carbon.blocks.claims import claimed\n"
            f"with claimed(pathlib.Path({str(path)!r})): print(1, flush=True); time.sleep(60)"
        )
        holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert holder.stdout.readline() == b"1\n" and is_held(path)
        holder.kill()
        holder.communicate()
        with claimed(path) as is_ours:
            assert is_ours

    def test_of_another_machine_it_ends_with_its_lease(self, tmp_path, monkeypatch):
        path = tmp_path / "c"
        path.write_text("ffffffff 1")
        assert is_held(path)
        aged = time.time() - claims.LEASE_SECONDS - 5
        os.utime(path, (aged, aged))
        assert not is_held(path) and not path.exists()

    def test_it_is_renewed_for_as_long_as_it_is_held(self, tmp_path, monkeypatch):
        monkeypatch.setattr(claims, "_RENEWED_SECONDS", 0.01)
        path = tmp_path / "c"
        with claimed(path):
            os.utime(path, (1, 1))
            deadline = time.monotonic() + 10
            while path.stat().st_mtime < 10 and time.monotonic() < deadline:
                time.sleep(0.01)
            assert path.stat().st_mtime > 10

    def test_what_another_has_taken_over_is_left_to_it(self, tmp_path):
        path = tmp_path / "c"
        with claimed(path):
            path.write_text(f"{MACHINE} 1")
        assert path.read_text() == f"{MACHINE} 1"


def test_a_dead_process_loses_its_block_and_no_more(tmp_path, expected):
    output = tmp_path / "o"
    stopped(output, 4)
    gone = subprocess.Popen(["true"])
    gone.wait()
    claim = tmp_path / ".o.blocks" / "00005.claim"
    claim.write_text(f"{MACHINE} {gone.pid}")
    assert run(job_of(output, resume=True), Crew()) == 103
    assert output.read_bytes() == expected


def test_a_child_ends_with_its_parent(tmp_path):
    with pytest.raises(SystemExit):
        Crew(Launch("l"), parent=1).wait()


def test_the_description_says_everything_that_the_blocks_follow_from(tmp_path):
    stopped(tmp_path / "o", 1, of_launch("name"))
    line = (tmp_path / ".o.blocks" / "job.json").read_text()
    there = json.loads(line[9:])
    assert there == {"job": {"power": 2}, "launch": "name", "plan": [103, 11]}
