"""Files that are whole or absent: written under a temporary name, renamed when complete."""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path

from carbon.errors import UserError


def output_path(path: str | Path) -> Path:
    """Return where a file of this name is to be written: behind links, if it is one.

    Raises:
        UserError: it is no file's name, or its folder is not there.
    """
    if Path(path).exists() and not Path(path).is_file():
        kind = "folder" if Path(path).is_dir() else "device or a pipe"
        raise UserError(f"{path}: is a {kind}; name a file")
    folder = Path(path).parent
    if not folder.is_dir():
        raise UserError(f"{path}: the folder {folder} does not exist; create it first")
    return Path(path).resolve()


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; it takes the name of `path` only if the body succeeds.

    The temporary file is there, and empty; its name ends as `path` does, for writers that look at
    the ending. Where `path` is a link, the file that it leads to is replaced.

    Raises:
        UserError, OSError: no file can be written there; before the body has done any work.
    """
    whole = output_path(path)
    temporary = whole.with_name(f".{os.getpid()}.{whole.name}")
    try:
        temporary.touch()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        yield temporary
        os.replace(temporary, whole)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(path: Path) -> None:
    """Remove the temporary files of `path` that killed processes have left.

    Only for those who hold a lock on `path`: others may be writing theirs.
    """
    for leftover in path.parent.glob(f".*.{escape(path.name)}"):
        if re.fullmatch(r"\.\d+", leftover.name.removesuffix(f".{path.name}")):
            leftover.unlink()


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` if the body succeeds and is removed otherwise.

    Raises:
        UserError: `path` exists and holds something; nothing of the user's is ever overwritten.
    """
    path = Path(path).resolve()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path}: exists already; remove it or name another output")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    temporary.mkdir()
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def sha256_of_file(path: str | Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
