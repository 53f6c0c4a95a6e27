"""A process that fails ends all of them: within seconds, and its own words come first.

A process that waits for another on a GPU hears no signal and no closed connection; left alone it
waits until the timeout of the group, and the launcher with it. So a failing process reports it in
the store that all have, where a thread of every process looks. A process that is killed cannot: the
others of its machine see it end, and one of them says what killed it. What these find afterwards,
connections that are closed, is not reported.
"""

import os
import re
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from carbon.errors import UserError
from carbon.progress import say

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

ONE_LINE_ERRORS = (UserError, FloatingPointError, OSError)
NOTE = "CARBON_KILLED_NOTE"
"""Environment variable: path of a file that whoever tells of a killed process makes."""
_KEY, _COUNT, _DEATHS = "failed", "failures", "deaths"
_KILLED = "killed"
"""What stands at the key of a process that was killed, of which the others need not speak."""
_SECONDS_BETWEEN_LOOKS = 1.0
_START_SECONDS = 0.05
"""Between two looks whether all processes of a machine have begun."""
_GRACE_SECONDS = 5.0
# What gloo and NCCL say of a process that is gone; their other errors are defects of this one.
_CONNECTION = re.compile(
    r"connection (was )?(closed|reset|refused)|broken pipe|pair closure|remote process exit"
    r"|socket (was )?(closed|timeout)|communicator was aborted",
    re.IGNORECASE,
)


_ORDERLY = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""With which launchers and people end processes: no fault of the process."""
_MEMORY = (
    "by the kernel for want of memory (`dmesg`), or by a scheduler at a limit of memory or time"
)
_NATIVE = "a fault in native code, such as a library or a driver"
_CAUSES = {
    signal.SIGKILL: _MEMORY,
    signal.SIGSEGV: _NATIVE,
    signal.SIGILL: "an instruction that this processor lacks; the libraries are of another kind",
    signal.SIGFPE: _NATIVE,
    signal.SIGBUS: "shared memory (/dev/shm) or a disk is full, or a mapped file was cut",
    signal.SIGABRT: "a library gave up, such as NCCL after its timeout; its words are above",
    signal.SIGXCPU: "the limit of processor time (ulimit -t)",
    signal.SIGXFSZ: "the limit of file sizes (ulimit -f)",
}
_STATUS = 49
"""The exit status in `/proc/PID/stat`, counted from the state (`man proc`: field 52)."""


def death_of(rank: int, number: int) -> str:
    """Return a line about a process that a signal has killed: rank, signal and likely cause."""
    try:
        name, cause = signal.Signals(number).name, _CAUSES.get(signal.Signals(number), "")
    except ValueError:
        name, cause = f"signal {number}", ""
    likely = f", most likely {cause}" if cause else ""
    return (
        f"process {rank} was killed by {name}{likely}; all processes end, and --resume auto goes "
        "on from the newest whole checkpoint"
    )


class Neighbours:
    """Other processes of this machine, watched for their end."""

    def __init__(self, pids: Mapping[int, int]) -> None:
        """Begin to watch.

        Args:
            pids: of processes, by rank. Elsewhere than on Linux none is watched.
        """
        self._poll = select.poll()
        self._watched: dict[int, tuple[int, int]] = {}  # rank and PID, by descriptor
        for rank, pid in pids.items() if hasattr(os, "pidfd_open") else ():
            with suppress(OSError):  # it has ended already, or the kernel is older than 5.3
                descriptor = os.pidfd_open(pid)
                self._watched[descriptor] = rank, pid
                self._poll.register(descriptor, select.POLLIN)

    def killed(self, seconds: float) -> Iterator[tuple[int, int]]:
        """Wait so long, or until a process ends; yield rank and signal of each that was killed."""
        for descriptor, _ in self._poll.poll(1000 * seconds):
            rank, pid = self._watched.pop(descriptor)
            if number := _signal_that_ended(pid):
                yield rank, number
            self._poll.unregister(descriptor)
            os.close(descriptor)

    def close(self) -> None:
        """Watch no longer."""
        for descriptor in self._watched:
            os.close(descriptor)
        self._watched.clear()


def _signal_that_ended(pid: int) -> int:
    """Return the signal that killed a process whose parent has not looked yet, 0 if none did."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        number = int(status[_STATUS]) & 0x7F
    except (OSError, IndexError, ValueError):
        return 0
    return 0 if number in _ORDERLY else number


