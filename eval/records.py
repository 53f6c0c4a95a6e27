"""The record of a task and a model as JSON, and its rows as JSON lines.

`results.schema.json` describes a record; every record is checked when written and when read.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

from carbon.errors import ConfigError, UserError
from carbon.io.files import atomic_file
from carbon.io.structured import JSON_OBJECT, parse_json
from eval.contract import Result

SCHEMA_NAME = "carbon-eval-record/2"
_SCHEMA = Path(__file__).with_name("results.schema.json")

Json = dict[str, Any]


@dataclass(frozen=True)
class Stored:
    """A record and where it was read from."""

    path: Path
    record: Json

    @property
    def task(self) -> str:
        """The task's name."""
        return str(self.record["task"]["name"])

    @property
    def entrant(self) -> str:
        """The model's name, with the dtype where it is not float32."""
        return str(self.record["model"]["shown_as"])

    @property
    def is_baseline(self) -> bool:
        """Whether it is one of the baselines."""
        return bool(self.record["model"]["kind"] == "baseline")

    def results(self) -> list[Result]:
        """Read the rows that were measured, in the order of the examples.

        Raises:
            ConfigError: they are missing or broken, or not as many as the record says.
        """
        path = self.path.with_suffix(".jsonl")
        rows = [row for row in read_rows(path) if "skipped" not in row]
        if len(rows) != (expected := self.record["counts"]["measured"]):
            raise ConfigError(
                f"{path}: has {len(rows):,} results, of {expected:,} of the record beside it; were "
                "lines lost? Remove both and run again"
            )
        return rows


def settings_of(record: Json) -> Json:
    """Return the parts of a record that its results depend on."""
    return {
        "task": record["task"]["name"],
        "version": record["task"]["version"],
        "model": record["model"]["name"],
        "identity": record["model"]["identity"],
        "dtype": record["model"]["dtype"],
        "dataset": record["data"]["identity"],
        "final": False,  # of records from before the option
        **record["options"],
        "reference": record["data"]["reference"],  # wherever it lies
    }


def file_stem(shown_as: str) -> str:
    """Return a name for files: letters, digits, dots and dashes.

    >>> file_stem("Markov 6"), file_stem("org/model")
    ('Markov-6', 'org-model')
    """
    return re.sub(r"[^A-Za-z0-9.]+", "-", shown_as).strip("-.") or "model"


def as_json(value: Any) -> Any:
    """Return nothing but JSON: dataclasses and named tuples as objects, NaN as null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: as_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return as_json(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): as_json(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_json(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def check_folder(path: Path) -> None:
    """Raise UserError where a file is in the way of a folder that is to be written to."""
    if path.exists() and not path.is_dir():
        raise UserError(f"{path}: is a file; name a folder to write to")


def write_rows(path: Path, rows: Sequence[Result]) -> None:
    """Write one JSON object a line."""
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as sink:
        for row in rows:
            sink.write(json.dumps(as_json(row), allow_nan=False) + "\n")


def read_rows(path: Path) -> list[Result]:
    """Read what `write_rows` wrote.

    Raises:
        ConfigError: the file is missing, or a line is not a JSON object.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; it belongs to the record beside it")
    rows = []
    for number, line in enumerate(_text_of(path).splitlines(), start=1):
        rows.append(_parsed(line, f"{path} line {number}"))
    return rows


def write_record(path: Path, record: Json) -> None:
    """Check a record against the schema and write it."""
    plain = {"schema": SCHEMA_NAME, **as_json(record)}
    _validator().validate(plain)
    with atomic_file(path) as temporary:
        text = json.dumps(plain, indent=1, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def read_record(path: Path) -> Stored:
    """Read and check a record.

    Raises:
        ConfigError: it is torn, or not a record of this version.
    """
    record = _parsed(_text_of(path), str(path))
    error = next(iter(_validator().iter_errors(record)), None)
    if error is not None:
        at = "/".join(map(str, error.absolute_path)) or "the top"
        raise ConfigError(f"{path}: is no record of an evaluation ({at}: {error.message[:120]})")
    return Stored(path, record)


def read_folder(folder: Path) -> list[Stored]:
    """Read the records of a run, by name of file.

    Raises:
        ConfigError: there is none.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder; give the --output of `carbon eval run`")
    paths = sorted(path for path in folder.glob("*/*.json") if not path.name.startswith("."))
    if not paths:
        raise ConfigError(f"{folder}: holds no record; give the --output of `carbon eval run`")
    return [read_record(path) for path in paths]


def _text_of(path: Path) -> str:
    """Read a file; bytes that are not text become text that is not JSON."""
    return path.read_text(encoding="utf-8", errors="replace")


def _parsed(text: str, where: str) -> Json:
    return parse_json(text, where, JSON_OBJECT, error=ConfigError, remedy="was it cut off?")


@cache
def _validator() -> Any:
    schema = json.loads(_SCHEMA.read_text(encoding="utf-8"))
    return jsonschema.Draft202012Validator(schema)
