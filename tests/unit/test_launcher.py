"""A process whose launcher is gone ends, where `torchrun` started it; others are left alone."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from carbon.launcher import end_with_launcher

ROOT = Path(__file__).parents[2]
CHILD = """
import os, sys, time
from carbon.launcher import end_with_launcher
end_with_launcher()
print(os.getpid(), flush=True)
time.sleep(600)
"""
LAUNCHER = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"


def started(**environment: str) -> tuple[subprocess.Popen, int]:
    """Start a launcher; return it and the number of the process that it has started."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TORCHELASTIC")}
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER], cwd=ROOT, env=kept | environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert launcher.stdout is not None
    return launcher, int(launcher.stdout.readline())


@pytest.mark.parametrize(("local_rank", "lines"), [("0", 1), ("1", 0)])
def test_it_ends_with_its_launcher_and_one_of_a_machine_says_so(local_rank, lines):
    launcher, _ = started(TORCHELASTIC_RUN_ID="r", LOCAL_RANK=local_rank)
    launcher.send_signal(signal.SIGKILL)
    _, said = launcher.communicate(timeout=300)  # until the child has closed the pipe
    assert said.count(f"the launcher (process {launcher.pid}) is gone; its processes end") == lines


def test_without_torchrun_nothing_watches_the_parent(monkeypatch):
    """As under `nohup`, where the shell ends first."""
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    before = threading.active_count()
    end_with_launcher()
    assert threading.active_count() == before
