"""End a process when the `torchrun` that started it is gone.

A launcher that is killed by SIGKILL cannot end its workers. They would continue to write to the
folder of their run, out of reach of signals to the launcher.
"""

import os
import threading
import time
from pathlib import Path
from typing import NoReturn

from carbon.progress import say

_SECONDS_BETWEEN_LOOKS = 1.0


def end_with_launcher() -> None:
    """Watch the parent process from a thread, if `torchrun` started this one.

    When the parent is gone, even before this call, this process exits with code 1 within seconds,
    and the first process of each machine prints a line. Without the environment of `torchrun`
    nothing is watched, because a parent may end, as under `nohup`.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(launcher: int) -> NoReturn:
    while os.getppid() == launcher and not _adopts_orphans(launcher):
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    if os.environ.get("LOCAL_RANK", "0") == "0":
        say("the launcher is gone; its processes end")
    os._exit(1)


def _adopts_orphans(process: int) -> bool:
    """Return whether a process is init or a user's systemd; in a container, 1 may be `torchrun`."""
    try:
        if Path(f"/proc/{process}/comm").read_text("utf-8").strip() == "systemd":
            return True
        return process == 1 and "python" not in os.readlink("/proc/1/exe")
    except OSError:  # another user's process, or a system without /proc
        return process == 1
