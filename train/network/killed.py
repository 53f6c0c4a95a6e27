"""Processes of this machine that a signal has killed: which signal it was, and what it means.

A process that is killed says nothing. Until its parent has looked, Linux keeps its exit status in
`/proc`, and a descriptor of a process tells when to read it.
"""

import os
import select
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

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
