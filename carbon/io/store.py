"""A folder, or a bucket by URL, that runs on machines without a common network write to."""

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    retry_if_not_exception_type,
    stop_after_attempt,
    wait_exponential,
)

from carbon.errors import UserError
from carbon.io.files import atomic_file, sha256_of_file
from carbon.progress import say

_ATTEMPTS = 10
_IS_FAILURE = retry_if_exception_type(OSError) & retry_if_not_exception_type(FileNotFoundError)
_PAUSES = wait_exponential(multiplier=0.5)
"""From half a second, each twice the one before: four minutes in all."""


class Store:
    """Files by relative paths.

    Every listing asks the storage again. Only records are read without a checksum: they are small,
    and created whole or not at all.

    Every failure of the storage is an OSError, whatever the client of a bucket calls it. Reads are
    repeated for four minutes before it is raised; a caller that writes repeats it later.
    """

    def __init__(self, url: str) -> None:
        """Open a folder or bucket.

        Raises:
            UserError: the URL is of a kind that cannot be opened here, or two processes could both
                create one file there.
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
        """Write a JSON table unless one of that name exists; return whether it was written.

        Of all processes that try at once, one succeeds.
        """
        self._make_folder_of(path)
        try:
            if not self._is_local:
                self._call("pipe_file", self.place(path), _bytes(table), mode="create")
                return True
            # fsspec would create the file first and write to it then.
            with atomic_file(self.place(path), replace=False) as temporary:
                temporary.write_bytes(_bytes(table))
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
        """Call the file system, and repeat the call after growing pauses while the storage fails.

        Raises:
            OSError: the storage has failed for four minutes.
            FileNotFoundError: it answered that there is no such file.
        """

        def report(state: RetryCallState) -> None:
            if state.attempt_number == 1 and state.outcome:
                say(f"{given[0]}: {state.outcome.exception()}; trying again")

        retrying = Retrying(
            retry=_IS_FAILURE,
            wait=_PAUSES,
            stop=stop_after_attempt(_ATTEMPTS),
            before_sleep=report,
            reraise=True,
        )
        return retrying(self._call, name, *given, **more)

    def _call(self, name: str, *given: Any, **more: Any) -> Any:
        """Call the file system; raise errors of bucket clients, which are not OSErrors, as such.

        Raises:
            NotImplementedError: it cannot do that.
        """
        try:
            return getattr(self._files, name)(*given, **more)
        except (OSError, NotImplementedError):
            raise
        except Exception as error:
            raise OSError(f"{type(error).__name__}: {error}") from error


def _creates_alone(files: AbstractFileSystem) -> bool:
    """Return whether a file system creates a file by a method of its own: fsspec's is not safe."""
    return getattr(files.pipe_file, "__func__", None) is not AbstractFileSystem.pipe_file


def _bytes(table: Mapping[str, Any]) -> bytes:
    return (json.dumps(table, indent=1) + "\n").encode()


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
