"""Places of a task's dataset: a path of the user, a folder of datasets, the Hub or its cache."""

import csv
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from glob import escape
from pathlib import Path

from carbon.errors import UserError, reason_of
from carbon.genome.sequences import BROKEN_GZIP
from carbon.io.files import content_sha256
from carbon.model.folder import hub_folder, hub_name, why_unreachable
from carbon.pretrained import local_folder
from eval.contract import Task
from eval.tables import files_of, is_on_hub, offline

# What libraries raise at CSV, Parquet and xlsx that are torn or something else; Arrow's errors are
# ValueErrors.
_BROKEN = (ValueError, LookupError, csv.Error, zipfile.BadZipFile, *BROKEN_GZIP)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Say in one line that a file is broken, whatever the library that reads it raises."""
    try:
        yield
    except UserError:
        raise
    except _BROKEN as error:
        raise UserError(
            f"{path}: cannot be read ({reason_of(error)}); is it cut off, or of another kind than "
            "its name says?"
        ) from None


def places_of(task: Task, named: Mapping[str, str]) -> list[str]:
    """Return where the dataset of a task may be, in the order in which it is looked for.

    In a folder it may be under the task's name, or as the published one lies on the Hub: in the
    folder itself, or in one of the published dataset's name.

    Args:
        task: whose dataset is wanted.
        named: task to path or Hub id, as the user gave them; "" for a folder of datasets.
    """
    if task.name in named:
        return [named[task.name]]
    if folder := named.get(""):
        published = (task.hub_id or "").partition("/")[2]
        file = task.hub_file or ""
        names = [f"{task.name}.parquet", file, str(Path(published, file)) if published else ""]
        return [str(Path(escape(folder), name)) for name in names if name]
    return [task.hub_id] if task.hub_id else []


def find_data(task: Task, named: Mapping[str, str]) -> str | None:
    """Return the first place that is there.

    Paths of the user and the Hub are not looked up here; reading them reports missing files.
    """
    for place in places_of(task, named):
        if task.name in named or place == task.hub_id or files_of(place):
            return place
    return None


def identity_of(source: str) -> str:
    """Return the identity of a dataset: the SHA-256 of local files, or a Hub's name."""
    return " ".join(map(content_sha256, files_of(source))) or source


def named_or_plain(texts: Sequence[str], known: Sequence[str], flag: str) -> dict[str, str]:
    """Read `VALUE` and `TASK=VALUE` into a table, "" for values without a name.

    Raises:
        UserError: a task is misspelt, or a value is empty or given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name, value = (name, value) if equals else ("", text)
        if name:
            check_name(name, known, flag)
        if not value:
            raise UserError(f"{flag} {text}: names no path")
        if name in found:
            raise UserError(f"{flag} {text}: is given twice for {name or 'all tasks'}")
        found[name] = value
    return found


def check_name(name: str, known: Sequence[str], what: str) -> None:
    """Raise UserError unless a name is known; the nearest one is suggested."""
    if name not in known:
        near = get_close_matches(name, known, n=1, cutoff=0)
        raise UserError(
            f"{what} {name}: no such name; did you mean {near[0]}? `carbon eval list` has all"
        )


def is_cached(task: Task, source: str) -> bool:
    """Return whether the cache of `datasets` holds a task's dataset of the Hub."""
    with offline():
        try:
            task.read(source)
        except UserError:
            return False
    return True


def check_datasets(
    tasks: Sequence[Task], named: Mapping[str, str], build_commands: Mapping[str, str]
) -> None:
    """Refuse datasets that are on the Hub alone, if the Hub cannot be reached.

    Args:
        tasks: that will run.
        named: task to path or Hub id, as the user gave them; "" for a folder of datasets.
        build_commands: by task the command that builds its dataset from primary sources.

    Raises:
        UserError: a dataset is not on this machine; the message names `eval build`.
    """
    sources = {
        task.name: source
        for task in tasks
        if (source := find_data(task, named)) and is_on_hub(source)
    }
    if not sources or not (why := why_unreachable()):
        return
    missing = [t.name for t in tasks if t.name in sources and not is_cached(t, sources[t.name])]
    if missing:
        raise UserError(
            f"{', '.join(missing)}: no dataset on this machine, and the Hub, which has "
            f"{', '.join(dict.fromkeys(sources[name] for name in missing))}, cannot be reached "
            f"({why}); build it from primary sources, such as by `{build_commands[missing[0]]}`, "
            "and give --data FOLDER (`carbon eval list` has the command of every task)"
        )


def check_models(sources: Sequence[str]) -> None:
    """Look up models of the Hub before anything is measured.

    Args:
        sources: folders, names of bundled models, or `owner/name` on the Hub.

    Raises:
        ModelError: the model does not exist, or the Hub cannot be reached and the cache lacks it.
    """
    for source in sources:
        if local_folder(source) is None:
            hub_folder(hub_name(source), with_weights=False)
