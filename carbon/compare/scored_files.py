"""What `carbon variants` has written, read back: a function a format, all with one result."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import compute, csv

from carbon.errors import UserError
from carbon.genome import Variant
from carbon.genome.interval import allele_key
from carbon.genome.sequences import BROKEN_GZIP, open_text
from carbon.genome.vcf import holds_variants, variant_lines
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


_PLACE = ("contig", "position", "ref", "alt")
Rows = NDArray[np.int64]
"""Numbers of rows of a file's alleles, from 0."""


class Joined(NamedTuple):
    """Alleles of both files, and of either alone.

    Attributes:
        in_a: rows of the first file that the second has too, rising.
        in_b: the same alleles in the second, so of the same length.
        only_in_a: rows of the first that the second has not, rising.
        only_in_b: rows of the second that the first has not, rising.
    """

    in_a: Rows
    in_b: Rows
    only_in_a: Rows
    only_in_b: Rows


def join_alleles(a: pa.Table, b: pa.Table) -> Joined:
    """Find each allele of one table in the other; neither has an allele twice, nor need be sorted.

    Alleles are looked for as they are written, and what is left then by id and the trimmed and
    left-aligned form, where that is unique among what is left of each table.

    Args:
        a: with the columns of `KEY` and `scored_as`.
        b: likewise.
    """
    written = _joined_as_written(a, b)
    form_a, form_b = _forms(a, written.only_in_a), _forms(b, written.only_in_b)
    more_a = np.array([row for form, row in form_a.items() if form in form_b], np.int64)
    more_b = np.array([form_b[form] for form in form_a if form in form_b], np.int64)
    in_a = np.concatenate([written.in_a, more_a])
    order = np.argsort(in_a)
    return Joined(
        in_a[order],
        np.concatenate([written.in_b, more_b])[order],
        np.setdiff1d(written.only_in_a, more_a),
        np.setdiff1d(written.only_in_b, more_b),
    )


def _forms(alleles: pa.Table, rows: Rows) -> dict[tuple[str, str], int]:
    """Return the row of each allele by its id and its form, without forms that come twice."""
    some = alleles.take(rows).to_pylist()
    forms = [
        (each["id"], each["scored_as"] or allele_key(*(each[n] for n in _PLACE))) for each in some
    ]
    times = Counter(forms)
    return {form: row for form, row in zip(forms, rows.tolist(), strict=True) if times[form] == 1}


def _joined_as_written(a: pa.Table, b: pa.Table) -> Joined:
    joined = _numbered(a, "a").join(_numbered(b, "b"), keys=list(KEY), join_type="full outer")
    rows_a, rows_b = joined["a"], joined["b"]
    in_both = joined.filter(compute.and_(rows_a.is_valid(), rows_b.is_valid())).sort_by("a")
    return Joined(
        in_both["a"].to_numpy(),
        in_both["b"].to_numpy(),
        np.sort(rows_a.filter(rows_b.is_null()).to_numpy()),
        np.sort(rows_b.filter(rows_a.is_null()).to_numpy()),
    )


def _numbered(alleles: pa.Table, name: str) -> pa.Table:
    return alleles.select(list(KEY)).append_column(name, pa.array(np.arange(len(alleles))))


def check_single(scored: ScoredFile) -> None:
    """Raise UserError if an allele stands in a file more than once, or there are none."""
    if not len(scored.alleles):
        raise UserError(f"{scored.path}: has no alleles; nothing to compare")
    numbered = _numbered(scored.alleles, "row")
    groups = numbered.group_by(list(KEY)).aggregate([("row", "min"), ("row", "count")])
    repeated = groups.filter(compute.greater(groups["row_count"], 1)).sort_by("row_min")
    if len(repeated):
        raise UserError(
            f"{scored.path}: alleles that stand there more than once: {len(repeated)}, first "
            f"{allele_text(repeated, 0)}; score a VCF without duplicates (`bcftools norm -d exact`)"
        )


