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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import lock_descriptor
from typing_extensions import TypedDict

from carbon.errors import UserError
from carbon.io.structured import read_json

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
MACHINE = f"{zlib.crc32(os.uname().nodename.encode()):08x}"
TEMPORARY = re.compile(r"\.\d+-[0-9a-f]{8}-[0-9a-f]{8}\.")  # beginning of a temporary name
_SECONDS_TO_LOCK = 1.0  # a younger temporary may be about to be locked


def output_path(path: str | Path) -> Path:
    """Return the path to write for an output file, with links resolved.

    Raises:
        UserError: the path is not a regular file, or its folder does not exist.
        OSError: links form a circle.
    """
    if Path(path).exists() and not Path(path).is_file():
        kind = "folder" if Path(path).is_dir() else "device or a pipe"
        raise UserError(f"{path}: is a {kind}; name a file")
    check_parent(path)
    return behind_links(path)


def check_parent(path: str | Path) -> None:
    """Raise UserError if the parent folder of a path does not exist."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise UserError(f"{path}: the folder {folder} does not exist; create it first")


def why_no_file(path: str | Path) -> str:
    """Return why a path cannot be read as a regular file, for messages.

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


def behind_links(path: str | Path) -> Path:
    """Return the absolute path with links resolved, whether or not it exists.

    Raises:
        OSError: links form a circle.
    """
    with suppress(FileNotFoundError):
        os.stat(path)
    return Path(os.path.realpath(path))


def check_no_input(output: str | Path, *inputs: str | Path | None) -> None:
    """Raise UserError if an output is one of the inputs; inputs may be None."""
    if behind_links(output) in [behind_links(path) for path in inputs if path]:
        raise UserError(f"{output}: is an input too; name another output")


def check_different_files(outputs: Sequence[str | Path], *inputs: str | Path | None) -> None:
    """Raise UserError if two outputs are one file, or one is an input; inputs may be None."""
    resolved = [behind_links(path) for path in (*inputs, *outputs) if path]
    for path in outputs:
        if resolved.count(behind_links(path)) > 1:
            raise UserError(f"{path}: is named twice, or an input too; name another output")


@contextmanager
def errors_naming(path: str | Path, temporary: Path | None = None) -> Iterator[None]:
    """Name a path in an OSError that names no file, as for a full disk, or only a temporary one."""
    try:
        yield
    except OSError as error:
        is_nameless = error.filename is None and error.errno in _NO_ROOM
        if is_nameless or (temporary and error.filename == str(temporary)):
            # Arrow puts a long prefix before the message of the system.
            reason = (error.strerror or "").rpartition("] ")[2]
            raise OSError(error.errno, reason, str(path)) from None
        raise


