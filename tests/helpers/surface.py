"""The public names of `carbon` with their signatures, as text.

`python -m tests.helpers.surface` writes the file that a test compares.
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import carbon

FILE = Path(__file__).parents[1] / "golden" / "public_surface.txt"
_PLACES = re.compile(r" at 0x[0-9a-f]+|pathlib\._local\.")


def surface() -> str:
    """Return a line for each public name, method, attribute and keyword."""
    lines = (line for name in carbon.__all__ for line in _lines(name, getattr(carbon, name)))
    return "".join(f"{line}\n" for line in lines)


def _lines(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, ModuleType):
        yield f"module {name}"
        for each in getattr(value, "__all__", ["list"]):
            if inspect.isroutine(function := getattr(value, each)):
                yield from _function(f"{name}.{each}", function)
    elif inspect.isclass(value):
        yield f"class {name}{_signature(value)}"
        for each in sorted(dir(value)):
            if not each.startswith("_"):
                yield from _member(f"{name}.{each}", inspect.getattr_static(value, each))
    elif callable(value):
        yield from _function(name, value)
    else:
        yield f"value {name}"


def _member(name: str, member: Any) -> Iterator[str]:
    if isinstance(member, classmethod | staticmethod):
        member = member.__func__
    if inspect.isfunction(member):
        yield from _function(name, member)
    elif module_of(member).startswith("carbon") or not inspect.isroutine(member):
        yield f"attribute {name}"


def module_of(member: Any) -> str:
    return getattr(member, "__module__", None) or ""


def _function(name: str, function: Any) -> Iterator[str]:
    yield f"function {name}{_signature(function)}"
    for parameter in inspect.signature(function, eval_str=False).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            yield from (f"  keyword {key}: {hint}" for key, hint in _keywords(function, parameter))


def _keywords(function: Any, parameter: inspect.Parameter) -> Iterator[tuple[str, str]]:
    """Yield the keys of a TypedDict that `**options` unpacks, if there is one."""
    text = str(parameter.annotation)
    if match := re.search(r"Unpack\[(\w+)\]", text):
        config = __import__(f"{function.__module__}.config", fromlist=[match[1]])
        for key, hint in inspect.get_annotations(getattr(config, match[1])).items():
            yield key, _PLACES.sub("", str(hint))
        return
    for kind in get_args(parameter.annotation):
        for key, hint in inspect.get_annotations(kind).items():
            yield key, _PLACES.sub("", str(hint))


def _signature(value: Any) -> str:
    try:
        return _PLACES.sub("", str(inspect.signature(value)))
    except ValueError:  # of a C function
        return "(...)"


if __name__ == "__main__":
    FILE.write_text(surface(), encoding="utf-8")
