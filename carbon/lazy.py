"""Lazy import of the names of a package."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a package that imports each name on first use.

    Args:
        package: name of the package, for messages.
        homes: module of each name.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return getattr(import_module(homes[name]), name)

    return find
