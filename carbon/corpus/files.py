"""Files of a corpus: opened wherever they are, mapped where they are on disk."""

import mmap
from pathlib import Path
from typing import IO, Any

import fsspec
import numpy as np
from numpy.typing import NDArray

from carbon.errors import CorpusError


def opened(path: str) -> IO[bytes]:
    """Open a path, or a URL that fsspec opens, to read and seek.

    Raises:
        CorpusError: it is not there, or what opens its protocol is not installed.
    """
    try:
        source: IO[bytes] = fsspec.open(path, "rb").open()
    except Exception as error:  # each kind of store has errors of its own
        raise CorpusError(f"{path}: cannot be opened: {_reason(error)}") from None
    return source


def exists(path: str) -> bool:
    """Tell whether a path or URL is there."""
    system, inner = _system_of(path)
    return bool(system.exists(inner))


def listed(folder: str, pattern: str) -> list[str]:
    """Return the files of a folder, a path or URL, whose names fit a pattern, in order."""
    system, inner = _system_of(folder)
    try:
        found = sorted(system.glob(f"{inner}/{pattern}"))
    except FileNotFoundError:
        return []
    return [system.unstrip_protocol(path) for path in found]


def mapped(path: Path, dtype: Any, count: int, *, scattered: bool = False) -> NDArray[Any]:
    """Return a file as an array of `count` numbers that stays on disk.

    Args:
        path: of the file.
        dtype: of the numbers.
        count: how many there are.
        scattered: whether they are read here and there; the system then reads nothing ahead.

    Raises:
        CorpusError: it is missing or cut off.
    """
    size = path.stat().st_size if path.is_file() else -1
    if size != count * np.dtype(dtype).itemsize:
        raise CorpusError(f"{path}: is not whole; remove its folder, it will be made again")
    if not count:
        return np.zeros(0, dtype=dtype)
    with path.open("rb") as source:
        pages = mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)
    if scattered and hasattr(pages, "madvise"):
        pages.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(pages, dtype=dtype)


def _system_of(path: str) -> tuple[Any, str]:
    try:
        system, inner = fsspec.core.url_to_fs(path)
    except (ImportError, ValueError) as error:
        raise CorpusError(f"{path}: cannot be opened: {_reason(error)}") from None
    return system, inner


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).splitlines()[0].lower()
