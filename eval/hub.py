"""Datasets and models of the Hub without a network: the cache, and the commands of builds."""

from collections.abc import Mapping, Sequence

from carbon.errors import UserError
from carbon.model.folder import hub_folder, hub_name, why_unreachable
from carbon.pretrained import local_folder
from eval.contract import Task
from eval.data import find_data
from eval.tables import is_on_hub, offline


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
