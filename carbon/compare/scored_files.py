"""Read outputs of `carbon variants` in any format, join their alleles, and group them."""

import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv
from pydantic import ConfigDict, NonNegativeInt
from typing_extensions import TypedDict

from carbon.errors import UserError
from carbon.genome import Variant
from carbon.genome.interval import allele_key
from carbon.genome.sequences import BROKEN_GZIP, open_text
from carbon.genome.vcf import holds_variants, text_lines
from carbon.io.files import why_no_file
from carbon.io.structured import JSON_OBJECT, open_parquet, parse_json, read_bytes

KEY = {
    "contig": pa.string(), "position": pa.int64(), "id": pa.string(),
    "ref": pa.string(), "alt": pa.string(),
}  # fmt: skip
"""Identify an allele in a VCF; the position is from 1."""

VALUES = {
    "delta": pa.float64(),
    "reason": pa.string(),
    "gene": pa.string(),
    "consequence": pa.string(),
    "percentile": pa.float64(),
    "scored_as": pa.string(),
    "percentile_of": pa.string(),
}
"""Values of an allele; only `delta` is required, and other columns are ignored."""

SCHEMA = pa.schema({**KEY, **VALUES})
_SETTINGS_LINE = "##carbon_variants="
_REQUIRED = [*KEY, "delta"]
_REMEDY = "score the VCF again"
_MOST_JSON_BYTES = 2**30
"""Several million alleles, which are parsed as a whole."""
_BROKEN = (ValueError, LookupError, TypeError, AttributeError, OverflowError, pa.ArrowException)
_T = TypeVar("_T")