def check_one_vcf(a: ScoredFile, b: ScoredFile, joined: Joined, *, common: bool) -> None:
    """Raise UserError if two files are of different VCFs, and that is not to be passed over.

    Args:
        a: the first file.
        b: the second.
        joined: their alleles.
        common: alleles of one file alone are passed over, unless there are no others.
    """
    first = [
        f"{allele_text(scored.alleles, int(rows[0]))} ({scored.path})"
        for scored, rows in ((a, joined.only_in_a), (b, joined.only_in_b))
        if len(rows)
    ]
    if not len(joined.in_a):
        raise UserError(
            f"{a.path} and {b.path}: have no allele in common; first {' and '.join(first)}: are "
            "they of one VCF, with one way to name its contigs?"
        )
    if first and not common:
        raise UserError(
            f"{a.path} and {b.path}: are of different VCFs; alleles of the first alone: "
            f"{len(joined.only_in_a)}, of the second alone: {len(joined.only_in_b)}; first "
            f"{' and '.join(first)} (--common compares the {len(joined.in_a)} of both)"
        )


def allele_text(alleles: pa.Table, row: int) -> str:
    """Return an allele as messages have it: `chr1:10 A>T (rs1)`."""
    key: dict[str, Any] = alleles.select(list(KEY)).slice(row, 1).to_pylist()[0]
    place = Variant(key["contig"], key["position"] - 1, key["ref"], key["alt"]).to_text()
    return place if key["id"] == "." else f"{place} ({key['id']})"


Labels = NDArray[np.object_]
"""The group of each allele, None of those that are in none."""

KINDS = ("SNV", "MNV", "insertion", "deletion")
_K = 6  # bases of a token: an indel of as many, or of twice as many, moves no 6-mer behind it


def kinds_of(alleles: pa.Table) -> Labels:
    """Return the kind of each allele; an SNV that is padded with shared bases is an SNV."""
    ref, added = _lengths(alleles)
    is_snv = ref == 1
    replaced = np.flatnonzero((added == 0) & ~is_snv)
    is_snv[replaced] = _has_one_change(alleles.take(replaced))
    conditions = [added > 0, added < 0, is_snv]
    return np.select(conditions, ["insertion", "deletion", "SNV"], "MNV").astype(object)


def _has_one_change(alleles: pa.Table) -> NDArray[np.bool_]:
    """Tell of alleles that are as long as REF whether they differ from it in one base."""
    pairs = zip(alleles["ref"].to_pylist(), alleles["alt"].to_pylist(), strict=True)
    changes = [sum(map(str.__ne__, ref.upper(), alt.upper())) for ref, alt in pairs]
    return np.array([number == 1 for number in changes], dtype=np.bool_)


def lengths_of(alleles: pa.Table) -> Labels:
    """Return of each indel whether it moves the 6-mers that follow it."""
    _, added = _lengths(alleles)
    names: Labels = np.where(
        added % _K == 0, "indel of 6, 12, ... bp", "indel of another length"
    ).astype(object)
    names[added == 0] = None
    return names


def consequences_of(alleles: pa.Table) -> Labels:
    """Return the consequence of each allele."""
    found: Labels = alleles["consequence"].to_numpy(zero_copy_only=False)
    return found


def _lengths(alleles: pa.Table) -> tuple[Any, Any]:
    """Return of each allele the bases of REF, and how many more ALT has."""
    ref, alt = (compute.utf8_length(alleles[name]).to_numpy() for name in ("ref", "alt"))
    return ref, alt - ref


GROUPINGS: dict[str, Callable[[pa.Table], Labels]] = {
    "by_kind": kinds_of,
    "by_length": lengths_of,
    "by_consequence": consequences_of,
}


def members(labels: Labels) -> dict[str, NDArray[np.bool_]]:
    """Return each group by name, the largest first, and which alleles are in it."""
    names, counts = np.unique(labels[labels != None].astype(str), return_counts=True)  # noqa: E711
    return {str(names[i]): labels == names[i] for i in np.argsort(-counts, kind="stable")}
