"""Join parts of a result that were computed separately, such as by region, into one file."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from carbon.errors import UserError
from carbon.io.files import atomic_file, check_no_input, output_path
from carbon.io.structured import JSON_OBJECT, open_parquet, parse_json, read_bytes
from carbon.io.tables import PARQUET_ROWS, chosen_by_ending

_OF_PART = "region"
"""Setting that may differ between parts."""
_COUNTS = frozenset(
    {
        *("records", "alleles", "alleles_scored", "alleles_not_scored", "alleles_normalised"),
        *("alleles_by_one_strand", "alleles_unsure", "sequences", "predictions", "without"),
        *("bases_without", "bases", "known_bases", "missing_bases", "tokens_read"),
        *("alleles_embedded", "alleles_masked"),
    }
)
_COUNTERS = frozenset(
    {"reasons", "percentiles_of", "records_left_out", "warnings", "alleles_without"}
)
_POOLED = "log_p_ref_by_position_in_kmer"
"""Number of bases, mean and SD by position."""
_OUTPUTS = frozenset({"output", "outputs"})
_INTERVAL = re.compile(r"(.+):([0-9,]+)-([0-9,]+)")
_Place = tuple[str, int]
"""Contig and position of a row."""


def join_parts(parts: Sequence[Path], output: Path) -> None:
    """Write the rows of all parts to one file, in their order, or the sum of their summaries.

    Args:
        parts: `.tsv` or `.parquet` tables, or `.json` summaries, with the same settings.
        output: file with the same ending.

    Raises:
        UserError: a part is missing, named twice, or has another format or other settings; or the
            regions of parts overlap or are not in order.
    """
    join = chosen_by_ending(output, "joined parts")
    output_path(output)
    check_no_input(output, *parts)
    for number, part in enumerate(parts):
        if part.suffix != output.suffix:
            raise UserError(f"{part}: give parts that end in {output.suffix}, as the output does")
        if part in parts[:number]:
            raise UserError(f"{part}: is named twice")
    with atomic_file(output) as temporary:
        join(parts, temporary)


def join_tsv(parts: Sequence[Path], output: Path) -> None:
    """Join tables whose first two lines are settings and column names."""
    heads = []
    for part in parts:
        with part.open(encoding="utf-8") as source:
            heads.append((source.readline(), source.readline()))
    _check_columns(parts, [columns for _, columns in heads])
    settings = _joined_settings(parts, [line.removeprefix("#") for line, _ in heads])
    with output.open("w", encoding="utf-8") as sink:
        sink.write(f"# {json.dumps(settings)}\n{heads[0][1]}")
        order = _Order(heads[0][1].split("\t"))
        for part in parts:
            with part.open(encoding="utf-8") as source:
                source.readline()
                source.readline()
                first = line = ""
                for line in source:
                    if not line.endswith("\n"):
                        raise UserError(f"{part}: is cut off; compute it again")
                    first = first or line
                    sink.write(line)
            if first:
                order.add(part, first.split("\t"), line.split("\t"))


def join_parquet(parts: Sequence[Path], output: Path) -> None:
    """Join tables with settings in the schema metadata, with row groups as in a single run."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = [open_parquet(part, {}, remedy="compute it again") for part in parts]
    schemas = [file.schema_arrow for file in files]
    _check_columns(parts, [schema.remove_metadata() for schema in schemas])
    texts = [(schema.metadata or {}).get(b"carbon", b"") for schema in schemas]
    settings = json.dumps(_joined_settings(parts, texts))
    schema = schemas[0].with_metadata({**(schemas[0].metadata or {}), b"carbon": settings})
    waiting = schema.empty_table()
    order = _Order(schema.names)
    with pq.ParquetWriter(output, schema) as sink:
        for part, file in zip(parts, files, strict=True):
            ends: list[dict[str, Any]] = []
            for batch in file.iter_batches(batch_size=PARQUET_ROWS):
                table = pa.Table.from_batches([batch]).cast(schema)
                ends += table.take([0, len(table) - 1]).to_pylist()
                waiting = pa.concat_tables([waiting, table]).combine_chunks()
                if waiting.num_rows >= PARQUET_ROWS:
                    sink.write_table(waiting.slice(0, PARQUET_ROWS))
                    waiting = waiting.slice(PARQUET_ROWS).combine_chunks()
            if ends:
                order.add(part, list(ends[0].values()), list(ends[-1].values()))
        sink.write_table(waiting)


def add_summaries(parts: Sequence[Path], output: Path) -> None:
    """Join summaries: counts are added, means and SDs pooled; other values must be equal."""
    summaries = [_object(part, read_bytes(part)) for part in parts]
    _check_regions(parts, [summary.get(_OF_PART) for summary in summaries])
    joined = summaries[0]
    for part, summary in zip(parts[1:], summaries[1:], strict=True):
        if set(summary) != set(joined):
            names = ", ".join(sorted(set(summary) ^ set(joined)))
            raise UserError(f"{part}: differs from {parts[0]} in: {names}")
        joined = {name: _added(part, name, joined[name], summary[name]) for name in joined}
    output.write_text(f"{json.dumps(joined)}\n", encoding="utf-8")