class _Row(TypedDict, total=False):
    """An allele in JSON: the numbers, which pyarrow would round."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    position: NonNegativeInt
    delta: float | None
    percentile: float | None


class _Whole(TypedDict):
    """Output in JSON."""

    settings: dict[str, Any]
    rows: list[_Row]


class ScoredFile(NamedTuple):
    """An output of `carbon variants`.

    Attributes:
        path: of the file.
        settings: of the run that wrote it, from its header.
        alleles: a row for each ALT, in the order of the file, with the columns of `SCHEMA`; missing
            values are NaN. Deltas are in nats.
    """

    path: Path
    settings: dict[str, Any]
    alleles: pd.DataFrame


Contents = tuple[dict[str, Any] | None, pa.Table]
"""Settings of the run, if the file has them, and the columns of `SCHEMA` that it has."""


def read_scored_file(path: Path) -> ScoredFile:
    """Read an output of `carbon variants` in any format.

    Raises:
        UserError: the file does not exist, is truncated, or has other contents.
    """
    if not path.is_file():
        raise UserError(f"{path}: {why_no_file(path)}; give an output of `carbon variants`")
    try:
        return _checked(path, *_reader_of(path)(path))
    except UserError:
        raise
    except BROKEN_GZIP as error:
        raise UserError(f"{path}: is broken or cut off ({error}); score the VCF again") from None
    except _BROKEN as error:
        wrong = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"{path}: cannot be read as an output of `carbon variants` ({wrong}); is it whole?"
        ) from None


def _reader_of(path: Path) -> Callable[[Path], Contents]:
    if holds_variants(path):
        return _vcf
    for ending, reader in _READERS.items():
        if path.name.endswith(ending):
            return reader
    raise UserError(f"{path}: is not an output of `carbon variants`: {', '.join(_READERS)}")


def _checked(path: Path, settings: dict[str, Any] | None, table: pa.Table) -> ScoredFile:
    """Return a file with all columns of `SCHEMA`.

    Raises:
        UserError: the file is not an output of `carbon variants`.
    """
    missing = [f"no column '{name}'" for name in _REQUIRED if name not in table.column_names]
    if settings is None or "delta" not in settings or type(settings.get("k")) is not int:
        missing = ["no settings of a run"]
    if settings is None or missing:
        raise UserError(
            f"{path}: is not of `carbon variants`: it has {missing[0]}; score a VCF with it"
        )
    alleles = pa.table([_column(table, field) for field in SCHEMA], schema=SCHEMA)
    if absent := [name for name in KEY if alleles[name].null_count]:
        raise UserError(f"{path}: has an allele without {absent[0]}; score the VCF again")
    if (alleles["position"].to_numpy() < 0).any():
        raise UserError(f"{path}: has an allele at a negative position; score the VCF again")
    if not np.isfinite(alleles["delta"].drop_null().to_numpy()).all():
        raise UserError(f"{path}: has a delta that is not a finite number; score the VCF again")
    return ScoredFile(path, settings, alleles.to_pandas())


def _column(table: pa.Table, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    """Return a column of a table; an absent optional column is null."""
    if field.name not in table.column_names:
        return pa.nulls(len(table), field.type)
    column = table[field.name].cast(field.type)
    return column.fill_null(".") if field.name == "id" else column  # an id of `.` is not missing


def _vcf(path: Path) -> Contents:
    settings, line = None, "\n"
    rows: list[tuple[Any, ...]] = []
    for number, line in text_lines(path):
        if line.startswith(_SETTINGS_LINE):
            settings = _parsed(line.removeprefix(_SETTINGS_LINE), path, JSON_OBJECT)
        elif not line.startswith(("##", "#CHROM")):  # "#" may begin the name of a contig
            try:
                rows += _alleles(line.rstrip("\r\n"))
            except (ValueError, IndexError):
                raise UserError(f"{path} line {number}: is not a record of a scored VCF") from None
    _check_end(path, line)
    columns = zip(*rows, strict=True) if rows else [()] * len(SCHEMA)
    return settings, pa.table(list(map(list, columns)), schema=SCHEMA)


def _alleles(line: str) -> Iterator[tuple[Any, ...]]:
    """Yield a row of `SCHEMA` for each ALT of a record."""
    contig, position, name, ref, alts, _, _, info = line.split("\t", 8)[:8]
    if alts == ".":
        return
    alleles = alts.split(",")
    parts = dict(part.split("=", 1) for part in info.split(";") if part.startswith("CARBON_"))
    columns = [
        [_cell(text, kind) for text in parts[key].split(",")]
        if key in parts
        else [None] * len(alleles)
        for key, kind in ((f"CARBON_{value.upper()}", kind) for value, kind in VALUES.items())
    ]
    for alt, *values in zip(alleles, *columns, strict=True):
        yield contig, int(position), name, ref, alt, *values


def _cell(text: str, kind: pa.DataType) -> str | float | None:
    if text == ".":
        return None
    return float(text) if kind == pa.float64() else unquote(text)


def _tsv(path: Path) -> Contents:
    with open_text(path) as lines:
        first, names = next(lines, ""), next(lines, "").rstrip("\r\n").split("\t")
    settings = _parsed(first[1:], path, JSON_OBJECT) if first.startswith("# {") else None
    known = _known(names)
    if not settings or not set(_REQUIRED) <= set(known):
        return settings, SCHEMA.empty_table().select(known)
    with path.open("rb") as source:
        source.seek(-1, os.SEEK_END)
        _check_end(path, source.read().decode(errors="replace"))
    return settings, csv.read_csv(
        path,
        csv.ReadOptions(skip_rows=1, use_threads=False),
        csv.ParseOptions(delimiter="\t", quote_char=False),
        csv.ConvertOptions(
            include_columns=known,
            column_types=SCHEMA,
            null_values=["."],
            strings_can_be_null=True,
        ),
    )


def _check_end(path: Path, last: str) -> None:
    if not last.endswith("\n"):
        raise UserError(f"{path}: its last line has no end: is it cut off? score the VCF again")


def _json(path: Path) -> Contents:
    content = read_bytes(path, _MOST_JSON_BYTES, remedy="score the VCF with --output x.tsv")
    whole = _parsed(content, path, _Whole)
    table = pa.Table.from_pylist(whole["rows"], schema=SCHEMA)
    return whole["settings"], table.select(_known(whole["rows"][0])) if len(table) else table


def _parquet(path: Path) -> Contents:
    parquet = open_parquet(path, {}, remedy=_REMEDY)
    schema = parquet.schema_arrow
    settings = _parsed((schema.metadata or {}).get(b"carbon", b"{}"), path, JSON_OBJECT)
    return settings, parquet.read(columns=_known(schema.names), use_threads=False)


def _known(names: Collection[str]) -> list[str]:
    return [name for name in SCHEMA.names if name in names]


def _parsed(text: str | bytes, path: Path, schema: type[_T]) -> _T:
    return parse_json(text, str(path), schema, remedy=_REMEDY)


_READERS: dict[str, Callable[[Path], Contents]] = {
    ".vcf": _vcf, ".vcf.gz": _vcf, ".tsv": _tsv, ".json": _json, ".parquet": _parquet
}  # fmt: skip


_PLACE = ("contig", "position", "ref", "alt")
Rows = NDArray[np.int64]
"""Row numbers of a file's alleles, from 0."""


