"""A process that fails ends all within seconds, also those that nothing else would wake."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKER = """
import sys, threading
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from carbon.errors import UserError
from train.config import ParallelConfig
from train.signals import StopSignals
from train.distributed.mesh import joined_ranks

@record
def main():
    with StopSignals() as told, joined_ranks(ParallelConfig()) as ranks:
        told.saves = True  # from here on SIGTERM waits for the end of a step
        dist.barrier()
        if ranks.rank == 1:
            raise {error}
        threading.Event().wait()  # as in a collective on a GPU: no signal ends it

main()
"""


KILLED = """
import os, signal, time
import torch
import torch.distributed as dist
from train.config import ParallelConfig
from train.signals import StopSignals
from train.distributed.mesh import joined_ranks

with StopSignals() as told, joined_ranks(ParallelConfig(), "cpu") as ranks:
    told.saves = True
    for step in range(10_000):
        if ranks.rank == ranks.world_size - 1 and step == 10:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(torch.ones(1))
        time.sleep(0.01)
"""


def launched(worker, text, launcher="train.launch", count=2):
    """Write a program and run so many processes of it."""
    worker.write_text(text)
    words = ["--standalone", "--nproc-per-node", str(count), str(worker)]
    return subprocess.run(
        [sys.executable, "-m", launcher, *words],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("launcher", "count", "code"),
    [("train.launch", 1, 137), ("train.launch", 2, 137), ("torch.distributed.run", 2, 1)],
)
def test_a_killed_process_is_one_line(launcher, count, code, tmp_path):
    """It names rank, signal and likely cause; who lost a connection to it has nothing to add."""
    done = launched(tmp_path / "worker.py", KILLED, launcher, count)
    assert done.returncode == code, done.stderr
    lines = done.stderr.splitlines()
    told = [line for line in lines if "was killed by SIGKILL, most likely by the kernel" in line]
    assert len(told) == 1, done.stderr
    assert told[0].startswith(f"process {count - 1} was killed")
    assert "gloo" not in done.stderr
    if launcher == "train.launch":
        assert lines == told
    else:  # whose own report begins with the process that was first to end
        assert "Signal 9 (SIGKILL)" in done.stderr.partition("Root Cause")[2]


def test_a_process_that_torchrun_ends_is_no_killed_one(tmp_path):
    """The code is that of the process that failed, which has reported its error."""
    worker = "import os, sys, time\nsys.exit(2) if os.environ['RANK'] == '1' else time.sleep(600)"
    done = launched(tmp_path / "worker.py", worker)
    assert (done.returncode, done.stderr) == (2, "")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("ZeroDivisionError('the culprit')", "ZeroDivisionError: the culprit"),
        ("UserError('disk: is full')", "process 1 failed: disk: is full"),
    ],
)
def test_the_culprit_speaks_and_the_others_end(error, told, tmp_path):
    done = launched(tmp_path / "worker.py", WORKER.replace("{error}", error))
    assert done.returncode != 0
    assert told in done.stderr
    assert "process 0 ends because process 1 failed" in done.stderr
    assert done.stderr.index(told) < done.stderr.index("process 0 ends")
