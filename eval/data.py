"""Where a task's dataset is looked for: what the user names, a folder of them, the Hub."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from carbon.errors import UserError
from carbon.files import sha256_of_file
from eval.contract import Task


class Dataset(NamedTuple):
    """A dataset that was found.

    Attributes:
        source: a path, or a name on the Hub.
        identity: SHA-256 of a local file; the name for one of the Hub.
    """

    source: str
    identity: str


def places_of(task: Task, named: Mapping[str, str]) -> list[str]:
    """Return where the dataset of a task may be, in the order in which it is looked for.

    Args:
        task: whose dataset is wanted.
        named: task to path or Hub id, as the user gave them; "" for a folder of datasets.
    """
    if task.name in named:
        return [named[task.name]]
    if folder := named.get(""):
        files = [f"{task.name}.parquet", *([task.hub_file] if task.hub_file else [])]
        return [str(Path(folder) / file) for file in files]
    return [task.hub_id] if task.hub_id else []


def find_data(task: Task, named: Mapping[str, str]) -> str | None:
    """Return the first place that is there.

    What is named for the task is taken to be, and so is the Hub: whoever reads it will complain.
    """
    for place in places_of(task, named):
        if task.name in named or place == task.hub_id or Path(place).exists():
            return place
    return None


def identity_of(source: str) -> str:
    """Return what tells one dataset from another: of a local file or folder its SHA-256."""
    path = Path(source)
    if path.is_file():
        return sha256_of_file(path)
    if path.is_dir():
        return " ".join(sha256_of_file(file) for file in sorted(path.rglob("*.parquet")))
    return source


def named_or_plain(texts: Sequence[str], known: Sequence[str], flag: str) -> dict[str, str]:
    """Read `VALUE` and `TASK=VALUE` into a table, "" for what has no name.

    Raises:
        UserError: a task is misspelt, or a value is given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name, value = (name, value) if equals else ("", text)
        if name:
            check_name(name, known, flag)
        if name in found:
            raise UserError(f"{flag} {text}: is given twice for {name or 'all tasks'}")
        found[name] = value
    return found


def check_name(name: str, known: Sequence[str], what: str) -> None:
    """Raise UserError unless a name is known; the nearest one is suggested."""
    if name not in known:
        near = get_close_matches(name, known, n=1, cutoff=0)
        raise UserError(
            f"{what} {name}: no such task; did you mean {near[0]}? There are {', '.join(known)}"
        )