class Joined(NamedTuple):
    """Alleles of both files, and alleles of only one.

    Attributes:
        in_a: rows of the first file that the second also has, ascending.
        in_b: rows of the same alleles in the second file.
        only_in_a: rows of the first file that the second lacks, ascending.
        only_in_b: rows of the second file that the first lacks, ascending.
    """

    in_a: Rows
    in_b: Rows
    only_in_a: Rows
    only_in_b: Rows


def join_alleles(a: pd.DataFrame, b: pd.DataFrame) -> Joined:
    """Match the alleles of two tables, each without duplicates, in any order.

    Matches alleles as written. Then matches the rest by id and normalised form, if that is unique
    in the rest of each table.

    Args:
        a: with the columns of `KEY` and `scored_as`.
        b: likewise.
    """
    same = _matches(_keys(a, "a"), _keys(b, "b"))
    rest_a, rest_b = _others(same["a"], a), _others(same["b"], b)
    forms = _matches(_forms(a.iloc[rest_a], rest_a, "a"), _forms(b.iloc[rest_b], rest_b, "b"))
    pairs = pd.concat([same, forms]).astype(np.int64).sort_values("a")
    in_a, in_b = pairs["a"].to_numpy(), pairs["b"].to_numpy()
    return Joined(in_a, in_b, _others(in_a, a), _others(in_b, b))


