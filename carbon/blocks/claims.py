"""Who is at what: a small file for as long as a process is at work on it.

A claim saves work and no more: what is claimed may be done twice, and has the same result. So a
claim needs no lock, which some file systems that machines share keep from the other machines. It is
created by the one who comes first, and its time is renewed while that one lives. It is void when
its process is gone from this machine, or when it has not been renewed for `LEASE_SECONDS`.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from carbon.files import MACHINE, told_of

LEASE_SECONDS = 120.0
"""Without a sign of life; clocks do not count, since the times are all of one file system."""
_RENEWED_SECONDS = 20.0


@contextmanager
def claimed(path: Path) -> Iterator[bool]:
    """Yield whether a claim is ours, by a file of that name; it is given back in the end."""
    if is_held(path) or not _created(path):
        yield False
        return
    ended = threading.Event()
    renewal = threading.Thread(target=_renew, args=(path, ended), daemon=True)
    renewal.start()
    try:
        yield True
    finally:
        ended.set()
        renewal.join()
        if _owner(path) == _us():  # it may have been taken for dead
            path.unlink(missing_ok=True)


def is_held(path: Path) -> bool:
    """Return whether someone who lives has a claim; what a dead process has left is removed."""
    owner = _owner(path)
    if owner is None:
        return False
    if _is_gone(owner) or _seconds_since(path) > LEASE_SECONDS:
        path.unlink(missing_ok=True)
        return False
    return True


def _us() -> str:
    return f"{MACHINE} {os.getpid()}"


def _created(path: Path) -> bool:
    try:
        with told_of(path), path.open("x", encoding="utf-8") as sink:
            sink.write(_us())
    except FileExistsError:
        return False
    except OSError:  # a full disk
        path.unlink(missing_ok=True)
        raise
    return True


def _owner(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _is_gone(owner: str) -> bool:
    machine, _, pid = owner.partition(" ")
    if machine != MACHINE or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def _seconds_since(path: Path) -> float:
    """Return how long ago a claim was renewed, by the clock of the file system that it is on."""
    probe = path.with_name(f".now-{MACHINE}-{os.getpid()}")
    try:
        probe.write_bytes(b"")
        os.utime(probe)
        with path.open("rb") as claim:  # opened, a file of another machine is looked at anew
            return probe.stat().st_mtime - os.fstat(claim.fileno()).st_mtime
    except FileNotFoundError:
        return 0.0
    finally:
        probe.unlink(missing_ok=True)


def _renew(path: Path, ended: threading.Event) -> None:
    while not ended.wait(_RENEWED_SECONDS):
        with suppress(OSError):
            os.utime(path)
