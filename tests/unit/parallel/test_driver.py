"""The driver: any number of workers, killed or resumed, writes the same bytes."""

import json
import os
import signal
import tracemalloc
import zlib
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from carbon.errors import UserError
from carbon.parallel import local
from carbon.parallel.driver import MOST_IN_FLIGHT, Block, Workers, run_job
from carbon.parallel.engines import Answer, InProcess, Seat
from carbon.parallel.journal import Journal
from tests.helpers.parallel import WHOLE, Doubler, job_of, processes, run, this_process
from tests.helpers.processes import waits_for


@pytest.fixture(autouse=True)
def no_torch(monkeypatch):
    monkeypatch.setattr(local, "_PRELOADED", [])


def workers_of(folder, number, **more):
    return processes(folder, number, **more) if number else this_process(folder, **more)


@pytest.mark.parametrize("number", [0, 1, 5])
def test_the_bytes_do_not_depend_on_the_number_of_processes(tmp_path, number):
    with workers_of(tmp_path, number) as workers:
        assert run(job_of(tmp_path / "o"), workers) == 60
    assert (tmp_path / "o").read_text() == WHOLE
    assert [path.name for path in tmp_path.iterdir()] == ["o"]


@pytest.mark.parametrize(
    "troubles",
    [
        {"load": "xx", "slow": "0.1"},
        {"kill-3": "x", "kill-5": "x", "kill-9": "xx"},
    ],
)
def test_dead_workers_are_replaced(tmp_path, capsys, troubles):
    """While they load, at blocks about all at once, and twice at one block."""
    for name, times in troubles.items():
        (tmp_path / name).write_text(times)
    with processes(tmp_path, 3) as workers:
        run(job_of(tmp_path / "o"), workers)
    assert (tmp_path / "o").read_text() == WHOLE
    assert "a worker died (SIGKILL); another one replaces it" in capsys.readouterr().err


def test_an_idle_worker_is_replaced(tmp_path):
    with processes(tmp_path, 2) as workers:
        workers.about()
        (running,) = workers._engine._running.values()
        os.kill(running.process.pid, signal.SIGKILL)
        run(job_of(tmp_path / "o"), workers)
    assert (tmp_path / "o").read_text() == WHOLE


def test_a_block_that_kills_three_workers_is_named(tmp_path):
    (tmp_path / "kill-17").write_text("xxx")
    message = r"^numbers\.txt: records 17-20: 3 workers died while they computed .* \(SIGKILL\)"
    with processes(tmp_path, 2) as workers, pytest.raises(UserError, match=message):
        run(job_of(tmp_path / "o"), workers)
    assert not (tmp_path / "o").exists()
    with this_process(tmp_path, resume=True) as workers:  # the others are kept
        run(job_of(tmp_path / "o"), workers)
    assert (tmp_path / "o").read_text() == WHOLE


def test_workers_that_never_start_end_the_run(tmp_path, capsys):
    (tmp_path / "load").write_text("x" * 9)
    with processes(tmp_path, 1) as workers, pytest.raises(UserError, match="no worker could start"):
        run(job_of(tmp_path / "o"), workers)


def test_there_are_no_more_workers_than_blocks(tmp_path):
    with processes(tmp_path, 9) as workers:
        run(job_of(tmp_path / "o", total=9), workers)
        assert len(workers._states) == 3
    with processes(tmp_path, 9) as workers:
        run(job_of(tmp_path / "none", total=0), workers)
        assert len(workers._states) == 1
    assert (tmp_path / "none").read_text() == ""


def test_all_workers_that_have_blocks_start_at_once():
    """None waits until another one has loaded its model or the input has been checked."""
    engine = Recorded(7)
    Workers(engine).about(iter(range(3)))
    assert engine.num_started == 3
    assert Workers(Recorded(1)).about(iter([])) == {"model": "m"}


class Recorded:
    """An engine that answers in another order, and records the blocks in flight."""

    def __init__(self, size):
        self.size = size
        self.seat, self.sent, self.most, self.num_started = Doubler("."), [], 0, 0

    def submit(self, worker, number, payload):
        self.num_started += number is None
        self.sent.append((worker, number, payload))
        for each in range(self.size):
            blocks = [s for s in self.sent if s[0] == each and s[1] is not None]
            self.most = max(self.most, len(blocks))

    def results(self, seconds):
        worker, number, payload = self.sent.pop(-1 if len(self.sent) % 3 else 0)
        value = self.seat.about if number is None else self.seat(payload)
        yield Answer(worker, number, value)

    def close(self):
        pass


@pytest.mark.parametrize("size", [1, 2, 7])
def test_in_any_order_with_two_blocks_of_a_worker_in_flight(tmp_path, size):
    engine, read = Recorded(size), []
    with Workers(engine) as workers:
        run(job_of(tmp_path / "o"), workers)
    assert (tmp_path / "o").read_text() == WHOLE
    assert engine.most == MOST_IN_FLIGHT

    def blocks():
        for number, block in enumerate(job_of(tmp_path / "o").blocks()):
            read.append(number)
            yield Block(number, "", block)

    computed = Workers(Recorded(size)).computed(blocks())
    next(computed)
    assert (
        len(read) <= MOST_IN_FLIGHT * size + 1
    )  # the block that was returned is no longer in flight