def _matches(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Return the row numbers `a` and `b` of rows with equal values in all other columns."""
    return a.merge(b, on=[name for name in a.columns if name != "a"])[["a", "b"]]


def _others(rows: "Rows | pd.Series[Any]", alleles: pd.DataFrame) -> Rows:
    """Return the numbers of all other rows, ascending."""
    return np.setdiff1d(np.arange(len(alleles)), rows)


def _keys(alleles: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the key of each allele, and its row number in a column of this name."""
    # Of object columns, because pandas 3.1 fails to merge empty string columns.
    return alleles[list(KEY)].astype(object).assign(**{name: range(len(alleles))})


def _forms(alleles: pd.DataFrame, rows: Rows, name: str) -> pd.DataFrame:
    """Return id, normalised form and row number of alleles whose form is unique."""
    written = [allele_key(*place) for place in zip(*(alleles[n] for n in _PLACE), strict=True)]
    scored_as = zip(alleles["scored_as"], written, strict=True)
    forms = pd.DataFrame({
        "id": alleles["id"].to_list(),
        "form": [form if isinstance(form, str) else key for form, key in scored_as],
        name: rows.tolist(),
    }, dtype=object)  # fmt: skip
    return forms.drop_duplicates(["id", "form"], keep=False)


def check_single(scored: ScoredFile) -> None:
    """Raise UserError if a file has an allele more than once, or no alleles."""
    alleles = scored.alleles
    if not len(alleles):
        raise UserError(f"{scored.path}: has no alleles; nothing to compare")
    repeated = alleles[alleles.duplicated(list(KEY), keep=False)].drop_duplicates(list(KEY))
    if len(repeated):
        raise UserError(
            f"{scored.path}: alleles that occur more than once: {len(repeated)}, first "
            f"{allele_text(repeated, 0)}; score a VCF without duplicates (`bcftools norm -d exact`)"
        )


def check_one_vcf(a: ScoredFile, b: ScoredFile, joined: Joined, *, common: bool) -> None:
    """Raise UserError if two files are of different VCFs.

    Args:
        a: the first file.
        b: the second.
        joined: their alleles.
        common: allow alleles that only one file has, if they share at least one.
    """
    first = [
        f"{allele_text(scored.alleles, int(rows[0]))} ({scored.path})"
        for scored, rows in ((a, joined.only_in_a), (b, joined.only_in_b))
        if len(rows)
    ]
    if not len(joined.in_a):
        raise UserError(
            f"{a.path} and {b.path}: have no allele in common; first {' and '.join(first)}: are "
            "they of one VCF, with the same contig names?"
        )
    if first and not common:
        raise UserError(
            f"{a.path} and {b.path}: are of different VCFs; alleles of the first alone: "
            f"{len(joined.only_in_a)}, of the second alone: {len(joined.only_in_b)}; first "
            f"{' and '.join(first)} (--common compares the {len(joined.in_a)} of both)"
        )


def allele_text(alleles: pd.DataFrame, row: int) -> str:
    """Return an allele for messages: `chr1:10 A>T (rs1)`."""
    key = alleles.iloc[row]
    place = Variant(key["contig"], int(key["position"]) - 1, key["ref"], key["alt"]).to_text()
    return place if key["id"] == "." else f"{place} ({key['id']})"


Labels = NDArray[np.object_]
"""The group of each allele; None or NaN for alleles without a group."""

KINDS = ("SNV", "MNV", "insertion", "deletion")


def kinds_of(alleles: pd.DataFrame) -> Labels:
    """Return the kind of each allele; an SNV padded with shared bases is an SNV."""
    added = _added_bp(alleles)
    pairs = zip(alleles["ref"], alleles["alt"], added, strict=True)
    is_snv = [
        not more and (len(ref) == 1 or sum(map(str.__ne__, ref.upper(), alt.upper())) == 1)
        for ref, alt, more in pairs
    ]
    conditions = [added > 0, added < 0, np.array(is_snv, dtype=np.bool_)]
    return np.select(conditions, ["insertion", "deletion", "SNV"], "MNV").astype(object)


def common_k(files: Iterable[ScoredFile]) -> int:
    """Return the least number of bases that is a multiple of the tokens of every file."""
    return math.lcm(*(scored.settings["k"] for scored in files))


def lengths_of(alleles: pd.DataFrame, k: int) -> Labels:
    """Return for each indel whether it shifts the k-mers that follow."""
    added = _added_bp(alleles)
    names: Labels = np.where(
        added % k == 0, f"indel of {k}, {2 * k}, ... bp", "indel of another length"
    ).astype(object)
    names[added == 0] = None
    return names


def consequences_of(alleles: pd.DataFrame) -> Labels:
    """Return the consequence of each allele."""
    labels: Labels = alleles["consequence"].to_numpy(dtype=object)
    return labels


def _added_bp(alleles: pd.DataFrame) -> NDArray[np.int64]:
    """Return the length of ALT minus the length of REF."""
    added_bp: NDArray[np.int64] = (alleles["alt"].str.len() - alleles["ref"].str.len()).to_numpy()
    return added_bp


GROUPINGS: dict[str, Callable[[pd.DataFrame, int], Labels]] = {
    "by_kind": lambda alleles, k: kinds_of(alleles),
    "by_length": lengths_of,
    "by_consequence": lambda alleles, k: consequences_of(alleles),
}
"""Functions from alleles, and the bases of a token, to labels."""


def members(labels: Labels) -> dict[str, NDArray[np.bool_]]:
    """Return a mask for each group by name, the largest group first."""
    counts = pd.Series(labels).value_counts().sort_index()
    names = counts.sort_values(ascending=False, kind="stable").index
    return {str(name): labels == name for name in names}
