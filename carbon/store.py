"""A folder, or a bucket by URL, that launches far from each other write to."""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import fsspec
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem

from carbon.console import say
from carbon.errors import UserError
from carbon.io.files import atomic_file, sha256_of_file

T = TypeVar("T")

_PAUSES_SECONDS = (0.5, 1, 2, 4, 8, 16, 32, 64, 128)
"""Between two tries; four minutes in all."""


class Store:
    """Files by relative paths.

    What a folder lists is asked anew each time. No file but records is read before another file,
    written after it, says what it holds; records are small, and created whole or not at all.

    What goes wrong with storage is an OSError, whatever the client of a bucket calls it. Reading is
    tried again for some minutes before that is raised; who writes tries again later, or by `again`.
    """

    def __init__(self, url: str) -> None:
        """Open it.

        Raises:
            UserError: the URL is of a kind that cannot be opened here, or where two can create one
                file.
        """
        try:
            self._files, self._root = fsspec.url_to_fs(url, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise UserError(f"mailbox {url!r}: cannot be opened: {error}") from error
        self._is_local = isinstance(self._files, LocalFileSystem)
        if not (self._is_local or _creates_alone(self._files)):
            raise UserError(
                f"mailbox {url!r}: {type(self._files).__name__} looks whether a file is "
                "there and writes it then, so two could create one; use a folder, or a "
                "bucket with conditional writes, such as s3://"
            )
        self._root = self._root.rstrip("/")

    def place(self, path: str) -> str:
        """Return where a file is, for messages."""
        return f"{self._root}/{path}"

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, none if it is not there.

        What begins with a dot is being written.
        """
        try:
            found = self._read("ls", self.place(folder), detail=False)
        except FileNotFoundError:
            return []
        names = (name.rstrip("/").rsplit("/", 1)[-1] for name in found)
        return sorted(name for name in names if not name.startswith("."))

    def read_table(self, path: str) -> dict[str, Any] | None:
        """Return a JSON table; None if it is not there or not whole."""
        try:
            found = json.loads(self._read("cat_file", self.place(path)))
        except (FileNotFoundError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def write_table(self, path: str, table: Mapping[str, Any]) -> None:
        """Write a JSON table, in the place of an earlier one."""
        self._make_folder_of(path)
        if not self._is_local:
            self._call("pipe_file", self.place(path), _bytes(table))
            return
        with atomic_file(self.place(path)) as temporary:
            temporary.write_bytes(_bytes(table))

    def create_table(self, path: str, table: Mapping[str, Any]) -> bool:
        """Write a JSON table if there is none of that name; return whether it was written.

        Of all who try at once, one has it written.
        """
        self._make_folder_of(path)
        if self._is_local:
            return _created_by_link(Path(self.place(path)), _bytes(table))
        try:
            self._call("pipe_file", self.place(path), _bytes(table), mode="create")
        except FileExistsError:
            return False
        return True

    def put(self, source: Path, path: str) -> None:
        """Copy a file of this machine there, in the place of an earlier one."""
        self._make_folder_of(path)
        if not self._is_local:
            self._call("put_file", str(source), self.place(path))
            return
        with atomic_file(self.place(path)) as temporary:
            shutil.copyfile(source, temporary)

    def get(self, path: str, folder: Path, sha256: str) -> Path | None:
        """Return a file as one of this machine; None if it is not there or has other contents.

        Args:
            path: of the file.
            folder: of this machine, to copy it to where it must be copied.
            sha256: that its contents are to have.
        """
        here = Path(self.place(path))
        try:
            if not self._is_local:
                here = folder / path.replace("/", "-")
                self._read("get_file", self.place(path), str(here))
            return here if sha256_of_file(here) == sha256 else None
        except FileNotFoundError:
            return None

    def remove(self, path: str) -> None:
        """Remove a file or a folder, if it is there."""
        with suppress(FileNotFoundError):
            self._call("rm", self.place(path), recursive=True)

    def _make_folder_of(self, path: str) -> None:
        self._call("makedirs", self.place(path).rsplit("/", 1)[0], exist_ok=True)

    def _read(self, name: str, *given: Any, **more: Any) -> Any:
        """Call the file system, again and again where storage does not answer."""
        return again(given[0], lambda: self._call(name, *given, **more))

    def _call(self, name: str, *given: Any, **more: Any) -> Any:
        """Call the file system; clients of buckets have errors of their own, which are no OSError.

        Raises:
            NotImplementedError: it cannot do that.
        """
        try:
            return getattr(self._files, name)(*given, **more)
        except (OSError, NotImplementedError):
            raise
        except Exception as error:
            raise OSError(f"{type(error).__name__}: {error}") from error


def again(place: str, call: Callable[[], T]) -> T:
    """Call, and once more after each of some growing pauses where storage does not answer.

    Args:
        place: that is named to whoever waits.
        call: of a store.

    Raises:
        OSError: it did not answer for minutes.
        FileNotFoundError: it did, and there is no such file.
    """
    for pause_seconds in _PAUSES_SECONDS:
        try:
            return call()
        except FileNotFoundError:
            raise
        except OSError as error:
            if pause_seconds == _PAUSES_SECONDS[0]:
                say(f"{place}: {error}; trying again")
            time.sleep(pause_seconds)
    return call()


def _creates_alone(files: AbstractFileSystem) -> bool:
    """Tell whether a file system has a way of its own to create a file: fsspec's is not safe."""
    return getattr(files.pipe_file, "__func__", None) is not AbstractFileSystem.pipe_file


def _bytes(table: Mapping[str, Any]) -> bytes:
    return (json.dumps(table, indent=1) + "\n").encode()


def _created_by_link(path: Path, content: bytes) -> bool:
    """Create a file that nobody ever sees a part of: a name is given to one that is whole."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as temporary:
        temporary.write(content)
    try:
        os.link(temporary.name, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary.name)
    return True


def open_tensors(file: Path) -> Any:
    """Open a safetensors file that another process may remove; what is open stays whole.

    Raises:
        FileNotFoundError: it is gone. safetensors opens by name twice, and the second time raises
            a RuntimeError.
    """
    from safetensors import safe_open

    try:
        return safe_open(file, "pt")
    except RuntimeError as error:
        if file.exists():
            raise
        raise FileNotFoundError(f"{file}: is gone") from error


def scratch_folder() -> Path:
    """Return a new folder of this machine for what goes to a store or comes from one."""
    return Path(tempfile.mkdtemp(prefix="carbon-mailbox-"))


def empty(folder: Path) -> None:
    """Remove such a folder."""
    shutil.rmtree(folder, ignore_errors=True)
