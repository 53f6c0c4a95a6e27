"""The tasks, each a folder: protocol and figures in its README, `TASK`, and a builder.

Every package in this folder that has a `TASK` is a task; adding one changes no other file.
"""

from importlib import import_module
from pkgutil import iter_modules

from eval.contract import Task


def found_tasks() -> dict[str, Task]:
    """Return the tasks of this folder by name, sorted by axis and name."""
    found = iter_modules(__path__, f"{__name__}.")
    modules = [import_module(each.name) for each in found if each.ispkg]
    tasks = [module.TASK for module in modules if hasattr(module, "TASK")]
    return {task.name: task for task in sorted(tasks, key=lambda task: (task.axis, task.name))}


TASKS: dict[str, Task] = found_tasks()
