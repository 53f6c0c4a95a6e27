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
WATCHES = """
import os, time
from carbon.launcher import end_with_launcher
end_with_launcher()
print("started", flush=True)
time.sleep(600)
"""
WATCHES_TOO_LATE = """
import os, time
parent = os.getppid()
print("started", flush=True)
while os.getppid() == parent:
    time.sleep(0.02)
from carbon.launcher import end_with_launcher
end_with_launcher()
time.sleep(600)
"""


@pytest.mark.parametrize("child", [WATCHES, WATCHES_TOO_LATE])
@pytest.mark.parametrize(("local_rank", "lines"), [("0", 1), ("1", 0)])
def test_it_ends_with_its_launcher_and_one_of_a_machine_says_so(child, local_rank, lines):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TORCHELASTIC")}
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    launcher = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, text=True,
        env=kept | {"TORCHELASTIC_RUN_ID": "r", "LOCAL_RANK": local_rank},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert launcher.stdout is not None and launcher.stdout.readline() == "started\n"
    launcher.send_signal(signal.SIGKILL)
    _, said = launcher.communicate(timeout=300)  # until the child has closed the pipe
    assert said.count("the launcher is gone; its processes end") == lines


def test_without_torchrun_nothing_watches_the_parent(monkeypatch):
    """As under `nohup`, where the shell ends first."""
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    before = threading.active_count()
    end_with_launcher()
    assert threading.active_count() == before
