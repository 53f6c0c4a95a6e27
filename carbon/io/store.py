"""Shared storage, a folder or a bucket, for runs on machines without a common network."""

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
from carbon.io.structured import JSON_OBJECT, MAX_BYTES, parse_json
from carbon.progress import say

_ATTEMPTS = 10
_IS_FAILURE = retry_if_exception_type(OSError) & retry_if_not_exception_type(FileNotFoundError)
_PAUSES = wait_exponential(multiplier=0.5)
"""Pauses from half a second, doubling each time: four minutes in all."""


class Store:
    """Files in shared storage, by relative path.

    Listings are not cached. JSON tables are read without a checksum, because they are small and
    created atomically.

    All failures of the storage are OSErrors, whatever error a bucket's client raises. Failed reads
    are repeated for four minutes before the error is raised; failed writes are not.
    """

    def __init__(self, url: str) -> None:
        """Open a folder or bucket.

        Raises:
            UserError: the protocol of the URL is not supported here, or it does not prevent two
                processes from creating the same file.
        """
        try:
            self._files, self._root = fsspec.url_to_fs(url, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise UserError(f"shared store {url!r}: cannot be opened: {error}") from error
        self._is_local = isinstance(self._files, LocalFileSystem)
        if not (self._is_local or _creates_alone(self._files)):
            raise UserError(
                f"shared store {url!r}: {type(self._files).__name__} looks whether a file is "
                "there and writes it then, so two could create one; use a folder, or a "
                "bucket with conditional writes, such as s3://"
            )
        self._root = self._root.rstrip("/")

    def place(self, path: str) -> str:
        """Return the full path of a file."""
        return f"{self._root}/{path}"

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder; an empty list if it does not exist.

        Names that begin with a dot are left out: those files are being written.
        """
        try:
            paths = self._read("ls", self.place(folder), detail=False)
        except FileNotFoundError:
            return []
        names = (path.rstrip("/").rsplit("/", 1)[-1] for path in paths)
        return sorted(name for name in names if not name.startswith("."))

    def read_table(self, path: str) -> dict[str, Any] | None:
        """Return a JSON table; None if it does not exist or is incomplete."""
        try:
            content = self._read("cat_file", self.place(path), start=0, end=MAX_BYTES)
            return parse_json(content, path, JSON_OBJECT)
        except (FileNotFoundError, UserError):
            return None

    def write_table(self, path: str, table: Mapping[str, Any]) -> None:
        """Write a JSON table, replacing an existing one."""
        self._write_table(path, table, replace=True)

    def create_table(self, path: str, table: Mapping[str, Any]) -> bool:
        """Write a JSON table unless the file exists; return whether it was written.

        If several processes try at once, one succeeds.
        """
        try:
            self._write_table(path, table, replace=False)
        except FileExistsError:
            return False
        return True

    def _write_table(self, path: str, table: Mapping[str, Any], *, replace: bool) -> None:
        content = (json.dumps(table, indent=1) + "\n").encode()
        self._make_folder_of(path)
        if self._is_local:  # fsspec would first create the file and then write to it
            with atomic_file(self.place(path), replace=replace) as temporary:
                temporary.write_bytes(content)
        else:
            mode = "overwrite" if replace else "create"
            self._call("pipe_file", self.place(path), content, mode=mode)

    def put(self, source: Path, path: str) -> None:
        """Copy a local file to the storage, replacing an existing one."""
        self._make_folder_of(path)
        if not self._is_local:
            self._call("put_file", str(source), self.place(path))
            return
        with atomic_file(self.place(path)) as temporary:
            shutil.copyfile(source, temporary)

    def get(self, path: str, folder: Path, sha256: str) -> Path | None:
        """Return the local path of a file; None if it does not exist or has another checksum.

        Args:
            path: path of the file in the storage.
            folder: local folder to which a file of a bucket is copied.
            sha256: expected checksum.
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
        """Remove a file or a folder, if it exists."""
        with suppress(FileNotFoundError):
            self._call("rm", self.place(path), recursive=True)

    def _make_folder_of(self, path: str) -> None:
        self._call("makedirs", self.place(path).rsplit("/", 1)[0], exist_ok=True)

    def _read(self, method: str, *arguments: Any, **keywords: Any) -> Any:
        """Call the file system, and repeat the call after growing pauses while the storage fails.

        Raises:
            OSError: the storage has failed for four minutes.
            FileNotFoundError: there is no such file.
        """

        def report(state: RetryCallState) -> None:
            if state.attempt_number == 1 and state.outcome:
                say(f"{arguments[0]}: {state.outcome.exception()}; trying again")

        retrying = Retrying(
            retry=_IS_FAILURE,
            wait=_PAUSES,
            stop=stop_after_attempt(_ATTEMPTS),
            before_sleep=report,
            reraise=True,
        )
        return retrying(self._call, method, *arguments, **keywords)

    def _call(self, method: str, *arguments: Any, **keywords: Any) -> Any:
        """Call the file system, and raise all errors of bucket clients as OSErrors.

        Raises:
            NotImplementedError: the file system does not support the call.
        """
        try:
            return getattr(self._files, method)(*arguments, **keywords)
        except (OSError, NotImplementedError):
            raise
        except Exception as error:
            raise OSError(f"{type(error).__name__}: {error}") from error


def _creates_alone(files: AbstractFileSystem) -> bool:
    """Return whether a file system overrides fsspec's `pipe_file`, which is not atomic."""
    return getattr(files.pipe_file, "__func__", None) is not AbstractFileSystem.pipe_file


def open_tensors(file: Path) -> Any:
    """Open a safetensors file that another process may remove; an open file stays readable.

    Raises:
        FileNotFoundError: the file was removed. safetensors opens it twice by name, and the second
            attempt raises a RuntimeError.
    """
    from safetensors import safe_open

    try:
        return safe_open(file, "pt")
    except RuntimeError as error:
        if file.exists():
            raise
        raise FileNotFoundError(f"{file}: is gone") from error
