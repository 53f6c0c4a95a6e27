"""SHA-256 of inputs, by which a run that goes on knows that they have not changed.

Size and time of change are not enough: `cp -p`, `rsync -t` and `tar` give another file the time of
the one that it replaces. Large files are read once: the sum is kept for as long as size, time of
change, inode and time of the inode's change stay. No program can set the last of these.
"""

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path

from carbon.io.files import atomic_file, sha256_of_file

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
