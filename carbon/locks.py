"""Locks of folders that one run writes to: a second run is refused.

The lock is a file with host, process, time and command of the run that holds it. On one machine the
kernel decides: it drops the `flock` of a process that ends, however it ends. Some file systems that
machines share keep `flock` within each machine. So the holder also renews the time of the file, and
another machine takes the lock only if that has not happened for `LEASE_SECONDS`: it waits that long
for a renewal, and is refused when it sees one.
"""

import errno
import fcntl
import json
import math
import os
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from carbon.console import say
from carbon.errors import UserError
from carbon.files import behind_links

LEASE_SECONDS = 120.0
"""After its last renewal, a lock of another machine is free. Only the clock of the file system that
holds the lock is read, so the clocks of the machines need not agree."""
_RENEWED_SECONDS = 20.0
_WRITTEN_SECONDS = 10.0
"""A lock file without readable content is older than that only if its process was killed."""
_SECONDS_BETWEEN_LOOKS = 1.0
_SETTLE_SECONDS = 1.0
"""Of two machines that take over one abandoned lock, the last to write holds it after that time."""
_NO_FLOCK = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
_held_handles: set[int] = set()


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """The process that holds a lock, as the lock file names it.

    Attributes:
        host: name of its machine, for people.
        machine: start of the machine's kernel, which tells machines of equal names apart.
        pid: number of the process in its PID namespace.
        process: its PID namespace and the time at which it started, which tell it from a later
            process with the same number; empty where the system does not report them.
        since: time at which it took the lock, UTC.
        command: words that started it.
        token: random, of this lock alone.
    """

    host: str
    machine: str
    pid: int
    process: str
    since: str
    command: str
    token: str


@contextmanager
def locked_folder(folder: str | Path) -> Iterator[None]:
    """Hold the lock of a folder that is written in place: `.lock` in it.

    The folder is made if it does not exist, and removed again if nothing was written to it.

    Raises:
        UserError: another run holds the lock, or the folder is a file.
        OSError: the lock file cannot be written.
    """
    if Path(folder).is_file():
        raise UserError(f"{folder}: is a file; name a folder to write to")
    with _held(Path(folder) / ".lock", str(folder)):
        yield


@contextmanager
def locked_output(output: str | Path, name: str = "") -> Iterator[None]:
    """Hold the lock of an output that appears when it is complete: `.NAME.lock` beside it.

    Args:
        output: path of the file or folder; behind a link, the lock is beside what it leads to.
        name: what messages call the output; its path if empty.

    Raises:
        UserError: another run holds the lock.
        OSError: the lock file cannot be written.
    """
    path = behind_links(output)
    with _held(path.with_name(f".{path.name}.lock"), name or str(output)):
        yield


@contextmanager
def _held(path: Path, name: str) -> Iterator[None]:
    with _made_folder(path.parent):
        handle, us = _acquired(path, name)
        _held_handles.add(handle)
        ended = threading.Event()
        renewal = threading.Thread(target=_renew, args=(handle, path, us, ended), daemon=True)
        renewal.start()
        try:
            yield
        finally:
            if os.getpid() == us.pid:  # and this is no fork of the holder
                ended.set()
                renewal.join()
                if _holder(path) == us:
                    path.unlink(missing_ok=True)
                _held_handles.discard(handle)
                os.close(handle)


def _let_go_in_a_fork() -> None:
    """Close the lock files of the parent, whose `flock` would else last until its forks end.

    The process that `multiprocessing.Manager` forks outlives a parent that is killed.
    """
    while _held_handles:
        os.close(_held_handles.pop())


os.register_at_fork(after_in_child=_let_go_in_a_fork)


@contextmanager
def _made_folder(folder: Path) -> Iterator[None]:
    """Let a folder and its parents be made; remove in the end those of them that are empty."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        yield
    finally:
        with suppress(OSError):
            for each in missing:
                each.rmdir()


def _acquired(path: Path, name: str) -> tuple[int, Holder]:
    """Return the open lock file and its content, which names this process.

    Raises:
        UserError: another process holds it.
    """
    while True:
        handle, is_new = _opened(path)
        try:
            has_flock = _has_flock(handle, path, name)
            settles = False if is_new else _checked_abandoned(path, name, has_flock)
            if not _is_at(path, handle):  # its holder removed it in the meantime
                os.close(handle)
                continue
            us = _us()
            _write(handle, us)
            if settles:
                time.sleep(_SETTLE_SECONDS)
                _check_ours(path, name, us)
        except BaseException:
            os.close(handle)
            raise
        return handle, us


def _opened(path: Path) -> tuple[int, bool]:
    """Open a lock file; return it and whether it is new. Of all who create it, one succeeds."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)  # its last user may have removed it
        with suppress(FileExistsError):
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), True
        with suppress(FileNotFoundError):
            return os.open(path, os.O_RDWR), False


