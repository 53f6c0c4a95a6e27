"""Locks of folders and outputs that one run writes to: a second run is refused.

A lock is a lease of `filelock`: a marker file with the holder's host and process, which the holder
renews. On one machine the process decides: a lock is free when its holder has ended, however it
ended. A run on another machine, or in another container, waits until the lease ends, and is refused
if the holder renews it. Only file creation and renaming are needed, so a lock also works on file
systems without `flock` or with a `flock` that is local to each machine. `filelock` replaces an
abandoned lock by exchanging two names, which NFS and Lustre cannot; there, it is renamed here.
"""

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from filelock import LeaseCompromise, LeaseSettingsMismatch, OwnerRecord, SoftFileLease, Timeout

from carbon.errors import UserError
from carbon.io.files import behind_links
from carbon.progress import say

LEASE_SECONDS = 120.0
"""A lock of another machine is free when its holder has not renewed it for this long. The machine
that waits measures the time, so the clocks of the machines need not agree."""
_RENEWED_SECONDS = 20.0
_WRITTEN_SECONDS = 10.0
"""A lock file that stays empty for longer was left by a process that was killed."""
_SECONDS_BETWEEN_LOOKS = 1.0
Renewal = tuple[int, int] | None
"""Inode and time of a lock file; None if it is absent."""
_BOOT_BITS = 64
"""filelock identifies a process by the boot ID of its kernel and its start time in 64 bits."""


@contextmanager
def locked_folder(folder: str | Path) -> Iterator[None]:
    """Hold the lock of a folder that is written in place: `.lock` in it.

    The folder is created if it does not exist, and removed again if nothing was written to it.

    Raises:
        UserError: another run holds the lock, or the folder is a file.
        OSError: the lock file cannot be written.
    """
    if Path(folder).is_file():
        raise UserError(f"{folder}: is a file; name a folder to write to")
    with _held(Path(folder) / ".lock", str(folder)):
        yield


@contextmanager
def locked_output(output: str | Path, name: str = "", *, wait: bool = False) -> Iterator[None]:
    """Hold the lock of an output that appears when it is complete: `.NAME.lock` next to it.

    Args:
        output: path of the file or folder; for a link, the lock is next to its target.
        name: what messages call the output; its path if empty.
        wait: wait until the lock is free.

    Raises:
        UserError: another run holds the lock.
        OSError: the lock file cannot be written.
    """
    path = behind_links(output)
    with _held(path.with_name(f".{path.name}.lock"), name or str(output), wait=wait):
        yield


@contextmanager
def _held(path: Path, name: str, *, wait: bool = False) -> Iterator[None]:
    ended = threading.Event()
    with _made_folder(path.parent):
        lease = SoftFileLease(
            path,
            lease_duration=LEASE_SECONDS,
            heartbeat_interval=_RENEWED_SECONDS,
            on_compromise=lambda loss: _watch(lease, loss, ended),
            thread_local=False,
        )
        _acquire(lease, name, wait=wait)
        try:
            yield
        finally:
            ended.set()
            lease.release()


