"""Output formats: one registry of endings and writers, and the writers of tables.

Help, checks and commands read `FORMATS`. A writer is imported when it is first used, so the
registry may name modules above this one.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from difflib import get_close_matches
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

from carbon.errors import UserError

Write = Callable[[Sequence[Any]], None]
Columns = Mapping[str, type[str] | type[int] | type[float] | type[bool]]

_TABLE = {
    ".tsv": "carbon.io.tables:write_tsv",
    ".json": "carbon.io.tables:write_json",
    ".parquet": "carbon.io.tables:write_parquet",
}
_SCAN = "carbon.inference.scan.formats"
_DEPENDENCY = "carbon.inference.dependency.formats"
_SCANS = {".parquet": f"{_SCAN}:write_parquet", ".tsv": f"{_SCAN}:write_tsv"} | dict.fromkeys(
    (".mean_delta.bw", ".worst_delta.bw", ".log_p_ref.bw", ".entropy_nats.bw", ".bw"),
    f"{_SCAN}:write_bigwig",
)


def _of_variants(module: str) -> dict[str, str]:
    """Return the formats of a scored VCF: VCF, or a table with a row per allele."""
    return dict.fromkeys((".vcf.gz", ".vcf"), f"{module}:write_vcf") | dict.fromkeys(
        _TABLE, f"{module}:write_table"
    )


FORMATS: Mapping[str, Mapping[str, str]] = {
    "table": _TABLE,
    "variants": _of_variants("carbon.inference.variants.formats"),
    "predicted variants": _of_variants("carbon.finetune.predict_job"),
    "scan": _SCANS,
    "genome scan": _SCANS | {".parquet": f"{_SCAN}:write_dataset"},
    "dependency map": {
        ".parquet": f"{_DEPENDENCY}:write_parquet",
        ".npz": f"{_DEPENDENCY}:write_npz",
        ".bw": f"{_DEPENDENCY}:write_bigwig",
    },
    "designs": dict.fromkeys((".fa", ".fasta"), "carbon.design.job:write_fasta")
    | dict.fromkeys((".gb", ".gbk"), "carbon.design.genbank:write_genbank")
    | _TABLE
    | {".html": "carbon.design.report:write_html"},
    "embeddings": {
        ".parquet": "carbon.io.vectors:write_parquet",
        ".npz": "carbon.io.vectors:write_npz",
    },
    "allele embeddings": {
        ".parquet": "carbon.io.vectors:write_alleles_parquet",
        ".npz": "carbon.io.vectors:write_alleles_npz",
    },
    "background": {".json": "carbon.inference.variants.background:Background.write"},
    "joined parts": {
        ".tsv": "carbon.io.join:join_tsv",
        ".parquet": "carbon.io.join:join_parquet",
        ".json": "carbon.io.join:add_summaries",
    },
}
"""Module and name of the writer, by type of output and ending. The ending of an output selects its
format; if two endings match, the first one counts."""

PARQUET_ROWS = 65_536
"""Number of rows of a row group."""
_NEAR = 0.72
"""Similarity, of at most 1, of an ending that is a misspelt track."""

# Tabs and line ends in a cell are percent-encoded.
_ENCODED = {ord(character): f"%{ord(character):02X}" for character in "\t\n\r"}


def text_of(value: str | float | None) -> str:
    """Return the text of a cell: `.` for None, nine digits of a float, `true` and `false`."""
    if value is None:
        return "."
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.9g}" if isinstance(value, float) else str(value).translate(_ENCODED)


def words_of(facts: Mapping[str, Any]) -> str:
    """Return `name=value` pairs, with blanks in values as %20 and without empty values.

    >>> words_of({"seed": 1, "tags": "", "command": "a b"})
    'seed=1 command=a%20b'
    """
    shown = {key: str(value) for key, value in facts.items() if value not in (None, "")}
    return " ".join(f"{key}={'%20'.join(value.split())}" for key, value in shown.items())


@contextmanager
def write_tsv(path: Path, columns: Columns, settings: dict[str, Any]) -> Iterator[Write]:
    """Write settings as a comment line, column names, and a line per row; `-` is stdout."""
    opened = nullcontext(sys.stdout) if str(path) == "-" else path.open("w", encoding="utf-8")
    with opened as sink:
        sink.write(f"# {json.dumps(settings)}\n" + "\t".join(columns) + "\n")

        def write(row: Sequence[Any]) -> None:
            sink.write("\t".join(map(text_of, row)) + "\n")

        yield write


@contextmanager
def write_json(path: Path, columns: Columns, settings: dict[str, Any]) -> Iterator[Write]:
    """Write one object with the settings, and the rows as a list of objects, one per line."""
    with path.open("w", encoding="utf-8") as sink:
        sink.write(f'{{"settings": {json.dumps(settings)}, "rows": [')
        between = "\n"

        def write(row: Sequence[Any]) -> None:
            nonlocal between
            sink.write(between + json.dumps(dict(zip(columns, row, strict=True)), allow_nan=False))
            between = ",\n"

        yield write
        sink.write("\n]}\n")


@contextmanager
def write_parquet(path: Path, columns: Columns, settings: dict[str, Any]) -> Iterator[Write]:
    """Write row groups, with the settings in the schema metadata under `carbon`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    schema = pa.schema(
        [(name, kinds[kind]) for name, kind in columns.items()],
        metadata={"carbon": json.dumps(settings)},
    )
    rows: list[Sequence[Any]] = []
    with pq.ParquetWriter(path, schema) as sink:

        def flush() -> None:
            values = zip(*rows, strict=True) if rows else [[]] * len(schema)
            sink.write_table(pa.table(list(map(list, values)), schema=schema))
            rows.clear()

        def write(row: Sequence[Any]) -> None:
            rows.append(row)
            if len(rows) >= PARQUET_ROWS:
                flush()

        yield write
        flush()


def any_of(endings: Iterable[str]) -> str:
    """Return choices in words, such as `.tsv, .json or .parquet`."""
    *first, last = endings
    return f"{', '.join(first)} or {last}" if first else last


def check_ending(output: str | Path, kind: str) -> str:
    """Return the ending of an output, which selects its format, without importing a writer.

    Args:
        output: path to write.
        kind: type of output, a key of `FORMATS`.

    Raises:
        UserError: no format for that type has the output's ending, or the ending is nearly the name
            of a track, such as `.log_p.bw`.
    """
    for ending in FORMATS[kind]:
        if str(output).endswith(ending):
            _check_track(output, ending, kind)
            return ending
    raise UserError(f"{output}: end the output with one of {', '.join(FORMATS[kind])}")


def _check_track(output: str | Path, ending: str, kind: str) -> None:
    """Raise UserError if a shorter ending would write another track than the output names."""
    longer = [each for each in FORMATS[kind] if each.endswith(ending) and each != ending]
    near = get_close_matches("".join(Path(output).suffixes[-2:]), longer, 1, _NEAR)
    if near:
        raise UserError(f"{output}: names no track; did you mean {near[0]}?")


def chosen_by_ending(output: str | Path, kind: str) -> Any:
    """Import and return the writer for an output's ending.

    Raises:
        UserError: no format for that type has the output's ending.
    """
    module, _, name = FORMATS[kind][check_ending(output, kind)].partition(":")
    return attrgetter(name)(import_module(module))