class SharedFate:
    """While it is open, the failure of any process ends this one.

    One that fails has some seconds to end in its own way, and so have others, which may be failing
    of the same.
    """

    def __init__(
        self, store: "Store", rank: int, environment: Mapping[str, str] = os.environ
    ) -> None:
        """Prepare.

        Args:
            store: that all processes have; of no other thread.
            rank: of this process.
            environment: of a process that torchrun has started, which says who its neighbours are.
        """
        self._store, self._rank = store, rank
        first = rank - int(environment.get("LOCAL_RANK", "0"))
        size = int(environment.get("LOCAL_WORLD_SIZE", "1"))
        self._others_here = [r for r in range(first, first + size) if r != rank]
        self._note = environment.get(NOTE, "")
        self._over = threading.Event()
        self._culprit = ""
        self._known = threading.Event()  # that another process has failed

    def __enter__(self) -> "SharedFate":
        """Begin to look."""
        self._store.set(f"pid-{self._rank}", str(os.getpid()))
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop looking; if this process failed, let the others know."""
        if error is not None and _is_of_connection(error):
            self._end_after_another(error)
        self._over.set()
        if error is None:
            return
        is_first = self._store.add(_COUNT, 1) == 1
        if not isinstance(error, ONE_LINE_ERRORS):
            say(f"process {self._rank} failed:\n{''.join(traceback.format_exception(error))}")
        elif is_first and self._rank:  # the others may not see this error
            say(f"process {self._rank} failed: {error}")
        self._store.set(_KEY, str(self._rank))
        # Its remaining threads may wait for the others when the interpreter ends.
        end = threading.Timer(2 * _GRACE_SECONDS, os._exit, (1,))
        end.daemon = True
        end.start()

    def _end_after_another(self, error: BaseException) -> None:
        """End this process, which has lost a connection, if another one has failed before it."""
        if not self._known.wait(_GRACE_SECONDS):
            first_line = str(error).partition("\n")[0]
            say(
                f"process {self._rank} ends: another process is gone ({first_line}); the launcher "
                "of its machine says why"
            )
        self._end()

    def _end(self) -> None:
        self._over.set()
        if self._culprit not in ("", _KILLED):
            say(
                f"process {self._rank} ends because process {self._culprit} failed; see its "
                "message above"
            )
        time.sleep(_SECONDS_BETWEEN_LOOKS)  # the launcher is to find first who was first to end
        os._exit(1)

    def _watch(self) -> None:
        try:
            neighbours = self._neighbours()
            while not self._over.is_set():
                for rank, number in neighbours.killed(_SECONDS_BETWEEN_LOOKS):
                    self._tell_of_death(rank, number)
                if self._store.check([_KEY]):
                    break
            else:
                neighbours.close()
                return
            self._culprit = self._store.get(_KEY).decode()
            if self._culprit == _KILLED:
                # The launcher's signal and errors of closed connections are not reported.
                sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
            self._known.set()
        except RuntimeError:  # the store went with its host, as all else will
            return
        if not self._over.wait(_GRACE_SECONDS):
            self._end()

    def _neighbours(self) -> Neighbours:
        """Return the other processes of this machine, when all have begun."""
        keys = {rank: f"pid-{rank}" for rank in self._others_here}
        while keys and not self._store.check(list(keys.values())):
            if self._over.wait(_START_SECONDS) or self._store.check([_KEY]):
                return Neighbours({})
        return Neighbours({rank: int(self._store.get(key)) for rank, key in keys.items()})

    def _tell_of_death(self, rank: int, number: int) -> None:
        """Say what killed another process, if nobody has, and let all processes end."""
        if self._over.is_set():
            return
        if self._store.add(_DEATHS, 1) == 1:
            say(death_of(rank, number))
            if self._note:
                Path(self._note).touch()
        self._store.set(_KEY, _KILLED)


def _is_of_connection(error: BaseException | None) -> bool:
    """Return whether an error, or one of its causes, is a lost connection to a process."""
    while error is not None:
        if isinstance(error, RuntimeError) and _CONNECTION.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False
