"""A job of numbers for trials of the driver and its engines, without a model and without torch.

    python -m tests.helpers.parallel OUTPUT TROUBLE_FOLDER [--processes N] [--resume] ...

A file in the folder of troubles makes workers misbehave: see `Doubler`.
"""

import errno
import os
import pickle
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from carbon.console import Parser, run_command
from carbon.errors import UserError
from carbon.io.files import atomic_file
from carbon.parallel import local
from carbon.parallel.driver import Job, Workers, run_job
from carbon.parallel.engines import Answer, InProcess, Seat
from carbon.parallel.journal import Journal
from carbon.parallel.options import WorkerOptions, workers_of

ROOT = Path(__file__).parents[2]
NUMBERS, BLOCK = 60, 4
WHOLE = "".join(f"{2 * n}\n" for n in range(NUMBERS))


class Doubler:
    """A worker that doubles numbers.

    Troubles, each a file in a folder: `kill-N`, as often as it has letters, at the block that holds
    N; `load` in the same way while it loads; `user-N`, `disk-N`, `nan-N`, `defect-N`, errors at N;
    `slow`: seconds that each block takes.
    """

    def __init__(self, folder, about=None):
        self.folder = Path(folder)
        self._die("load")
        self.about = {"model": "m", **(about or {})}

    def __call__(self, payload):
        for number in payload:
            self._die(f"kill-{number}")
            if (self.folder / f"user-{number}").exists():
                raise UserError(f"record {number}: is no number")
            if (self.folder / f"disk-{number}").exists():
                raise OSError(errno.ENOSPC, "No space left on device", "scratch")
            if (self.folder / f"nan-{number}").exists():
                raise FloatingPointError(f"record {number}: is not finite")
            if (self.folder / f"defect-{number}").exists():
                raise KeyError(number)
        if (slow := self.folder / "slow").exists():
            time.sleep(float(slow.read_text()))
        return [2 * number for number in payload]

    def _die(self, name):
        trouble = self.folder / name
        if trouble.exists() and (left := trouble.read_text()):
            trouble.write_text(left[1:])
            os.kill(os.getpid(), signal.SIGKILL)


def job_of(output, *, total=NUMBERS, **more):
    """Return the job that doubles numbers, in blocks of four."""
    settings = {"job": "double", "total": total, **more}
    return Job(
        description="numbers",
        output=Path(output),
        settings=settings,
        check=lambda: total,
        blocks=lambda: (list(range(n, min(n + BLOCK, total))) for n in range(0, total, BLOCK)),
        source="numbers.txt",
    )


def run(job, workers):
    """Have numbers doubled into a file; return how many."""

    def write(results):
        count = 0
        with atomic_file(job.output) as path, path.open("w", encoding="utf-8") as sink:
            for _, doubled in results:
                sink.writelines(f"{number}\n" for number in doubled)
                count += len(doubled)
        return count

    workers.about(job.blocks())
    return run_job(job, workers, write)


def processes(folder, number, *, resume=False, **about):
    """Return workers in processes of their own."""
    make = partial(Doubler, folder, about)
    return Workers(local.LocalProcesses(make, [{}] * number), resume=resume)


def this_process(folder, *, resume=False, **about):
    return Workers(InProcess(partial(Doubler, folder, about)), resume=resume)


class TwoSeats:
    """Stands for two processes: what they get and give is pickled, and the last block comes first.

    Processes themselves have tests of their own; a command shows here that its blocks can travel.
    """

    size = 2

    def __init__(self, make, environments, method="forkserver"):
        assert len(environments) == self.size
        self.seats = [Seat(pickle.loads(pickle.dumps(make))) for _ in environments]
        self.sent = []

    def submit(self, worker, number, payload):
        self.sent.append((worker, number, pickle.dumps(payload)))

    def results(self, seconds):
        worker, number, payload = self.sent.pop()
        value = self.seats[worker].answer(number, pickle.loads(payload))
        yield Answer(worker, number, pickle.loads(pickle.dumps(value)))

    def close(self):
        for seat in self.seats:
            seat.close()


@contextmanager
def in_two_seats():
    """Let `--processes 2` compute in this process; start no other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "LocalProcesses", TwoSeats)
        patch.setattr(local, "start_fork_server", lambda: None)
        yield


class Stopped(BaseException):
    """Stands for a kill."""


def stop_once_behind(monkeypatch, number: int) -> list[int]:
    """Stop a run after `number` blocks; return the list of journalled blocks.

    Blocks of later runs are added to the list.
    """
    add, kept, stops = Journal.add, [], [Stopped()]

    def add_or_stop(self, *blocks):
        if stops and len(kept) == number:
            raise stops.pop()
        kept.extend(number for number, _ in blocks)
        add(self, *blocks)

    monkeypatch.setattr(Journal, "add", add_or_stop)
    return kept


def started(folder, *more):
    """Start a driver of numbers in a new session, with words for its engine."""
    words = [sys.executable, "-m", "tests.helpers.parallel", f"{folder}/o", str(folder), *more]
    return subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
        # A shell ignores Ctrl-C for what it starts by `&`, and so do the children of that.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def stop(driver, number) -> str:
    """Send a signal, Ctrl-C as a terminal does; return what a driver has written to stderr."""
    if number == signal.SIGINT:
        os.killpg(driver.pid, number)
    else:
        driver.send_signal(number)
    return driver.communicate(timeout=60)[1]


def num_kept(folder) -> int:
    """Return the number of blocks in the journal of a driver."""
    path = folder / ".o.progress"
    return path.read_bytes().count(b"\n") - 1 if path.exists() else 0


def main() -> int:
    local._PRELOADED.clear()  # no torch
    parser = Parser()
    parser.add_argument("output")
    parser.add_argument("folder")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--ray")
    parser.add_argument("--resume", action="store_true")

    def command() -> None:
        given = vars(parser.parse_args())
        output, folder = given.pop("output"), given.pop("folder")
        options = WorkerOptions(device="cpu", **given)
        with workers_of(options, partial(Doubler, folder)) as workers:
            print(run(job_of(output), workers))

    return run_command(command)


if __name__ == "__main__":
    from tests.helpers import parallel  # workers find its classes under this name

    raise SystemExit(parallel.main())
