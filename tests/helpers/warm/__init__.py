"""Commands without their imports: a `python` for tests that begins with the large libraries there.

A command of ours takes five seconds of a core to import torch and transformers, and the pages of
the documents start some hundred of them. `warm()` starts one process that has imported what is not
ours, for all processes of the tests, and gives a folder with `python`, `carbon` and `torchrun` in
it. Each of them asks for a copy of that process (`client`), which becomes the command (`server`): a
process of its own, with the words, folder, environment and open files of the one that asked, its
exit code and its signals. What it starts as `sys.executable` starts like that, too.

What is about the start itself (imports, locales, groups of processes, children that see their
parent die) is tested with the `python` as it is. So is what the order of a set could change: all
copies have one seed of hashes.
"""

import fcntl
import os
import subprocess
import sys
import tempfile
import time
import uuid
from functools import cache
from pathlib import Path

from filelock import FileLock

ROOT = Path(__file__).parents[3]
_SECONDS_TO_IMPORT = 300  # on a machine with other work


@cache
def warm() -> Path:
    """Return the folder of programs; the process behind them ends after the last test process.

    Elsewhere than on Linux it is the folder of this Python: processes are looked after by their
    descriptors.
    """
    if not hasattr(os, "pidfd_open"):
        return Path(sys.executable).parent
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", uuid.uuid4().hex)
    folder = Path(tempfile.gettempdir()) / f"carbon-warm-{run[:12]}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with FileLock(folder / "lock"):
        held = os.open(folder / "held", os.O_RDONLY | os.O_CREAT)
        fcntl.flock(held, fcntl.LOCK_SH)  # until this process ends
        if not (folder / "socket").exists():
            _start(folder)
    return folder / "bin"


def warm_python() -> str:
    """Return the path of the `python` there."""
    return str(warm() / "python")


def warm_environment(**more: str) -> dict[str, str]:
    """Return this environment with those programs first on the PATH, and our code imported."""
    path = f"{warm()}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)} | more


def _start(folder: Path) -> None:
    with (folder / "log").open("w", encoding="utf-8") as log:
        server = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("server.py"), folder],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
            # As `carbon` sets it before torch is there: threads that wait are not to spin.
            env=os.environ | {"GOMP_SPINCOUNT": "10000"},
        )  # fmt: skip
    deadline = time.monotonic() + _SECONDS_TO_IMPORT
    while not (folder / "socket").exists():
        told = (folder / "log").read_text(encoding="utf-8")
        assert server.poll() is None and time.monotonic() < deadline, told
        time.sleep(0.02)
