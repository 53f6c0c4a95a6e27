"""What asks a run to stop: Ctrl-C, `kill`, a scheduler, a terminal that is closed."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker

from carbon.progress import say

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SECONDS_APART = 2.0
"""Schedulers signal every process of a run, and `torchrun` passes on what it gets: what follows
within so long is the same wish once more."""


class StopSignals:
    """Takes note of a wish to stop instead of dying of it.

    A thread hears of it, also while the main one waits for another process. Before `saves` is set
    there is nothing to lose, and the process ends at once. From then on the first signal is for the
    training to see, which ends its step and saves; another ends the process at once.

    Attributes:
        name: of the signal that was heard, empty before.
        saves: whether there is work that is worth a checkpoint.
    """

    def __init__(self, *, speaks: bool = True) -> None:
        """Prepare; nothing is heard outside of a `with`."""
        self.name = ""
        self.saves = False
        self._speaks = speaks
        self._heard_at = 0.0
        self._terminals = [fd for fd in (1, 2) if os.isatty(fd)]

    def __enter__(self) -> "StopSignals":
        """Listen, from the main thread; ignored signals, as under `nohup`, stay ignored."""
        heard, written = os.pipe()
        os.set_blocking(written, False)
        signal.set_wakeup_fd(written, warn_on_full_buffer=False)
        before = {each: signal.getsignal(each) for each in STOPPING}
        self._before = {s: h for s, h in before.items() if h != signal.SIG_IGN}
        for each in self._before:
            signal.signal(each, lambda *_: None)  # the number goes through the pipe
        threading.Thread(target=self._listen, args=(heard,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the earlier signal handlers."""
        for each, handler in self._before.items():
            signal.signal(each, handler)
        os.close(signal.set_wakeup_fd(-1))  # which ends the thread

    def _listen(self, heard: int) -> None:
        while numbers := os.read(heard, 64):
            for number in numbers:
                if number in self._before:
                    self._hear(signal.Signals(number))
        os.close(heard)

    def _hear(self, heard: signal.Signals) -> None:
        if heard == signal.SIGHUP:
            self._leave_the_terminal()
        if not self.saves:
            self._end(heard, "stopped before the first step; nothing was to be saved")
        elif not self.name:
            self._heard_at, self.name = time.monotonic(), heard.name
            self._say(f"{heard.name}: finishes the step and saves; a second signal stops at once")
        elif time.monotonic() - self._heard_at > SECONDS_APART:
            self._end(heard, "stopped at once; --resume auto goes on from the newest checkpoint")

    def _leave_the_terminal(self) -> None:
        """Write no more to a terminal that is gone, which would be an error."""
        for descriptor in self._terminals:
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)

    def _end(self, heard: signal.Signals, message: str) -> None:
        self._say(f"{heard.name}: {message}")
        os._exit(128 + heard)  # the main thread may be waiting for another process

    def _say(self, message: str) -> None:
        if self._speaks:
            say(f"\n{message}" if 2 in self._terminals else message)


@contextmanager
def signals_held() -> Iterator[None]:
    """Start processes that ignore the signals: data workers end with their run."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    # What `multiprocessing` starts first of all is to be deaf too, and lets signals through again.
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