def _has_flock(handle: int, path: Path, name: str) -> bool:
    """Lock a file in the kernel; return False on a file system that cannot.

    Raises:
        UserError: another process has locked it.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_FLOCK:
            return False
        raise _in_use(path, name, _holder(path)) from None
    return True


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def _checked_abandoned(path: Path, name: str, has_flock: bool) -> bool:
    """Return whether another machine might take over the lock of an ended process at this moment.

    Raises:
        UserError: the holder is alive.
    """
    holder = _holder(path)
    if holder and holder.machine == _machine() and (has_flock or _has_ended(holder)):
        return not has_flock
    if holder and holder.machine == _machine() and _is_visible(holder):
        raise _in_use(path, name, holder)
    _wait_until_abandoned(path, name, holder)
    return True


def _wait_until_abandoned(path: Path, name: str, holder: Holder | None) -> None:
    """Wait until the lease of a lock ends.

    A run that is started again on another machine, as by an elastic launcher, needs no second
    command then.

    Raises:
        UserError: its holder renews it.
    """
    lease_seconds = LEASE_SECONDS if holder else _WRITTEN_SECONDS
    renewed_at, age_seconds = _renewed(path)
    if holder and age_seconds < lease_seconds:
        say(
            f"{name}: process {holder.pid} on {holder.host} holds it; waiting at most "
            f"{lease_seconds - age_seconds:.0f} s for its next renewal"
        )
    while age_seconds < lease_seconds:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
        now_renewed_at, age_seconds = _renewed(path)
        if now_renewed_at > renewed_at:
            raise _in_use(path, name, _holder(path))
    # A holder may have written its name just before the first look at the time.
    if (now_there := _holder(path)) and now_there != holder:
        raise _in_use(path, name, now_there)


def _check_ours(path: Path, name: str, us: Holder) -> None:
    holder = _holder(path)
    if holder != us:
        raise _in_use(path, name, holder)


def _in_use(path: Path, name: str, holder: Holder | None) -> UserError:
    if holder is None:
        return UserError(f"{name}: in use by another run, which holds {path}; wait or end it")
    return UserError(
        f"{name}: in use by process {holder.pid} on {holder.host} since {holder.since}; "
        "wait or end it"
    )


def _holder(path: Path) -> Holder | None:
    """Return who holds a lock; None if the file is missing, unreadable or half-written."""
    try:
        return Holder(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _us() -> Holder:
    return Holder(
        host=os.uname().nodename,
        machine=_machine(),
        pid=os.getpid(),
        process=_process(os.getpid()),
        since=f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC",
        command=" ".join(sys.argv),
        token=uuid.uuid4().hex,
    )


def _write(handle: int, holder: Holder) -> None:
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(asdict(holder), indent=1).encode() + b"\n", 0)
    os.fsync(handle)


@cache
def _machine() -> str:
    """Return what identifies the running kernel: containers on it share `flock`."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return os.uname().nodename


def _process(pid: int) -> str:
    """Return PID namespace and start time of a process; empty where `/proc` does not have it."""
    try:
        # Field 22 of proc_pid_stat(5); the command before it may contain blanks and brackets.
        after_command = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
        return f"{os.readlink('/proc/self/ns/pid')} {after_command.split()[19]}"
    except OSError:
        return ""


def _is_visible(holder: Holder) -> bool:
    """Return whether the PID namespace of a process of this kernel is ours."""
    namespace = holder.process.partition(" ")[0]
    return bool(namespace) and namespace == _process(os.getpid()).partition(" ")[0]


def _has_ended(holder: Holder) -> bool:
    return _is_visible(holder) and _process(holder.pid) != holder.process


def _renewed(path: Path) -> tuple[float, float]:
    """Return when a lock was renewed and the seconds since, both by the clock of its file system.

    A lock that its holder has removed is infinitely old.
    """
    with suppress(FileNotFoundError), tempfile.TemporaryFile(dir=path.parent) as now:
        with path.open("rb") as lock:  # opened for each look: a network file system asks its server
            renewed_at = os.fstat(lock.fileno()).st_mtime
        return renewed_at, os.fstat(now.fileno()).st_mtime - renewed_at
    return 0.0, math.inf


def _renew(handle: int, path: Path, us: Holder, ended: threading.Event) -> None:
    """Show that the holder is alive; end the process if the lock is another's by now.

    That takes a process that was suspended for longer than the lease, next to a second machine.
    """
    while not ended.wait(_RENEWED_SECONDS):
        with suppress(OSError):
            os.utime(handle)
        holder = _holder(path)
        if holder and holder != us:
            say(f"{path}: taken by process {holder.pid} on {holder.host}; this run ends")
            os._exit(1)