@contextmanager
def atomic_file(path: str | Path, *, replace: bool = True) -> Iterator[Path]:
    """Yield a temporary path next to `path` that is renamed to `path` if the body succeeds.

    The temporary file exists and is empty; its name ends like `path`, for writers that look at the
    ending. If `path` is a link, its target is replaced.

    Args:
        path: file to write.
        replace: whether to replace an existing file. If false, and several processes create the
            file at once, one of them succeeds.

    Raises:
        UserError, OSError: the file cannot be written; raised before the body runs.
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
        with errors_naming(path, temporary), _locked(temporary):
            yield temporary
            sync_path(temporary)
            if replace:
                os.replace(temporary, whole)
            else:
                os.link(temporary, whole)  # a rename would replace an existing file
            _sync_folder(whole.parent)
    finally:
        temporary.unlink(missing_ok=True)


def free_folder(path: str | Path) -> Path:
    """Return the path to write for an output folder, with links resolved.

    Raises:
        UserError: the path exists and is not an empty folder; nothing is overwritten.
    """
    path = behind_links(path)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path}: exists already; remove it or name another output")
    return path


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` if the body succeeds, and else is removed.

    Raises:
        UserError: `path` exists and is not an empty folder; nothing is overwritten.
    """
    path = free_folder(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_left(_temporaries_of(path))
    temporary = _temporary_of(path)
    temporary.mkdir()
    try:
        with errors_naming(path, temporary), _locked(temporary):
            yield temporary
            _sync_tree(temporary)
            os.replace(temporary, path)
            _sync_folder(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def scratch_folder(kind: str) -> Iterator[Path]:
    """Yield a folder for temporary files, which is removed at the end.

    Args:
        kind: part of its name; folders of that kind that killed processes left are removed first.
    """
    name = f"carbon-{kind}-{MACHINE}-"
    _remove_left(Path(tempfile.gettempdir()).glob(f"{name}*"))
    with tempfile.TemporaryDirectory(prefix=name) as folder, _locked(Path(folder)):
        yield Path(folder)


def is_scratch(path: Path) -> bool:
    """Return whether a file is in a folder of `scratch_folder`, with which it is removed."""
    folder = path.parent
    return folder.parent == Path(tempfile.gettempdir()) and f"-{MACHINE}-" in folder.name


def _sync_tree(folder: Path) -> None:
    """Sync all files of a folder, and their names, to the disk."""
    for place, _, names in os.walk(folder):
        for name in names:
            if (path := Path(place, name)).is_file():
                sync_path(path)
        _sync_folder(Path(place))


def sync_path(path: Path) -> None:
    """Sync the content of a file, or the names in a folder, to the disk.

    Raises:
        OSError: the disk is full or has failed.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    """Sync the names in a folder to the disk, if the file system supports it."""
    with suppress(OSError):
        sync_path(folder)


def _temporary_of(path: Path) -> Path:
    """Return a unique name, also among containers with the same host name and PIDs."""
    return path.with_name(f".{os.getpid()}-{MACHINE}-{secrets.token_hex(4)}.{path.name}")


def _temporaries_of(path: Path) -> list[Path]:
    """Return the temporary files and folders of this machine's processes for a path."""
    form = re.compile(rf"\.\d+-{MACHINE}-[0-9a-f]{{8}}\.{re.escape(path.name)}")
    names: list[str] = []
    with suppress(OSError):
        names = os.listdir(path.parent)  # much faster than a glob
    return [path.with_name(name) for name in names if form.fullmatch(name)]


@contextmanager
def _locked(temporary: Path) -> Iterator[None]:
    """Hold a lock on a file or folder, which shows other processes that this one is alive."""
    handle = os.open(temporary, os.O_RDONLY)
    try:
        with suppress(OSError):  # file systems without locks exist
            lock_descriptor(handle, blocking=False)
        yield
    finally:
        os.close(handle)


def _remove_left(paths: Iterable[Path]) -> None:
    """Remove the user's temporary files and folders that are not locked."""
    for each in paths:
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
"""Size of the smallest file whose checksum is cached; smaller files take a tenth of a second."""
_SETTLED_SECONDS = 2.0
"""A file that changed more recently may change again within one tick of the file system's clock."""


def content_sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits, cached for large files.

    Checksums are in the user's cache (`$XDG_CACHE_HOME/carbon/sums`).

    Raises:
        OSError: the file cannot be read.
    """
    if os.stat(path).st_size < REMEMBERED_BYTES:
        return sha256_of_file(path)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "carbon" / "sums"
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    return remembered_sha256(Path(path), cache)


class _Sum(TypedDict):
    """A cached checksum, and the stamp of the file that it is of."""

    of: list[str | int]
    sha256: str


def remembered_sha256(path: Path, notes: Path) -> str:
    """Return the SHA-256 of a file, which is read again only if it may have changed.

    Args:
        path: file to hash.
        notes: folder of cached checksums; if it is not writable, each call reads the file.

    Raises:
        OSError: the file cannot be read.
    """
    name = hashlib.sha256(f"{path.resolve()}".encode()).hexdigest()[:16]
    note, stamp = notes / f"sum-{name}.json", _stamp(path)
    with suppress(OSError, UserError):
        remembered = read_json(note, _Sum)
        if remembered["of"] == stamp:
            return remembered["sha256"]
    sha256 = sha256_of_file(path)
    is_settled = time.time() - path.stat().st_ctime > _SETTLED_SECONDS
    if is_settled and _stamp(path) == stamp:
        with suppress(OSError), atomic_file(note) as temporary:
            temporary.write_text(json.dumps({"of": stamp, "sha256": sha256}), encoding="utf-8")
    return sha256


def _stamp(path: Path) -> list[str | int]:
    """Return values that change whenever a file is written or replaced."""
    status = path.stat()
    times = (status.st_mtime_ns, status.st_ctime_ns)
    return [str(path.resolve()), status.st_size, status.st_ino, *times]
