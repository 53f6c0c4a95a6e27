"""Folders below another one, found by the files in them."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from carbon.errors import UserError

_MOST_DEPTH = 3  # folders between that of all and one of them
_MOST_SEEN = 2000
_MOST_FOUND = 60


def find_folders(root: Path, files: Sequence[str]) -> dict[str, Path]:
    """Return the folders a few levels below a folder that hold all of these files.

    Args:
        root: where to begin; what is hidden or inside of a folder that was found is passed over.
        files: names; those whose last was written last come first.

    Returns:
        The path from `root`, or its own name for itself, to the folder.
    """
    found: list[tuple[int, str, Path]] = []
    for seen, (place, below, names) in enumerate(os.walk(root), start=1):
        folder = Path(place)
        inside = folder.relative_to(root)
        # A name that is no text cannot be in a link.
        is_one = set(files) <= set(names) and str(inside).isprintable()
        if is_one:
            name = str(inside) if inside.parts else folder.resolve().name
            found.append((written(folder / files[-1])[0], name, folder))
        if is_one or len(inside.parts) >= _MOST_DEPTH:
            below.clear()
        below[:] = sorted(name for name in below if not name.startswith("."))
        if seen >= _MOST_SEEN:
            break
    newest = sorted(found, reverse=True)[:_MOST_FOUND]
    return {name: folder for _, name, folder in newest}


def folder_named(name: str, found: Mapping[str, Path]) -> Path:
    """Return a folder by its name among those that were found.

    Raises:
        UserError: it is not among them.
    """
    if name not in found:
        raise UserError(f"the folder '{name}' is no longer there; choose another")
    return found[name]


def written(path: Path) -> tuple[int, int]:
    """Return when a file was written to, and its bytes; zeros where there is none."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size