def _added(part: Path, name: str, before: Any, value: Any) -> Any:
    if name in _COUNTS:
        known = [number for number in (before, value) if number is not None]
        return sum(known) if known else None
    if name in _COUNTERS:
        names = sorted({*before, *value})
        return {each: before.get(each, 0) + value.get(each, 0) for each in names}
    if name == _POOLED:
        return _pooled(before, value)
    if name in _OUTPUTS and not set(_listed(before)).isdisjoint(_listed(value)):
        raise UserError(f"{part}: counts the same output as a part before it: {value}")
    if name in _OUTPUTS or (name == _OF_PART and before != value):
        return [*_listed(before), *_listed(value)]
    if before != value:
        raise UserError(f"{part}: differs from the parts before it in: {name}")
    return before


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _pooled(*parts: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Return bases, mean and SD of all parts together, by position; None without bases."""
    columns = [zip(part["bases"], part["mean"], part["sd"], strict=True) for part in parts]
    pooled = [_pooled_position(of_parts) for of_parts in zip(*columns, strict=True)]
    bases, means, deviations = zip(*pooled, strict=True)
    return {"bases": list(bases), "mean": list(means), "sd": list(deviations)}


def _pooled_position(
    parts: Sequence[tuple[int, float | None, float | None]],
) -> tuple[int, float | None, float | None]:
    known = [(n, mean, sd) for n, mean, sd in parts if mean is not None and sd is not None]
    total = sum(n for n, _, _ in known)
    if not total:
        return 0, None, None
    mean = sum(n * of_part for n, of_part, _ in known) / total
    # The variance within parts and that between them.
    variance = sum(n * (sd**2 + (of_part - mean) ** 2) for n, of_part, sd in known) / total
    return total, mean, math.sqrt(variance)


class _Order:
    """Checks that the rows of each part follow those of the parts before it."""

    def __init__(self, columns: Sequence[str]) -> None:
        """Check nothing unless the first columns are contig and position."""
        self._has_places = list(columns[:2]) == ["contig", "position"]
        self._last: _Place | None = None
        self._contigs: set[str] = set()

    def add(self, part: Path, first: Sequence[Any], last: Sequence[Any]) -> None:
        """Add a part with its first and last row.

        Raises:
            UserError: it does not follow the parts before it.
        """
        if not self._has_places:
            return
        (contig, position), end = ((row[0], int(row[1])) for row in (first, last))
        is_back = contig in self._contigs
        if self._last and self._last[0] == contig:
            is_back = position < self._last[1]
        if is_back:
            raise UserError(
                f"{part}: begins at {contig}:{position}, which is not after the parts before it; "
                "give each region once, in the order of the reference"
            )
        self._last = end
        self._contigs |= {contig, end[0]}


def _check_regions(parts: Sequence[Path], regions: Sequence[str | list[str] | None]) -> None:
    """Raise UserError if the regions of two parts overlap; a BED does not state its regions."""
    earlier: list[tuple[Path, str, str, float, float]] = []
    for part, own in zip(parts, regions, strict=True):
        texts = ", ".join(_listed(own or [])).split(", ")
        stated = [text for text in texts if text and not text.endswith((".bed", ".bed.gz"))]
        spans = [(part, text, *_span(text)) for text in stated]
        for _, text, contig, start, end in spans:
            for other, of_other, contig_of_other, first, last in earlier:
                if contig == contig_of_other and start <= last and first <= end:
                    raise UserError(
                        f"{part}: its region {text} overlaps {of_other} of {other}; give each "
                        "region once"
                    )
        earlier += spans


def _span(region: str) -> tuple[str, float, float]:
    """Return the contig, and the first and last base of a region.

    >>> _span("chr1:1-1,000"), _span("chrM")
    (('chr1', 1, 1000), ('chrM', 1, inf))
    """
    if match := _INTERVAL.fullmatch(region):
        contig, first, last = match.groups()
        return contig, int(first.replace(",", "")), int(last.replace(",", ""))
    return region, 1, math.inf


def _check_columns(parts: Sequence[Path], columns: Sequence[Any]) -> None:
    for part, own in zip(parts, columns, strict=True):
        if own != columns[0]:
            raise UserError(f"{part}: has other columns than {parts[0]}")


def _joined_settings(parts: Sequence[Path], texts: Sequence[str | bytes]) -> Mapping[str, Any]:
    """Return the common settings of all parts, with a list of their regions."""
    all_settings = [_object(part, text) for part, text in zip(parts, texts, strict=True)]
    first = {name: value for name, value in all_settings[0].items() if name != _OF_PART}
    for part, settings in zip(parts, all_settings, strict=True):
        other = {name: value for name, value in settings.items() if name != _OF_PART}
        names = sorted(n for n in {*first, *other} if first.get(n) != other.get(n))
        if names:
            raise UserError(f"{part}: differs from {parts[0]} in: {', '.join(names)}")
    _check_regions(parts, [settings.get(_OF_PART) for settings in all_settings])
    regions = list(dict.fromkeys(s[_OF_PART] for s in all_settings if _OF_PART in s))
    joined = dict(all_settings[0])
    if len(regions) > 1:
        joined[_OF_PART] = ", ".join(regions)
    return joined


def _object(part: Path, text: str | bytes) -> dict[str, Any]:
    try:
        content = parse_json(text, str(part), JSON_OBJECT)
    except UserError:
        content = {"rows": None}
    if "rows" in content:
        raise UserError(f"{part}: is not a table or summary of Carbon that can be joined")
    return content
