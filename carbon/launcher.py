"""What a process owes to the `torchrun` that started it: it ends when that is gone.

A launcher that is killed by SIGKILL cannot end its workers. They would go on and write to the
folder of their run, and no signal to the launcher would reach them any more.
"""

import os
import threading
import time
from typing import NoReturn

from carbon.progress import say

_SECONDS_BETWEEN_LOOKS = 1.0


def end_with_launcher() -> None:
    """Watch the parent process from a thread, if `torchrun` started this one.

    When the parent is gone, this process ends with code 1 within seconds, and the first of each
    machine prints a line. A process without the environment of `torchrun` is left alone: its parent
    may end, as under `nohup`.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(launcher: int) -> NoReturn:
    while os.getppid() == launcher:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    if os.environ.get("LOCAL_RANK", "0") == "0":
        say(f"the launcher (process {launcher}) is gone; its processes end")
    os._exit(1)
