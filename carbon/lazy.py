"""Names of a package or module that are imported or made on first use."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a package that imports each name on first use.

    Args:
        package: name of the package, for messages.
        homes: module of each name.
    """

    def imported(name: str) -> Any:
        return getattr(import_module(homes[name]), name)

    return made_names(package, {name: partial(imported, name) for name in homes})


def made_names(module: str, makers: Mapping[str, Callable[[], Any]]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module that makes each name on use.

    Args:
        module: name of the module, for messages.
        makers: function that makes each name.
    """

    def find(name: str) -> Any:
        if name not in makers:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        return makers[name]()

    return find
