"""Search for subfolders by the files that they contain."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from carbon.errors import UserError

_MOST_DEPTH = 3  # levels below the root
_MOST_SEEN = 2000
_MOST_FOUND = 60


def find_folders(root: Path, files: Sequence[str]) -> dict[str, Path]:
    """Return the folders a few levels below `root` that contain all of these files.

    Args:
        root: where the search begins; it skips hidden folders and folders inside a found folder.
        files: file names; folders are sorted by modification time of the last file, newest first.

    Returns:
        The path relative to `root` (for `root` itself, its name), mapped to the folder.
    """
    folders: list[tuple[int, str, Path]] = []
    for seen, (place, below, names) in enumerate(os.walk(root), start=1):
        folder = Path(place)
        inside = folder.relative_to(root)
        # A name that is not valid text cannot be part of a link.
        is_one = set(files) <= set(names) and str(inside).isprintable()
        if is_one:
            name = str(inside) if inside.parts else folder.resolve().name
            folders.append((written(folder / files[-1])[0], name, folder))
        if is_one or len(inside.parts) >= _MOST_DEPTH:
            below.clear()
        below[:] = sorted(name for name in below if not name.startswith("."))
        if seen >= _MOST_SEEN:
            break
    newest = sorted(folders, reverse=True)[:_MOST_FOUND]
    return {name: folder for _, name, folder in newest}


def folder_named(name: str, folders: Mapping[str, Path]) -> Path:
    """Return a folder by its name.

    Raises:
        UserError: no folder has the name.
    """
    if name not in folders:
        raise UserError(f"the folder '{name}' is no longer there; choose another")
    return folders[name]


def written(path: Path) -> tuple[int, int]:
    """Return a file's modification time and size in bytes; zeros if the file does not exist."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size
