"""Recipes: TOML files that are validated strictly into frozen pydantic models.

A model is the schema of a table: a field without a default is required, `Literal` lists names, and
`Field` bounds numbers. A recipe contains only names and does not import the code they refer to; a
test compares the names with that code.
"""

import copy
import difflib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, get_args

import tomli_w
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from carbon.errors import ConfigError, abridged
from carbon.io.structured import MAX_DEPTH, parse_toml_value, read_toml

# Expected values, by pydantic's name of the error; bounds come from its context.
_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "an array",
    "dict_type": "a table",
    "model_type": "a table",
    "literal_error": "{expected}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
}


class Recipe(BaseModel):
    """Base class of recipes and of the tables inside them.

    TOML types are distinct: `true` is not 1, and "1" is not a number, but a whole number is
    accepted for a float. Arrays become tuples. An invalid value raises `ConfigError`, however the
    model is created.

    Attributes:
        REMOVED: former keys of the table, each with a hint to the setting that replaced it.
        RENAMED: former keys of the table, each with its present name.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)
    REMOVED: ClassVar[Mapping[str, str]] = {}
    RENAMED: ClassVar[Mapping[str, str]] = {}

    def __init__(self, **values: Any) -> None:
        """Validate values from Python.

        Raises:
            ConfigError: names or values are invalid; the message lists all of them.
        """
        try:
            super().__init__(**_with_tuples(values))
        except ValidationError as error:
            raise _config_error(type(self), error, type(self).__name__) from None

    # pydantic skips `__init__` for tables inside a recipe, which lets it list all their mistakes.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def load(cls, path: str | Path, overrides: Sequence[str] = ()) -> Self:
        """Read a TOML file, then apply overrides such as `phases.0.tokens=1000`.

        Raises:
            ConfigError: the file is missing or not TOML, or keys or values are invalid.
        """
        return cls.from_table(with_overrides(read_table(path), overrides), str(path))

    @classmethod
    def from_table(cls, table: Mapping[str, Any], where: str) -> Self:
        """Validate a parsed table; `where` begins each line of the message.

        Raises:
            ConfigError: keys or values are invalid; the message has a line for each.
        """
        try:
            return cls.model_validate(_with_tuples(table))
        except ValidationError as error:
            raise _config_error(cls, error, where) from None

    def replace(self, **changes: Any) -> Self:
        """Return a copy with changed values, validated like a new recipe.

        Raises:
            ConfigError: a name or a value is invalid.
        """
        return type(self)(**(dict(self) | changes))

    def to_table(self) -> dict[str, Any]:
        """Return all keys as plain values, including defaults."""
        return self.model_dump()

    def to_toml(self) -> str:
        """Return TOML with all keys, including defaults, which `load` reads to an equal value.

        Keys with the value None are left out, because TOML has no null.
        """
        return tomli_w.dumps(self.model_dump(exclude_none=True))

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield conflicts between values that are valid on their own; for subclasses.

        Yields:
            The key, dotted for nested tables and empty for the whole table, and the problem with
            its remedy.
        """
        yield from ()

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        mistakes = [
            InitErrorDetails(
                type=refusal(problem), loc=tuple(filter(None, key.split("."))), input=None
            )
            for key, problem in self.problems()
        ]
        if mistakes:
            raise ValidationError.from_exception_data(type(self).__name__, mistakes)
        return self

    @field_validator("*")
    @classmethod
    def _can_be_written(cls, value: Any) -> Any:
        """Refuse values that TOML or a file name cannot hold."""
        for leaf in _leaves(value):
            if isinstance(leaf, str) and "\0" in leaf:
                raise refusal(f"expected text without a zero byte, got {leaf!r}")
            if isinstance(leaf, int) and abs(leaf) >= 2**63:
                raise refusal(f"expected a whole number of less than 2^63, got {leaf}")
        return value


def refusal(problem: str) -> PydanticCustomError:
    """Return the error that a validator of one field raises to refuse its value."""
    return PydanticCustomError("refused", "{problem}", {"problem": problem})


def _not_blank(text: str) -> str:
    if not text.strip():
        raise refusal(f"expected a name, got {text!r}")
    return text


