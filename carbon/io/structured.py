"""Read JSON, TOML and Parquet files from disk: regular files, bounded in size, checked by a schema.

Every structured file that a command reads passes through here, so that a pipe, a file of 10^9
bytes, nesting without end, torn UTF-8 or a value of the wrong type ends in one line that names the
file and the key. JSON is parsed and validated by pydantic, whose parser bounds depth and digits.
"""

import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from carbon.errors import UserError
from carbon.progress import say

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

T = TypeVar("T")

MAX_BYTES = 256 * 2**20
"""Of a JSON or TOML file, and of one line of JSON lines."""
JSON_OBJECT = dict[str, Any]
"""The schema of a JSON object whose keys the caller checks."""
MAX_DEPTH = 100
"""Of nested TOML; the JSON parser of pydantic has a bound of its own."""
_BETWEEN_KEYS = re.compile(r"[=,\[\]{}\n]")
_MAX_BITS = 1024  # of a whole number in TOML, so that messages can show it


def open_regular(path: str | Path, error: type[UserError] = UserError) -> BinaryIO:
    """Open a regular file for reading; a pipe or device is refused without waiting for it.

    Raises:
        OSError: the file is absent, a folder, or cannot be read.
        UserError: the file is a pipe, socket or device; `error` is its class.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    kind = os.fstat(handle).st_mode
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        os.close(handle)
        raise error(f"{path}: is not a regular file; give a file, not a pipe or a device")
    try:
        return os.fdopen(handle, "rb")
    except OSError:
        os.close(handle)
        raise


def read_bytes(
    path: str | Path,
    max_bytes: int = MAX_BYTES,
    error: type[UserError] = UserError,
    remedy: str = "is it the right file?",
) -> bytes:
    """Return the content of a regular file of at most `max_bytes`.

    Raises:
        OSError: the file is absent, a folder, or cannot be read.
        UserError: the file is larger, or not a regular file; `error` is its class.
    """
    with open_regular(path, error) as file:
        is_large = os.fstat(file.fileno()).st_size > max_bytes
        content = b"" if is_large else file.read(max_bytes + 1)
    if is_large or len(content) > max_bytes:  # a file may grow, and /proc states no size
        raise error(f"{path}: is larger than {max_bytes:,} bytes; {remedy}")
    return content


def read_json(
    path: str | Path,
    schema: type[T],
    *,
    error: type[UserError] = UserError,
    remedy: str = "write it again",
    finite: bool = True,
) -> T:
    """Return the content of a JSON file, validated strictly by a schema.

    Args:
        path: of the file.
        schema: a type that pydantic validates: a model, dataclass, TypedDict, or `dict[str, Any]`.
        error: class of the error.
        remedy: the end of the message.
        finite: refuse NaN and Infinity, which JSON does not have but some libraries write.

    Raises:
        OSError: the file is absent, a folder, or cannot be read.
        UserError: the file is not JSON of this schema; the message names file, key and problem.
    """
    content = read_bytes(path, error=error)
    return parse_json(content, str(path), schema, error=error, remedy=remedy, finite=finite)


def parse_json(
    content: bytes | str,
    where: str,
    schema: type[T],
    *,
    error: type[UserError] = UserError,
    remedy: str = "write it again",
    finite: bool = True,
) -> T:
    """Return JSON text as `read_json` does; `where` begins the message.

    Raises:
        UserError: the text is not JSON of this schema; the message names place, key and problem.
    """
    kind: Any = schema
    try:
        value: T = _adapter(kind).validate_json(content, strict=True)
        if finite and _has_constant(content):
            from_json(content, allow_inf_nan=False)
    except ValidationError as wrong:
        raise error(f"{where}: {_first_problem(wrong)}; {remedy}") from None
    except ValueError as wrong:
        raise error(f"{where}: NaN and Infinity are not JSON ({wrong}); {remedy}") from None
    return value


def _has_constant(content: bytes | str) -> bool:
    """Return whether NaN or Infinity occurs in JSON text, perhaps inside a string."""
    if isinstance(content, str):
        return "NaN" in content or "Infinity" in content
    return b"NaN" in content or b"Infinity" in content


@cache
def _adapter(schema: Any) -> TypeAdapter[Any]:
    return TypeAdapter(schema)


def _first_problem(wrong: ValidationError) -> str:
    """Return key and problem of the first of some mistakes."""
    first = wrong.errors(include_url=False, include_input=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    return f"{key}: {first['msg']}" if key else first["msg"]


def read_json_lines(
    path: str | Path,
    schema: type[T],
    *,
    error: type[UserError] = UserError,
    remedy: str = "write it again",
) -> Iterator[tuple[int, T]]:
    """Yield number (from 1) and value of each line of a file of JSON lines.

    A last line without its line break, which a process that was killed leaves, is dropped with a
    warning on standard error; it may end inside a character.

    Raises:
        OSError: the file is absent, a folder, or cannot be read.
        UserError: a line is longer than `MAX_BYTES` or not JSON of this schema.
    """
    for number, line in whole_lines(path, error):
        if line.strip():
            where = f"{path} line {number}"
            yield number, parse_json(line, where, schema, error=error, remedy=remedy)


def whole_lines(
    path: str | Path, error: type[UserError] = UserError
) -> Iterator[tuple[int, bytes]]:
    """Yield number (from 1) and content of each line of a file, with its line break.

    A last line without a line break is dropped with a warning, as by `read_json_lines`.

    Raises:
        OSError: the file is absent, a folder, or cannot be read.
        UserError: a line is longer than `MAX_BYTES`; `error` is its class.
    """
    with open_regular(path, error) as file:
        number = 0
        while line := file.readline(MAX_BYTES + 1):
            number += 1
            where = f"{path} line {number}"
            if len(line) > MAX_BYTES:
                raise error(f"{where}: is longer than {MAX_BYTES:,} bytes; is it the right file?")
            if not line.endswith(b"\n"):
                say(f"{where}: is torn and left out; a process was killed while it wrote")
                return
            yield number, line


def read_toml(path: str | Path, error: type[UserError] = UserError) -> dict[str, Any]:
    """Return the content of a TOML file.

    Raises:
        OSError: the file is absent, a folder, or cannot be read.
        UserError: the file is not TOML, or nested too deeply; `error` is its class.
    """
    return parse_toml(read_bytes(path, error=error), str(path), error)


def parse_toml(
    content: bytes | str, where: str, error: type[UserError] = UserError
) -> dict[str, Any]:
    """Return TOML text; `where` begins the message.

    Raises:
        UserError: the text is not TOML, nested too deeply, or has a number with hundreds of digits;
            `error` is its class.
    """
    try:
        return _bounded_toml(content if isinstance(content, str) else content.decode("utf-8"))
    except RecursionError:
        raise error(f"{where}: not valid TOML: nested too deeply") from None
    except ValueError as wrong:  # of TOML, of UTF-8, or of a number with thousands of digits
        raise error(f"{where}: not valid TOML: {wrong}") from None


def parse_toml_value(text: str, where: str, error: type[UserError] = UserError) -> Any:
    """Return a TOML value, or the text itself if it is not one.

    Raises:
        UserError: the value is nested too deeply.
    """
    try:
        table = _bounded_toml(f"value = {text}")
    except RecursionError:
        raise error(f"{where}: nested too deeply") from None
    except ValueError:
        return text
    return table["value"] if len(table) == 1 else text


def _bounded_toml(text: str) -> dict[str, Any]:
    """Return a TOML table that is nested at most `MAX_DEPTH` deep and has no huge number.

    Raises:
        RecursionError: it is nested too deeply.
        ValueError: the text is not TOML, or a number has hundreds of digits.
    """
    # The parser takes quadratic memory for a key of many dots.
    if any(piece.count(".") > MAX_DEPTH for piece in _BETWEEN_KEYS.split(text)):
        raise RecursionError
    table = tomllib.loads(text)
    level: list[Any] = [table]
    for _ in range(MAX_DEPTH):
        if any(isinstance(each, int) and each.bit_length() > _MAX_BITS for each in level):
            raise ValueError("a number has hundreds of digits")
        inside = (each.values() if isinstance(each, dict) else each for each in level
                  if isinstance(each, dict | list))  # fmt: skip
        level = list(chain.from_iterable(inside))
        if not level:
            return table
    raise RecursionError


def open_parquet(
    path: str | Path,
    columns: Mapping[str, "pa.DataType"],
    *,
    file: IO[bytes] | None = None,
    error: type[UserError] = UserError,
    remedy: str = "write it again",
) -> "pq.ParquetFile":
    """Open a Parquet file and check that it has columns of these types.

    Args:
        path: of the file.
        columns: types by name; any kind of text serves as text.
        file: the open file, if it is not on disk.
        error: class of the error.
        remedy: the end of the message.

    Raises:
        OSError: the file is absent, a folder, or cannot be read.
        UserError: the file is not Parquet, or a column is missing or of another type.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if file is None:
        open_regular(path, error).close()
    try:
        parquet = pq.ParquetFile(file or path)
        schema = parquet.schema_arrow
    except (pa.ArrowException, ValueError, OSError) as wrong:
        reason = str(wrong).splitlines()[0]
        raise error(f"{path}: is not a whole Parquet file ({reason}); {remedy}") from None
    for name, kind in columns.items():
        fields = schema.get_all_field_indices(name)
        if len(fields) != 1:
            problem = f"has {len(fields)} columns" if fields else "has no column"
            raise error(f"{path}: {problem} '{name}'; {remedy}")
        got = schema.field(fields[0]).type
        if got != kind and not (_is_text(got) and _is_text(kind)):
            raise error(f"{path}: column '{name}' is {got}, expected {kind}; {remedy}")
    return parquet


def _is_text(kind: "pa.DataType") -> bool:
    import pyarrow.types as of

    return bool(of.is_string(kind) or of.is_large_string(kind) or of.is_string_view(kind))
