"""Atomic files and folders, and scratch folders.

A file or folder is written under a temporary name, synced to the disk, renamed, and its new name
synced. Neither a killed process nor a power loss leaves half a file under its name.

A temporary file or folder is locked while its process lives. The next writer of the same path
removes temporaries that it can lock, because their process was killed. Some shared file systems
hide a lock from other machines, so a machine removes only its own temporaries. A temporary name
holds the process, the machine and a random number: two writers never share one.
"""

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import lock_descriptor

from carbon.errors import UserError

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
MACHINE = f"{zlib.crc32(os.uname().nodename.encode()):08x}"
TEMPORARY = re.compile(r"\.\d+-[0-9a-f]{8}-[0-9a-f]{8}\.")  # what such a name begins with
_SECONDS_TO_LOCK = 1.0  # what is younger may be about to be locked


def output_path(path: str | Path) -> Path:
    """Return where a file of this name is to be written: behind links, if it is one.

    Raises:
        UserError: it is no file's name, or its folder is not there.
        OSError: links lead round in a circle.
    """
    if Path(path).exists() and not Path(path).is_file():
        kind = "folder" if Path(path).is_dir() else "device or a pipe"
        raise UserError(f"{path}: is a {kind}; name a file")
    check_parent(path)
    return behind_links(path)


def check_parent(path: str | Path) -> None:
    """Raise UserError if the folder that a path is in is not there."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise UserError(f"{path}: the folder {folder} does not exist; create it first")


def why_no_file(path: str | Path) -> str:
    """Say why a path is no file that can be read more than once.

    >>> why_no_file("no/such")
    'no such file'
    """
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        is_absent = error.errno in (errno.ENOENT, errno.ENOTDIR)
        return "no such file" if is_absent else os.strerror(error.errno or 0).lower()
    if stat.S_ISDIR(mode):
        return "is a folder"
    return "is a device or a pipe, and is read more than once: save it as a file first"


def stamp_of(path: Path) -> list[int]:
    """Return size in bytes and time of change in ns: what a file has become, without reading it."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def behind_links(path: str | Path) -> Path:
    """Return the absolute path that a path leads to, whether or not something is there.

    Raises:
        OSError: links lead round in a circle.
    """
    with suppress(FileNotFoundError):
        os.stat(path)
    return Path(os.path.realpath(path))


def check_no_input(output: str | Path, *inputs: str | Path | None) -> None:
    """Raise UserError if an output is one of the inputs, of which those that are None are not."""
    if behind_links(output) in [behind_links(path) for path in inputs if path]:
        raise UserError(f"{output}: is an input too; name another output")


@contextmanager
def told_of(path: str | Path, temporary: Path | None = None) -> Iterator[None]:
    """Name what is written in an OSError that names nothing, as of a full disk, or a temporary."""
    try:
        yield
    except OSError as error:
        is_nameless = error.filename is None and error.errno in _NO_ROOM
        if is_nameless or (temporary and error.filename == str(temporary)):
            # Arrow says much before the system's own words.
            reason = (error.strerror or "").rpartition("] ")[2]
            raise OSError(error.errno, reason, str(path)) from None
        raise


@contextmanager
def atomic_file(path: str | Path, *, replace: bool = True) -> Iterator[Path]:
    """Yield a temporary path next to `path`; it takes the name of `path` if the body succeeds.

    The temporary file exists and is empty; its name ends as `path` does, for writers that look at
    the ending. Where `path` is a link, the file that it leads to is replaced.

    Args:
        path: file to write.
        replace: replace an existing file. If false, of all processes that create the file at once,
            one succeeds.

    Raises:
        UserError, OSError: no file can be written there; before the body has done any work.
        FileExistsError: the file exists and `replace` is false.
    """
    whole = output_path(path)
    _remove_left(_temporaries_of(whole))
    temporary = _temporary_of(whole)
    try:
        temporary.touch()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        with told_of(path, temporary), _locked(temporary):
            yield temporary
            sync_path(temporary)
            if replace:
                os.replace(temporary, whole)
            else:
                os.link(temporary, whole)  # no rename refuses a name that exists
            _sync_folder(whole.parent)
    finally:
        temporary.unlink(missing_ok=True)


