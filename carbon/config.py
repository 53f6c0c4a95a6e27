"""TOML into frozen dataclasses, strictly: a run is data, and a misspelt key is an error.

Standard library only. The dataclass is the schema: a field without a default is required, an
`Annotated[str, OneOf(TABLE)]` is a key of a table, a nested dataclass is a table of its own,
`tuple[X, ...]` is an array. A class variable `GONE` names keys that a schema once had, each with
where what it said stands now.
"""

import dataclasses
import difflib
import itertools
import json
import math
import re
import tomllib
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from carbon.errors import ConfigError

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class OneOf:
    """A choice: `Annotated[str, OneOf(TABLE)]` is a field that holds a key of a table.

    Attributes:
        table: what is known of each choice, by its name.
        or_empty: whether no choice, an empty text, will do as well.
    """

    table: Collection[str]
    or_empty: bool = False

    def check(self, value: Any, where: str) -> None:
        """Raise ConfigError unless a value is a key of the table; the message lists the keys."""
        if self.or_empty and value == "":
            return
        choices = ", ".join(map(repr, self.table))
        _expect(isinstance(value, str) and value in self.table, where, f"one of {choices}", value)


def load_config(schema: type[T], path: str | Path, overrides: Sequence[str] = ()) -> T:
    """Read a TOML file into `schema`, then apply overrides such as `stages.0.tokens=1000`.

    Raises:
        ConfigError: the file is absent or not TOML, or a key or value does not fit the schema.
    """
    return from_table(schema, with_overrides(read_table(path), overrides), str(path))


def read_table(path: str | Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ConfigError: the file is absent or not TOML.
    """
    path = Path(path)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; give the path of a TOML configuration") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def with_overrides(table: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return a copy of `table` with every `dotted.key=value` put in; numbers index into arrays."""
    result: dict[str, Any] = _copy(table)
    for override in overrides:
        dotted, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"--set {override}: write it as key=value")
        _put(result, dotted.strip().split("."), _parse_value(text.strip()), override)
    return result


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _parse_value(text: str) -> Any:
    """Read a value as TOML; what is not TOML is taken as a string, so paths need no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(node: Any, keys: list[str], value: Any, override: str) -> None:
    for key, following in itertools.pairwise(keys):
        node = _child(node, key, [] if following == "0" else {}, override)
    if not isinstance(node, dict | list):
        raise ConfigError(f"--set {override}: '{keys[-2]}' is a value, not a table")
    if isinstance(node, list):
        _child(node, keys[-1], value, override)
        node[int(keys[-1])] = value
    else:
        node[keys[-1]] = value


def _child(node: Any, key: str, new: Any, override: str) -> Any:
    """Return what stands under a key, which is `new` if nothing does; an array grows by one."""
    if isinstance(node, list):
        if not key.isdecimal() or int(key) > len(node):
            raise ConfigError(f"--set {override}: '{key}' is not one of 0 to {len(node)}")
        if int(key) == len(node):
            node.append(new)
        return node[int(key)]
    child = node.setdefault(key, new)
    if not isinstance(child, dict | list):
        raise ConfigError(f"--set {override}: '{key}' is a value, not a table")
    return child


def from_table(schema: type[T], table: Mapping[str, Any], where: str) -> T:
    """Build the dataclass `schema` from a parsed table; `where` opens every error message."""
    hints = typing.get_type_hints(schema, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(schema)}  # type: ignore[arg-type]
    gone: dict[str, str] = getattr(schema, "GONE", {})
    for key in table:
        if key in gone:
            raise ConfigError(f"{where}: '{key}' is gone, take it out: {gone[key]}")
        if key not in fields:
            raise ConfigError(f"{where}: unknown key '{key}'{_suggestion(key, fields)}")
    values = {}
    for name, field in fields.items():
        if name in table:
            values[name] = _convert(hints[name], table[name], f"{where}: {name}")
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise ConfigError(f"{where}: '{name}' is missing; it has no default")
    try:
        return schema(**values)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _suggestion(key: str, known: typing.Iterable[str]) -> str:
    near = difflib.get_close_matches(key, list(known), n=1)
    return f"; did you mean '{near[0]}'?" if near else f"; known keys are {', '.join(known)}"


def _convert(hint: Any, value: Any, where: str) -> Any:
    """Check `value` against the type `hint` and convert lists to tuples, tables to dataclasses."""
    origin, arguments = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint):
        _expect(isinstance(value, Mapping), where, "a table", value)
        return from_table(typing.cast("type[Any]", hint), value, where)
    if origin is Annotated:
        arguments[1].check(value, where)
        return value
    if origin is tuple:
        _expect(isinstance(value, list), where, "an array", value)
        return tuple(_convert(arguments[0], v, f"{where}.{i}") for i, v in enumerate(value))
    if origin is dict:
        _expect(isinstance(value, Mapping), where, "a table", value)
        return {k: _convert(arguments[1], v, f"{where}.{k}") for k, v in value.items()}
    if origin in (Union, types.UnionType):
        (inner,) = [argument for argument in arguments if argument is not type(None)]
        return _convert(inner, value, where)
    if hint is float and type(value) is int:
        return float(value)
    _expect(type(value) is hint, where, f"a {hint.__name__}", value)
    for kind, (holds, wanted) in _SANE.items():
        _expect(type(value) is not kind or holds(value), where, wanted, value)
    return value


# What no setting can mean, whichever it is.
_SANE: dict[type, tuple[Callable[[Any], bool], str]] = {
    float: (math.isfinite, "a finite number"),
    int: (lambda value: abs(value) < 2**63, "a whole number of less than 2^63"),
    str: (lambda value: "\0" not in value, "text without a zero byte"),
}


def _expect(holds: bool, where: str, wanted: str, value: Any) -> None:
    if not holds:
        raise ConfigError(f"{where}: expected {wanted}, got {value!r}")


def check(holds: bool, message: str) -> None:
    """Raise ConfigError(message) unless `holds`; for `__post_init__`, where the file is added."""
    if not holds:
        raise ConfigError(message)


def check_given(config: Any, *names: str) -> None:
    """Raise ConfigError if a text of a configuration is empty or blank."""
    for name in names:
        value = getattr(config, name)
        check(bool(value.strip()), f"{name} = {value!r}: give a name")


def check_choices(config: Any) -> None:
    """Raise ConfigError unless every choice of a configuration is a key of its table.

    For `__post_init__`, so that a value that is made in Python is held to its tables as well.
    """
    for name, hint in typing.get_type_hints(type(config), include_extras=True).items():
        if get_origin(hint) is Annotated:
            get_args(hint)[1].check(getattr(config, name), name)


def to_toml(config: Any) -> str:
    """Write a configuration dataclass as TOML that `load_config` reads back to an equal value."""
    return "\n".join(_toml_lines(dataclasses.asdict(config), "")) + "\n"


def _toml_lines(table: Mapping[str, Any], prefix: str) -> list[str]:
    lines, later = [], []
    for key, value in table.items():
        name = f"{prefix}{_toml_key(key)}"
        if isinstance(value, Mapping):
            later += ["", f"[{name}]", *_toml_lines(value, f"{name}.")]
        elif isinstance(value, tuple | list) and value and isinstance(value[0], Mapping):
            for item in value:
                later += ["", f"[[{name}]]", *_toml_lines(item, f"{name}.")]
        elif value is not None:
            lines.append(f"{_toml_key(key)} = {_toml_value(value)}")
    return lines + later


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_value(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    return repr(value)
