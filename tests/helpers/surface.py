"""The public names of `carbon` with parameters and defaults, as text.

`python -m tests.helpers.surface` writes the file that a test compares. Types are left out: mypy and
pyright check them, and their text differs between versions of Python and NumPy.
"""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import carbon

FILE = Path(__file__).parents[1] / "golden" / "public_surface.txt"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def surface() -> str:
    """Return a line for each public name, method, attribute and keyword."""
    lines = (line for name in carbon.__all__ for line in _lines(name, getattr(carbon, name)))
    return "".join(f"{line}\n" for line in lines)


def _lines(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, ModuleType):
        yield f"module {name}"
        for each in getattr(value, "__all__", ["list", "entry"]):
            if inspect.isroutine(function := getattr(value, each)):
                yield from _function(f"{name}.{each}", function)
    elif inspect.isclass(value):
        yield f"class {name}{_parameters(value)}"
        for each, member in sorted(_own_members(value).items()):
            if inspect.isfunction(member):
                yield from _function(f"{name}.{each}", member)
            else:
                yield f"attribute {name}.{each}"
    elif callable(value):
        yield from _function(name, value)
    else:
        yield f"value {name}"


def _own_members(kind: type) -> dict[str, Any]:
    """Return the public members that classes of Carbon define, also those it inherits."""
    members: dict[str, Any] = {}
    for each in reversed(kind.__mro__):
        if each.__module__.startswith("carbon"):
            members |= {name: None for name in inspect.get_annotations(each)} | vars(each)
    return {
        name: member.__func__ if isinstance(member, classmethod | staticmethod) else member
        for name, member in members.items()
        if not name.startswith("_")
    }


def _function(name: str, function: Any) -> Iterator[str]:
    yield f"function {name}{_parameters(function)}"
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            yield from (f"  keyword {key}" for key in _keywords(function, parameter))


def _keywords(function: Any, parameter: inspect.Parameter) -> Iterator[str]:
    """Yield the keys of a TypedDict that `**options` unpacks, if there is one."""
    if match := re.search(r"Unpack\[(\w+)\]", str(parameter.annotation)):
        config = import_module(f"{function.__module__}.config")
        yield from getattr(config, match[1]).__annotations__
    for kind in get_args(parameter.annotation):
        yield from kind.__annotations__


def _parameters(value: Any) -> str:
    """Return parameters and defaults without types."""
    try:
        signature = inspect.signature(value)
    except ValueError:  # of a C function
        return "(...)"
    bare = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
    text = str(signature.replace(parameters=bare, return_annotation=signature.empty))
    return _ADDRESS.sub("", text)


if __name__ == "__main__":
    FILE.write_text(surface(), encoding="utf-8")
