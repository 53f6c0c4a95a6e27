"""The tasks, each a folder: protocol and figures in its README, `TASK`, and a builder.

Every package in this folder that has a `TASK` is a task; adding one changes no other file.
"""

from importlib import import_module
from pkgutil import iter_modules

from eval.contract import Task


def tasks_of(package: str = __name__) -> dict[str, Task]:
    """Return the tasks of a package by name, sorted by axis and name."""
    found = iter_modules(import_module(package).__path__, f"{package}.")
    modules = [import_module(each.name) for each in found if each.ispkg]
    tasks = [module.TASK for module in modules if hasattr(module, "TASK")]
    return {task.name: task for task in sorted(tasks, key=lambda task: (task.axis, task.name))}


TASKS: dict[str, Task] = tasks_of()