class Together(Recorded):
    """An engine whose workers answer all at once."""

    def __init__(self, size, folder):
        super().__init__(size)
        self.seat = Seat(partial(Doubler, folder))

    def results(self, seconds):
        sent, self.sent = self.sent, []
        for worker, number, payload in sent:
            yield Answer(worker, number, self.seat.answer(number, payload))


def test_results_that_arrive_together_share_an_fsync(tmp_path, monkeypatch):
    num_syncs, fsync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (num_syncs.append(1), fsync(descriptor)))
    with Workers(Together(5, tmp_path)) as workers:
        run(job_of(tmp_path / "o"), workers)
    assert (tmp_path / "o").read_text() == WHOLE
    assert len(num_syncs) < 8  # of 15 blocks, the journal's first line and the output


def test_results_that_arrive_with_an_error_are_kept(tmp_path):
    (tmp_path / "user-1").touch()
    engine = Together(5, tmp_path)
    with Workers(engine) as workers, pytest.raises(UserError, match="record 1: is no number"):
        run(job_of(tmp_path / "o"), workers)
    assert (tmp_path / ".o.progress").read_bytes().count(b"\n") == 1 + 9


@pytest.mark.parametrize(("first", "then"), [(0, 2), (1, 2), (2, 0)])
def test_another_number_of_processes_goes_on(tmp_path, capsys, first, then):
    (tmp_path / "user-41").touch()
    with workers_of(tmp_path, first) as workers, pytest.raises(UserError, match="record 41"):
        run(job_of(tmp_path / "o"), workers)
    assert "progress is saved in" in capsys.readouterr().err
    (tmp_path / "user-41").unlink()
    for resume, change, message in (
        (False, {}, "an earlier run was stopped; continue with --resume"),
        (True, {"seed": 2}, "the earlier run differs in: seed; give the same"),
    ):
        workers = workers_of(tmp_path, then, resume=resume)
        with workers, pytest.raises(UserError, match=message):
            run(job_of(tmp_path / "o", **change), workers)
    # A torn last line is computed again.
    with (tmp_path / ".o.progress").open("ab") as sink:
        sink.write(b"0badf00d [14, [")
    with workers_of(tmp_path, then, resume=True) as workers:
        run(job_of(tmp_path / "o"), workers)
    assert (tmp_path / "o").read_text() == WHOLE
    assert [path.name for path in tmp_path.iterdir()] == ["o"]


@pytest.mark.parametrize(
    ("number", "trouble", "kind", "message"),
    [
        (0, "user-9", UserError, "record 9: is no number"),
        (2, "user-9", UserError, "record 9: is no number"),
        (2, "disk-9", OSError, "No space left on device"),
        (2, "nan-9", FloatingPointError, "record 9: is not finite"),
        (2, "defect-9", RuntimeError, "KeyError: 9"),
    ],
)
def test_errors_of_a_worker_are_those_of_the_run(tmp_path, number, trouble, kind, message):
    (tmp_path / trouble).touch()
    with workers_of(tmp_path, number) as workers, pytest.raises(kind, match=message):
        run(job_of(tmp_path / "o"), workers)
    assert not (tmp_path / "o").exists()


class Varied:
    """Makes workers; those after the first have another dtype."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self):
        try:
            (self.folder / "first").touch(exist_ok=False)
        except FileExistsError:
            (self.folder / "later").touch()
            return Doubler(self.folder, {"dtype": "bfloat16"})
        waits_for((self.folder / "later").exists, 60)
        return Doubler(self.folder, {"dtype": "float32"})


def test_workers_that_differ_are_refused(tmp_path):
    engine = local.LocalProcesses(Varied(tmp_path), [{}] * 2)
    (tmp_path / "slow").write_text("0.2")
    with Workers(engine) as workers, pytest.raises(UserError, match="workers differ in: dtype"):
        run(job_of(tmp_path / "o"), workers)


def test_memory_does_not_grow_with_the_number_of_results(tmp_path, monkeypatch):
    """Early results wait on the disk: the first block is computed last."""
    num_blocks, result_bytes = 200, 100_000

    class Late(Recorded):
        def results(self, seconds):
            sent = next((each for each in self.sent if each[1] != 0), self.sent[0])
            self.sent.remove(sent)
            worker, number, _ = sent
            yield Answer(worker, number, self.seat.about if number is None else "x" * result_bytes)

    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    with Workers(Late(3)) as workers:
        workers.about()
        tracemalloc.start()
        sizes = run_job(job_of(tmp_path / "o", total=4 * num_blocks), workers, result_sizes)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert sizes == {result_bytes: num_blocks}
    assert peak_bytes < 20 * result_bytes


def result_sizes(results):
    return Counter(len(result) for _, result in results)


def test_blocks_that_are_not_needed_are_not_computed(tmp_path):
    (tmp_path / "user-1").touch()
    job = replace(job_of(tmp_path / "o", total=8), needed=lambda block: block[0] > 0)
    with Workers(InProcess(lambda: Doubler(tmp_path))) as workers:
        assert run_job(job, workers, list) == [
            ([0, 1, 2, 3], None),
            ([4, 5, 6, 7], [8, 10, 12, 14]),
        ]


def test_a_journal_of_the_old_format_is_refused_by_name(tmp_path):
    job = job_of(tmp_path / "o").settings
    line = json.dumps(job).encode()
    (tmp_path / ".o.progress").write_bytes(b"%08x " % zlib.crc32(line) + line + b"\n")
    with pytest.raises(UserError, match="differs in: journal format"):
        Journal(tmp_path / "o", job, resume=True)