def _not_empty(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise refusal("expected one or more, got []")
    return values


Name = Annotated[str, AfterValidator(_not_blank)]
"""Text that is not blank."""
NotEmpty = AfterValidator(_not_empty)
"""For arrays: `Annotated[tuple[X, ...], NotEmpty]`. Unlike `min_length`, it ignores an array with
an invalid value, so that the mistake is listed once."""


def check(holds: bool, message: str) -> None:
    """Raise ConfigError with a message unless `holds` is true."""
    if not holds:
        raise ConfigError(message)


def read_table(path: str | Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ConfigError: the file is missing or not TOML.
    """
    path = Path(path)
    try:
        return read_toml(path, ConfigError)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; give the path of a TOML configuration") from None


def with_overrides(table: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return a copy of `table` with every `dotted.key=value` set; numbers index into arrays.

    Raises:
        ConfigError: an override is not `key=value`, or its key cannot be reached.
    """
    result = copy.deepcopy(dict(table))
    for override in overrides:
        dotted, equals, text = override.partition("=")
        shown = abridged(override)
        if not equals:
            raise ConfigError(f"--set {shown}: write it as key=value")
        keys = dotted.strip().split(".")
        if len(keys) > MAX_DEPTH:
            raise ConfigError(f"--set {shown}: nested too deeply")
        # Text that is not TOML stays text, so that paths need no quotes.
        value = parse_toml_value(text.strip(), f"--set {shown}", ConfigError)
        _put(result, keys, value, shown)
    return result


def _put(node: Any, keys: list[str], value: Any, override: str) -> None:
    for key, following in itertools.pairwise(keys):
        node = _child(node, key, [] if following == "0" else {}, override)
        if not isinstance(node, dict | list):
            raise ConfigError(f"--set {override}: '{key}' is a value, not a table")
    if isinstance(node, list):
        _child(node, keys[-1], value, override)
        node[int(keys[-1])] = value
    else:
        node[keys[-1]] = value


def _child(node: Any, key: str, new: Any, override: str) -> Any:
    """Return the value of a key, or set it to `new` if it is missing; an array grows by one."""
    if isinstance(node, list):
        if not key.isdecimal() or int(key) > len(node):
            raise ConfigError(f"--set {override}: '{key}' is not one of 0 to {len(node)}")
        if int(key) == len(node):
            node.append(new)
        return node[int(key)]
    return node.setdefault(key, new)


def _with_tuples(value: Any) -> Any:
    """Return a copy with tuples for arrays, as strict models require."""
    if isinstance(value, Mapping):
        return {key: _with_tuples(item) for key, item in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list | tuple) else value


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the plain values in tables and arrays; nested recipes have checked their own."""
    if isinstance(value, Mapping):
        value = (*value.keys(), *value.values())
    if isinstance(value, tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _config_error(schema: type[Recipe], error: ValidationError, where: str) -> ConfigError:
    """Return one error for all mistakes, with a line for each: where, key, problem and remedy."""
    lines = []
    for each in error.errors(include_url=False):
        key = ".".join(map(str, each["loc"]))
        lines.append(": ".join(filter(None, (where, key, _problem(schema, each)))))
    return ConfigError("\n".join(lines))


def _problem(schema: type[Recipe], error: ErrorDetails) -> str:
    kind = error["type"]
    if kind == "missing":
        return "is missing; it has no default"
    if kind == "extra_forbidden":
        *tables, key = error["loc"]
        return _unknown(_schema_at(schema, tables), str(key))
    if kind not in _EXPECTED:
        return error["msg"]
    context = {name: _bound(value) for name, value in error.get("ctx", {}).items()}
    return f"expected {_EXPECTED[kind].format(**context)}, got {_shown(error['input'])}"


def _unknown(schema: type[Recipe], key: str) -> str:
    if key in schema.RENAMED:
        return f"unknown key; did you mean '{schema.RENAMED[key]}'?"
    if key in schema.REMOVED:
        return f"is gone, take it out: {schema.REMOVED[key]}"
    known = list(schema.model_fields)
    near = difflib.get_close_matches(key, known, n=1)
    return "unknown key; " + (
        f"did you mean '{near[0]}'?" if near else f"known keys are {', '.join(known)}"
    )


def _schema_at(schema: type[Recipe], keys: Sequence[int | str]) -> type[Recipe]:
    """Return the model of a table inside a recipe.

    Indices of arrays, and names in tables whose keys are free, stay in the same model.
    """
    for key in keys:
        field = schema.model_fields.get(str(key))
        schema = (field and inner_recipe(field.annotation)) or schema
    return schema


def inner_recipe(annotation: Any) -> type[Recipe] | None:
    """Return the model that a field contains, alone or in an array; None without one."""
    if isinstance(annotation, type) and issubclass(annotation, Recipe):
        return annotation
    return next(filter(None, map(inner_recipe, get_args(annotation))), None)


def _bound(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _shown(value: Any) -> str:
    """Return a value in TOML notation; `an array` or `a table` for those types."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping | BaseModel):
        return "a table"
    return "an array" if isinstance(value, tuple) else repr(value)