def free_folder(path: str | Path) -> Path:
    """Return where a folder of this name is to be written: behind links, if it is one.

    Raises:
        UserError: there is something; nothing of the user's is ever overwritten.
    """
    path = behind_links(path)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path}: exists already; remove it or name another output")
    return path


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` if the body succeeds and is removed otherwise.

    Raises:
        UserError: `path` exists and holds something; nothing of the user's is ever overwritten.
    """
    path = free_folder(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_left(_temporaries_of(path))
    temporary = _temporary_of(path)
    temporary.mkdir()
    try:
        with told_of(path, temporary), _locked(temporary):
            yield temporary
            _sync_tree(temporary)
            os.replace(temporary, path)
            _sync_folder(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def scratch_folder(kind: str) -> Iterator[Path]:
    """Yield a folder for what is temporary, and remove it in the end.

    Args:
        kind: part of its name; what killed processes have left of that kind is removed first.
    """
    name = f"carbon-{kind}-{MACHINE}-"
    _remove_left(Path(tempfile.gettempdir()).glob(f"{name}*"))
    with tempfile.TemporaryDirectory(prefix=name) as folder, _locked(Path(folder)):
        yield Path(folder)


def _sync_tree(folder: Path) -> None:
    """Have all files of a folder and their names written to the disk."""
    for place, _, names in os.walk(folder):
        for name in names:
            if (path := Path(place, name)).is_file():
                sync_path(path)
        _sync_folder(Path(place))


def sync_path(path: Path) -> None:
    """Have the content of a file, or the names in a folder, written to the disk.

    Raises:
        OSError: the disk is full or has failed.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    """Have the names in a folder written to the disk, where the file system can."""
    with suppress(OSError):
        sync_path(folder)


def _temporary_of(path: Path) -> Path:
    """Return a name that no other call uses, also in a container of equal host name and PIDs."""
    return path.with_name(f".{os.getpid()}-{MACHINE}-{secrets.token_hex(4)}.{path.name}")


def _temporaries_of(path: Path) -> list[Path]:
    """Return what any process of this machine has under way for a path."""
    form = re.compile(rf"\.\d+-{MACHINE}-[0-9a-f]{{8}}\.{re.escape(path.name)}")
    names: list[str] = []
    with suppress(OSError):
        names = os.listdir(path.parent)  # quicker than a glob by far
    return [path.with_name(name) for name in names if form.fullmatch(name)]


@contextmanager
def _locked(temporary: Path) -> Iterator[None]:
    """Hold a lock on a file or folder, so that others see that its process is alive."""
    handle = os.open(temporary, os.O_RDONLY)
    try:
        with suppress(OSError):  # file systems without locks exist
            lock_descriptor(handle, blocking=False)
        yield
    finally:
        os.close(handle)


def _remove_left(found: Iterable[Path]) -> None:
    """Remove those of our temporary files and folders that nobody holds a lock on."""
    for each in found:
        with suppress(OSError):
            handle = os.open(each, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                status = os.fstat(handle)
                is_new = time.time() - status.st_mtime < _SECONDS_TO_LOCK
                if status.st_uid != os.getuid() or is_new:
                    continue
                if lock_descriptor(handle, blocking=False):
                    each.unlink() if each.is_file() else shutil.rmtree(each)
            finally:
                os.close(handle)


def sha256_of_file(path: str | Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


REMEMBERED_BYTES = 2**26
"""Size of the smallest file whose sum is kept; a smaller one is read in a tenth of a second."""
_SETTLED_SECONDS = 2.0
"""A file that changed so recently may change again within one tick of its file system's clock."""


def content_sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits; of a large one, read at most once.

    Sums are kept in the user's cache (`$XDG_CACHE_HOME/carbon/sums`).

    Raises:
        OSError: the file cannot be read.
    """
    if os.stat(path).st_size < REMEMBERED_BYTES:
        return sha256_of_file(path)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "carbon" / "sums"
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    return remembered_sha256(Path(path), cache)


def remembered_sha256(path: Path, notes: Path) -> str:
    """Return the SHA-256 of a file, read again only if it may have changed.

    Args:
        path: of the file.
        notes: folder in which sums are kept; if it cannot be written, each call reads the file.

    Raises:
        OSError: the file cannot be read.
    """
    name = hashlib.sha256(f"{path.resolve()}".encode()).hexdigest()[:16]
    note, stamp = notes / f"sum-{name}.json", _stamp(path)
    with suppress(OSError, ValueError, KeyError, TypeError):
        remembered = json.loads(note.read_text(encoding="utf-8"))
        if remembered["of"] == stamp:
            return str(remembered["sha256"])
    found = sha256_of_file(path)
    is_settled = time.time() - path.stat().st_ctime > _SETTLED_SECONDS
    if is_settled and _stamp(path) == stamp:
        with suppress(OSError), atomic_file(note) as temporary:
            temporary.write_text(json.dumps({"of": stamp, "sha256": found}), encoding="utf-8")
    return found


def _stamp(path: Path) -> list[str | int]:
    """Return what changes whenever the file at a path is another or is written to."""
    status = path.stat()
    times = (status.st_mtime_ns, status.st_ctime_ns)
    return [str(path.resolve()), status.st_size, status.st_ino, *times]
