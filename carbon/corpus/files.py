"""Files of a corpus: opened wherever they are, mapped where they are on disk."""

import mmap
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from carbon.errors import CorpusError


def opened(path: str) -> IO[bytes]:
    """Open a path, or a URL that fsspec opens, to read and seek.

    Raises:
        CorpusError: it is not there, or what opens its protocol is not installed.
    """
    import fsspec

    try:
        source: IO[bytes] = fsspec.open(path, "rb").open()
    except Exception as error:  # each kind of store has errors of its own
        raise CorpusError(f"{path}: cannot be opened: {_reason(error)}") from None
    return source


def content_if_there(path: str) -> bytes | None:
    """Return what is in a path or URL, None if there is no such file.

    Raises:
        CorpusError: it may be there, but it cannot be read.
    """
    import fsspec

    try:
        with fsspec.open(path, "rb").open() as source:
            content: bytes = source.read()
    except FileNotFoundError:
        return None
    except Exception as error:
        raise CorpusError(f"{path}: cannot be opened: {_reason(error)}") from None
    return content


def listed(folder: str, ending: str) -> list[str]:
    """Return the files of a folder, a path or URL, that end so, in order.

    Raises:
        CorpusError: it cannot be listed.
    """
    import fsspec

    try:
        system, inner = fsspec.core.url_to_fs(folder)
        names = system.ls(inner, detail=False)
    except FileNotFoundError:
        return []
    except Exception as error:
        raise CorpusError(f"{folder}: cannot be listed: {_reason(error)}") from None
    return [system.unstrip_protocol(name) for name in sorted(names) if name.endswith(ending)]


def parquet(path: str) -> pq.ParquetFile:
    """Open a Parquet file; one on disk by its name, as pyarrow's threads outlive Python's files."""
    inner = path.removeprefix("file://")
    return pq.ParquetFile(opened(path) if "://" in inner else inner)


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


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).splitlines()[0].lower()
