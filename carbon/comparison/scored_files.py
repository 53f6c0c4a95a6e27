"""What `carbon variants` has written, read back: a function a format, all with one result."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import compute, csv

from carbon.errors import UserError
from carbon.genome.streams import BROKEN_GZIP, open_text
from carbon.genome.vcf_lines import holds_variants, variant_lines
from carbon.io.files import why_no_file

KEY = {
    "contig": pa.string(), "position": pa.int64(), "id": pa.string(),
    "ref": pa.string(), "alt": pa.string(),
}  # fmt: skip
"""What tells an allele from all others of a VCF; the position is that of the VCF, from 1."""

VALUES = {
    "delta": pa.float64(),
    "reason": pa.string(),
    "gene": pa.string(),
    "consequence": pa.string(),
    "percentile": pa.float64(),
    "scored_as": pa.string(),
    "percentile_of": pa.string(),
}
"""What is read of it; a file need not have more than `delta`, and may have other columns."""

SCHEMA = pa.schema({**KEY, **VALUES})
_SETTINGS_LINE = "##carbon_variants="
_NAMES = [*KEY, "delta"]  # that a table of scores cannot be without


class ScoredFile(NamedTuple):
    """An output of `carbon variants`.

    Attributes:
        path: of the file.
        settings: of the run that wrote it, from its header.
        alleles: a row an ALT, in the order of the file, with the columns of `SCHEMA`; null is what
            the file does not have. Deltas are in nats.
    """

    path: Path
    settings: dict[str, Any]
    alleles: pa.Table


class _Raw(NamedTuple):
    """What a reader of one format found: settings, the names of all columns, and the rows."""

    settings: Any
    names: list[str]
    alleles: pa.Table


def _vcf(path: Path) -> _Raw:
    settings, line = None, "\n"
    rows: list[tuple[Any, ...]] = []
    for number, raw in enumerate(variant_lines(path), start=1):
        line = raw.decode("utf-8-sig")
        if line.startswith(_SETTINGS_LINE):
            settings = json.loads(line.removeprefix(_SETTINGS_LINE))
        elif not line.startswith("#") and line.strip():
            try:
                rows += _alleles(line.rstrip("\r\n"))
            except (ValueError, IndexError):
                raise UserError(f"{path} line {number}: is no record of a scored VCF") from None
    _check_end(path, line[-1:])
    columns = zip(*rows, strict=True) if rows else [()] * len(SCHEMA)
    arrays = map(pa.array, map(list, columns), SCHEMA.types)
    return _Raw(settings, SCHEMA.names, pa.table(list(arrays), schema=SCHEMA))


def _alleles(line: str) -> Iterator[tuple[Any, ...]]:
    """Yield a row of `SCHEMA` for each ALT of a record."""
    contig, position, name, ref, alts, _, _, info = line.split("\t", 8)[:8]
    if alts == ".":
        return
    each = alts.split(",")
    parts = dict(part.split("=", 1) for part in info.split(";") if part.startswith("CARBON_"))
    found = [
        [_cell(text, kind) for text in parts[key].split(",")]
        if key in parts
        else [None] * len(each)
        for key, kind in ((f"CARBON_{value.upper()}", kind) for value, kind in VALUES.items())
    ]
    for alt, *values in zip(each, *found, strict=True):
        yield contig, int(position), name, ref, alt, *values


def _cell(text: str, kind: pa.DataType) -> str | float | None:
    if text == ".":
        return None
    return float(text) if kind == pa.float64() else unquote(text)


def _tsv(path: Path) -> _Raw:
    with open_text(path) as lines:
        first, names = next(lines, ""), next(lines, "").rstrip("\r\n").split("\t")
    settings = json.loads(first[1:]) if first.startswith("# {") else None
    if not settings or not set(_NAMES) <= set(names):
        return _Raw(settings, names, SCHEMA.empty_table())
    with path.open("rb") as source:
        source.seek(-1, 2)
        _check_end(path, source.read().decode(errors="replace"))
    alleles = csv.read_csv(
        path,
        csv.ReadOptions(skip_rows=1, use_threads=False),
        csv.ParseOptions(delimiter="\t", quote_char=False),
        csv.ConvertOptions(
            include_columns=SCHEMA.names,
            include_missing_columns=True,
            column_types=SCHEMA,
            null_values=["."],
            strings_can_be_null=True,
        ),
    )
    return _Raw(settings, names, alleles)


def _json(path: Path) -> _Raw:
    with open_text(path) as lines:
        whole = json.loads("".join(lines))
    rows = whole["rows"]
    names = list(rows[0]) if rows else SCHEMA.names
    return _Raw(whole["settings"], names, pa.Table.from_pylist(rows, schema=SCHEMA))


def _parquet(path: Path) -> _Raw:
    schema = pq.read_schema(path)
    settings = json.loads((schema.metadata or {}).get(b"carbon", b"null"))
    wanted = [name for name in SCHEMA.names if name in schema.names]
    table = pq.read_table(path, columns=wanted, use_threads=False)
    for name in SCHEMA.names:
        if name not in wanted:
            table = table.append_column(name, pa.nulls(len(table), SCHEMA.field(name).type))
    return _Raw(settings, schema.names, table)


_READERS: dict[str, Callable[[Path], _Raw]] = {
    ".vcf": _vcf, ".vcf.gz": _vcf, ".tsv": _tsv, ".json": _json, ".parquet": _parquet
}  # fmt: skip


def read_scored_file(path: Path) -> ScoredFile:
    """Read an output of `carbon variants`, of any of its formats.

    Raises:
        UserError: there is no such file, it is cut off, or of something else.
    """
    if not path.is_file():
        raise UserError(f"{path}: {why_no_file(path)}; give an output of `carbon variants`")
    reader = _reader_of(path)
    try:
        raw = reader(path)
    except UserError:
        raise
    except BROKEN_GZIP as error:
        raise UserError(f"{path}: is broken or cut off ({error}); score the VCF again") from None
    except (ValueError, LookupError, TypeError, AttributeError, pa.ArrowException) as error:
        wrong = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"{path}: cannot be read as an output of `carbon variants` ({wrong}); is it whole?"
        ) from None
    return ScoredFile(path, *_checked(path, raw))


def _reader_of(path: Path) -> Callable[[Path], _Raw]:
    if holds_variants(path):
        return _vcf
    for ending, reader in _READERS.items():
        if path.name.endswith(ending):
            return reader
    raise UserError(f"{path}: is no output of `carbon variants`: {', '.join(_READERS)}")


def _check_end(path: Path, last: str) -> None:
    if last != "\n":
        raise UserError(f"{path}: its last line has no end: is it cut off? score the VCF again")


def _checked(path: Path, raw: _Raw) -> tuple[dict[str, Any], pa.Table]:
    """Return settings and rows whose key has no null.

    Raises:
        UserError: the file is of something else than `carbon variants`.
    """
    missing = [f"no column '{name}'" for name in _NAMES if name not in raw.names]
    if not isinstance(raw.settings, dict) or "delta" not in raw.settings:
        missing = ["no settings of a run"]
    if missing:
        raise UserError(
            f"{path}: is not of `carbon variants`: it has {missing[0]}; score a VCF with it"
        )
    alleles = raw.alleles.select(SCHEMA.names).cast(SCHEMA)
    for number, name in enumerate(KEY):
        if name != "position":  # an id of `.` is no missing one
            column = compute.fill_null(alleles[name], ".")
            alleles = alleles.set_column(number, name, column)
    if not np.isfinite(alleles["delta"].drop_null().to_numpy()).all():
        raise UserError(f"{path}: has a delta that is not a finite number; score the VCF again")
    return raw.settings, alleles.combine_chunks()