@contextmanager
def _made_folder(folder: Path) -> Iterator[None]:
    """Remove the folders that were created for a path and are empty at the end."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        yield
    finally:
        with suppress(OSError):
            for each in missing:
                each.rmdir()


def _acquire(lease: SoftFileLease, name: str, *, wait: bool) -> None:
    """Take a lock.

    Raises:
        UserError: another process holds it, and `wait` is false.
    """
    while True:
        try:
            _try_to_acquire(lease, name)
        except FileNotFoundError:  # the last user of the folder has just removed it
            continue
        except (Timeout, LeaseSettingsMismatch):
            if not wait:
                raise _in_use(lease, name) from None
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        else:
            return


def _try_to_acquire(lease: SoftFileLease, name: str) -> None:
    """Take a lock that is free, or whose process has ended, or whose lease ends.

    Raises:
        Timeout: another process holds it.
    """
    renewal, owner = _renewal(Path(lease.lock_file)), lease.owner
    if owner and not _is_here(owner):
        say(
            f"{name}: process {owner.pid} on {owner.hostname} holds it; waiting at most "
            f"{LEASE_SECONDS:.0f} s for its next renewal"
        )
        _outwait(lease, owner, renewal)
        return
    try:
        lease.acquire(blocking=False)
    except Timeout:
        if owner and _has_ended(owner):
            _replace(lease, renewal)
        elif lease.owner is None:
            _replace_torn(lease)
        else:
            raise


def _outwait(lease: SoftFileLease, owner: OwnerRecord, renewal: Renewal) -> None:
    """Take a lock of another machine when its lease ends.

    Raises:
        Timeout: the holder has renewed it.
    """
    path, waited_until = Path(lease.lock_file), time.monotonic() + LEASE_SECONDS

    def is_renewed() -> bool:
        return _renewal(path) not in (None, renewal)

    if owner.hostname == _us().hostname:  # filelock would look for the process on this machine
        while time.monotonic() < waited_until:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            if is_renewed():
                raise Timeout(lease.lock_file)
    try:
        lease.acquire(
            timeout=LEASE_SECONDS + 2 * _SECONDS_BETWEEN_LOOKS,
            poll_interval=_SECONDS_BETWEEN_LOOKS,
            cancel_check=is_renewed,
        )
    except Timeout:
        _replace(lease, renewal)


def _replace_torn(lease: SoftFileLease) -> None:
    """Take a lock whose file names no holder, when its process has had the time to write it.

    Raises:
        Timeout: the file has a holder now.
    """
    if _is_replaced(lease):
        return
    if not os.lstat(lease.lock_file).st_size:
        # filelock keeps an empty file for ever, but replaces one with other content. A holder that
        # has written its name by now is not affected by a field that filelock ignores.
        handle = os.open(lease.lock_file, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
        with open(handle, "w", encoding="utf-8") as file:
            file.write("note=left empty by a killed process\n")
        if _is_replaced(lease):
            return
    renewal = _renewal(Path(lease.lock_file))
    if lease.owner:
        raise Timeout(lease.lock_file)
    _replace(lease, renewal)


def _is_replaced(lease: SoftFileLease) -> bool:
    """Let filelock replace a lock file whose content is torn; return whether it has."""
    try:
        lease.acquire(timeout=_WRITTEN_SECONDS, cancel_check=lambda: lease.owner is not None)
    except Timeout:
        return False
    return True


def _replace(lease: SoftFileLease, renewal: Renewal) -> None:
    """Take an abandoned lock where filelock cannot: NFS and Lustre do not exchange two names.

    Args:
        lease: lease of the lock.
        renewal: renewal of the abandoned lock file.

    Raises:
        Timeout: the lock has another holder by now.
        UserError: the lock belongs to another user, who alone can remove it.
    """
    path = Path(lease.lock_file)
    with _only_one_replaces(path):
        if _renewal(path) != renewal:  # another process was quicker
            raise Timeout(lease.lock_file)
        try:
            path.unlink(missing_ok=True)
        except PermissionError:  # it belongs to another user, in a folder such as /tmp
            raise UserError(f"{path}: its process has ended; ask its user to remove it") from None
        lease.acquire(blocking=False)


@contextmanager
def _only_one_replaces(path: Path) -> Iterator[None]:
    """Hold the marker file that one process at a time creates to replace an abandoned lock.

    Without it, a slow process could remove the lock that a faster one has just taken. A marker
    older than `_WRITTEN_SECONDS` was left by a process that was killed, and is removed.
    """
    marker = path.with_name(f"{path.name}.replacing")
    first, since = None, time.monotonic()
    while True:
        with suppress(FileExistsError):
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            break
        seen = _renewal(marker)
        if seen != first:
            first, since = seen, time.monotonic()
        elif time.monotonic() - since > _WRITTEN_SECONDS:
            marker.unlink(missing_ok=True)
        time.sleep(_SECONDS_BETWEEN_LOOKS / 20)
    try:
        yield
    finally:
        marker.unlink(missing_ok=True)


def _watch(lease: SoftFileLease, loss: LeaseCompromise, ended: threading.Event) -> None:
    """End the process if another process holds its lock; renew a lock that it still holds.

    Another process may take the lock while this one is suspended for longer than the lease. If the
    storage does not answer, or the lock file was removed, the process continues.
    """
    while not _is_of_another(lease, loss, ended):
        with suppress(OSError):
            os.utime(loss.lock_file)
        if ended.wait(_RENEWED_SECONDS):
            return
    if not ended.is_set() and (owner := lease.owner):
        say(f"{loss.lock_file}: taken by process {owner.pid} on {owner.hostname}; this run ends")
        os._exit(1)


def _is_of_another(lease: SoftFileLease, loss: LeaseCompromise, ended: threading.Event) -> bool:
    """Return whether another process holds a lock, in both of two checks.

    The slower of two processes that replace an abandoned lock holds the name for a moment, and then
    returns it to the faster one.
    """
    for _ in range(2):
        owner = lease.owner
        if owner is None or owner.token == loss.token or ended.wait(_SECONDS_BETWEEN_LOOKS):
            return False
    return True


def _in_use(lease: SoftFileLease, name: str) -> UserError:
    if (owner := lease.owner) is None:
        return UserError(f"{name}: in use by another run; wait, or remove {lease.lock_file}")
    remedy = "wait or end it"
    with suppress(FileNotFoundError):
        if os.stat(lease.lock_file).st_uid != os.getuid():
            remedy = f"wait; if it has ended, its user can remove {lease.lock_file}"
    return UserError(f"{name}: in use by process {owner.pid} on {owner.hostname}; {remedy}")


def _is_here(owner: OwnerRecord) -> bool:
    """Return whether a process runs on this kernel, in the PID namespace of this process.

    filelock compares the names of machines and containers, which may be equal; the kernel's boot ID
    distinguishes them.
    """
    boots = {(each.start or 0) >> _BOOT_BITS for each in (owner, _us())}
    return owner.hostname == _us().hostname and len(boots - {0}) < 2


def _has_ended(owner: OwnerRecord) -> bool:
    """Return whether a process of this machine has ended; its number may be another's by now."""
    try:
        os.kill(owner.pid, 0)
        # Field 22 of proc_pid_stat(5), the start time; the command before it may hold brackets.
        after_command = Path(f"/proc/{owner.pid}/stat").read_text(encoding="utf-8").rpartition(")")
        started = int(after_command[2].split()[19])
    except ProcessLookupError:
        return True
    except OSError:  # of another user, or a system without /proc
        return False
    return owner.start is not None and started != owner.start % 2**_BOOT_BITS


@cache
def _us() -> OwnerRecord:
    """Return how filelock identifies this machine and process."""
    with (
        tempfile.TemporaryDirectory() as folder,
        SoftFileLease(f"{folder}/lock", thread_local=False) as lease,
    ):
        assert isinstance(lease, SoftFileLease) and lease.owner
        return lease.owner


def _renewal(path: Path) -> Renewal:
    """Return inode and time of a lock file; None if it is absent."""
    with suppress(FileNotFoundError), path.open("rb") as lock:
        # Opened for each look: a network file system asks its server then.
        status = os.fstat(lock.fileno())
        return status.st_ino, status.st_mtime_ns
    return None
