"""Read labelled sequences of any format, with a location for each row."""

import difflib
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from carbon.errors import ConfigError, GenomeError, UserError, abridged
from carbon.finetune.config import FORMATS, DataConfig
from carbon.finetune.split import LabelledVariant
from carbon.genome import (
    Interval,
    Reference,
    Strand,
    Variant,
    VcfReader,
    contig_names,
    read_sequences,
    reverse_complement,
)
from carbon.genome.bed import bed_lines, bed_place
from carbon.genome.contig_names import prefix_hint, shown_names
from carbon.genome.normalize import normalize_variant
from carbon.genome.sequences import open_text
from carbon.genome.vcf import holds_variants, info_of
from carbon.inference.variants.windows import centered_pair
from carbon.io.files import why_no_file
from carbon.io.structured import open_parquet


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Examples as a file has them.

    Attributes:
        sequences: in the case of the file.
        labels: by name, one for each example: text, number, list (one value for each base) or None.
        names: None if the file has none.
        columns: further requested columns, as text, by name.
        contigs: contig of each sequence; None if sequences are not cut from a reference.
        where: maps a row, from 0, to its location for messages.
        notes: sentences on skipped records.
        variants: of a VCF, one for each example.
    """

    sequences: Sequence[str]
    labels: Mapping[str, Sequence[Any]]
    names: Sequence[str] | None
    columns: Mapping[str, Sequence[str]]
    contigs: Sequence[str] | None
    where: Callable[[int], str]
    notes: tuple[str, ...] = ()
    variants: Sequence[LabelledVariant] = ()

    def __len__(self) -> int:
        return len(self.sequences)


def find_column(name: str, columns: Collection[str], where: str, key: str) -> str:
    """Return a column's name.

    Raises:
        UserError: the column does not exist; the message has the closest name, or all names.
    """
    if name in columns:
        return name
    near = difflib.get_close_matches(name, columns, n=1)
    known = f"it has {', '.join(list(columns)[:12])}" if columns else "its header has none"
    shown = f"did you mean '{near[0]}'?" if near else known
    raise UserError(f"{where}: has no column {name!r} ({key}); {shown}")


def joined(rows_of_file: Mapping[str, Rows], column: str) -> Rows:
    """Return the rows of several files as one; a column names the file's key."""
    each, first = list(rows_of_file.values()), next(iter(rows_of_file.values()))
    ends = [0]
    for rows in each:
        ends.append(ends[-1] + len(rows))

    def where(row: int) -> str:
        which = next(i for i, end in enumerate(ends[1:]) if row < end)
        return each[which].where(row - ends[which])

    def listed(get: Callable[[Rows], Sequence[Any]]) -> list[Any]:
        return list(chain.from_iterable(get(rows) for rows in each))

    keys = list(chain.from_iterable([key] * len(rows) for key, rows in rows_of_file.items()))
    return replace(
        first,
        sequences=listed(lambda rows: rows.sequences),
        labels={name: listed(lambda rows, n=name: rows.labels[n]) for name in first.labels},  # type: ignore[misc]
        names=listed(lambda rows: rows.names or ()) if first.names is not None else None,
        columns={
            **{name: listed(lambda rows, n=name: rows.columns[n]) for name in first.columns},  # type: ignore[misc]
            column: keys,
        },
        contigs=listed(lambda rows: rows.contigs or ()) if first.contigs is not None else None,
        where=where,
        notes=tuple(chain.from_iterable(rows.notes for rows in each)),
        variants=listed(lambda rows: rows.variants),
    )


_BLOCK_BYTES = 2**26  # size of a text block, and the maximum length of a row
SPLIT_COLUMN = "split"
"""Column that names the split of a row, for `data.files` and the splits of `datasets`."""


def read_csv(path: str, config: DataConfig) -> Rows:
    """Read a comma-separated table."""
    return _read_text(path, ",", config)


def read_tsv(path: str, config: DataConfig) -> Rows:
    """Read a tab-separated table."""
    return _read_text(path, "\t", config)


def _read_text(path: str, between: str, config: DataConfig) -> Rows:
    first_line = 1 if config.header else 2
    return rows_of(text_table(path, between, config.header), path, config, first_line)


def read_parquet(path: str, config: DataConfig) -> Rows:
    """Read a Parquet file."""
    return rows_of(parquet_table(path), path, config)


def read_datasets(path: str, config: DataConfig) -> Rows:
    """Read a folder saved by `datasets`, or a hub dataset; its splits become a column."""
    return rows_of(_dataset_table(path, config), path, config)


def text_table(path: str, between: str, header: Sequence[str] = ()) -> pa.Table:
    """Read all columns of a CSV or TSV as text, plain or gzip.

    Args:
        path: the file.
        between: separator of cells.
        header: column names if the file has no header.

    Raises:
        UserError: the file is absent or broken, or has no header.
    """
    _check_file(path)
    with open(path, "rb") as start:
        packing = "gzip" if start.read(2) == b"\x1f\x8b" else None
    read = csv.ReadOptions(block_size=_BLOCK_BYTES, column_names=list(header) or None)
    parse = csv.ParseOptions(delimiter=between, quote_char=False if between == "\t" else '"')
    try:
        # The column types need the names in the header, so the file is opened twice.
        with pa.input_stream(path, compression=packing) as source:
            names = csv.open_csv(source, read, parse).schema.names
        with pa.input_stream(path, compression=packing) as source:
            convert = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
            table = csv.read_csv(source, read, parse, convert)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(
            f"{path}: not such a table: {_one_line(error)}; correct or convert it"
        ) from None
    return _checked_names(table, path)


def parquet_table(path: str) -> pa.Table:
    """Read a Parquet file.

    Raises:
        UserError: the file is absent, or not Parquet.
    """
    _check_file(path)
    parquet = open_parquet(path, {}, remedy="fetch it again")
    try:
        return _checked_names(parquet.read(), path)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path}: cannot be read: {_one_line(error)}; fetch it again") from None


def _dataset_table(path: str, config: DataConfig) -> pa.Table:
    try:
        import datasets
    except ImportError:
        raise UserError(f"{path}: needs the library datasets; pip install datasets") from None
    try:
        if Path(path).is_dir() and any(Path(path).glob("*.json")):
            data = datasets.load_from_disk(path)
        else:
            options = {"revision": config.revision or None}
            data = datasets.load_dataset(path, config.dataset or None, **options)
    except Exception as error:
        # The library raises dozens of errors for absent or invalid datasets.
        raise UserError(f"{path}: datasets cannot read it: {_one_line(error)}") from None
    if not isinstance(data, dict):
        return data.with_format("arrow")[:]
    tables = []
    for name, each in data.items():
        table = each.with_format("arrow")[:]
        if SPLIT_COLUMN not in table.column_names:
            table = table.append_column(SPLIT_COLUMN, pa.array([name] * len(table), pa.string()))
        tables.append(table)
    return pa.concat_tables(tables, promote_options="permissive")


def rows_of(table: pa.Table, path: str, config: DataConfig, first_line: int = 0) -> Rows:
    """Return the columns of a table that a configuration requests.

    Args:
        table: as read.
        path: for messages.
        config: column names.
        first_line: line of the first row in the file, from 1; 0 if rows have no line.
    """
    place = place_in(path, first_line)
    selected = _selected(table, path, config, place)
    num_others, table = len(table) - len(selected), table.take(selected)
    return Rows(
        sequences=text_column(table, config.sequence, path, "data.sequence"),
        labels={name: label_column(table, name, path) for name in config.labels},
        names=text_column(table, config.name, path, "data.name") if config.name else None,
        columns=split_columns(table, path, config),
        contigs=None,
        where=lambda row: place(int(selected[row])),
        notes=(f"{path}: data.keep and data.below skip {num_others} rows.",) if num_others else (),
    )


def _selected(
    table: pa.Table, path: str, config: DataConfig, place: Callable[[int], str]
) -> NDArray[np.int64]:
    """Return the numbers of the rows that `keep` and `below` select."""
    is_selected = np.ones(len(table), dtype=bool)
    for name, values in config.keep.items():
        column = table.column(find_column(name, table.column_names, path, "data.keep"))
        is_selected &= [text_of(value) in values for value in column.to_pylist()]
    for name, limit in config.below.items():
        texts = text_column(table, name, path, "data.below")
        numbers = [_number(text, config, name, place, row) for row, text in enumerate(texts)]
        is_selected &= np.array(numbers) < limit
    return np.flatnonzero(is_selected)


def _number(
    text: str, config: DataConfig, name: str, place: Callable[[int], str], row: int
) -> float:
    """Return a number; NaN, which is below nothing, for an unknown cell."""
    try:
        return float("nan") if text in config.unknown else float(text)
    except ValueError:
        raise UserError(
            f"{place(row)}: '{text[:40]}' in column '{name}' (data.below) is not a number; "
            "correct it"
        ) from None


def place_in(path: str, first_line: int) -> Callable[[int], str]:
    """Return a function from a row to its location: by line, or by number from 1."""
    if first_line:
        return lambda row: f"{path} line {row + first_line}"
    return lambda row: f"{path} row {row + 1}"


def split_columns(table: pa.Table, path: str, config: DataConfig) -> Mapping[str, Sequence[str]]:
    """Return the column that determines splits, if the rule uses one, as `text_of` its cells."""
    if not (name := config.split.column):
        return {}
    column = table.column(find_column(name, table.column_names, path, "data.split.column"))
    return {name: [text_of(value) for value in column.to_pylist()]}


def text_column(table: pa.Table, name: str, path: str, key: str) -> list[str]:
    """Return a column as text; null cells are empty."""
    column = table.column(find_column(name, table.column_names, path, key))
    return ["" if value is None else str(value) for value in column.to_pylist()]


def text_of(value: Any) -> str:
    """Return a cell's text: 1.0 as 1, booleans in lower case, None and NaN as an empty text."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def label_column(table: pa.Table, name: str, path: str) -> list[Any]:
    """Return a column of labels: text, numbers, lists or None."""
    values: list[Any] = table.column(
        find_column(name, table.column_names, path, "data.labels")
    ).to_pylist()
    return values


def _check_file(path: str) -> None:
    if not Path(path).is_file():
        raise UserError(f"{path}: {why_no_file(path)}; give a table")


def _checked_names(table: pa.Table, path: str) -> pa.Table:
    if odd := [name for name in table.column_names if not name.isprintable()]:
        raise UserError(
            f"{path}: the name of column {abridged(repr(odd[0]))} has line breaks, tabs or other "
            "characters that cannot be printed; rename it"
        )
    for name, count in Counter(table.column_names).most_common(1):
        if count > 1:
            raise UserError(f"{path}: column '{name}' occurs {count:,} times; keep one")
    return table


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def window_of(
    reference: Reference, contig: str, start: int, end: int, strand: Strand, window_bp: int
) -> str:
    """Return the bases of an interval, or `window_bp` bases around its middle, clipped to the
    contig.

    Raises:
        GenomeError: the interval lies outside of the reference.
    """
    bases = reference.fetch(_window_place(reference, Interval(contig, start, end), window_bp))
    return bases if strand == "+" else reverse_complement(bases)


def _window_place(reference: Reference, place: Interval, window_bp: int) -> Interval:
    """Return an interval, or `window_bp` bases around its middle, clipped to the contig."""
    if not window_bp:
        return place
    contig, start, end = place.contig, place.start, place.end
    reference.fetch(Interval(contig, end, end))  # raises unless the contig is long enough
    first = (start + end) // 2 - window_bp // 2
    last = min(first + window_bp, reference.contig_lengths_bp[contig])
    return Interval(contig, max(0, first), max(0, last))


def alleles_of(reference: Reference, variant: Variant, window_bp: int) -> tuple[str, str]:
    """Return the bases around a variant with REF and with ALT, `window_bp` each.

    The variant is trimmed and left-aligned first, so that the windows do not depend on how it is
    written. Both begin with the same half window upstream of the variant, and are shorter at a
    contig's end.
    """
    variant = normalize_variant(reference, variant)
    start = max(0, variant.position - window_bp // 2)
    ref_end = variant.position + len(variant.ref)
    length_bp = reference.contig_lengths_bp[variant.contig]
    before = reference.fetch(Interval(variant.contig, start, variant.position))
    last = min(length_bp, max(ref_end, start + window_bp + len(variant.ref)))
    after = reference.fetch(Interval(variant.contig, ref_end, last))
    ref, alt = ((before + bases + after)[:window_bp] for bases in (variant.ref, variant.alt))
    return ref, alt


def pair_of(reference: Reference, variant: Variant, window_bp: int, k: int) -> tuple[str, str]:
    """Return the windows with REF and with ALT that a model of both alleles reads.

    They are those of `carbon embed --vcf`, so that the k-mers after an insertion or deletion begin
    at the same reference bases with both alleles.
    """
    return centered_pair(reference, normalize_variant(reference, variant), "+", window_bp, k)


def fits_window(reference: Reference, variant: Variant, window_bp: int) -> bool:
    """Return whether half of a window holds the longer allele, trimmed and left-aligned."""
    plain = normalize_variant(reference, variant)
    return max(len(plain.ref), len(plain.alt)) <= window_bp // 2


def opened(path: str, reference: str, contigs: str) -> tuple[Reference, dict[str, str]]:
    """Return the reference of a file, and a mapping from its contig names to the reference's.

    Raises:
        UserError: no reference is named, or it does not exist.
    """
    if not reference:
        raise ConfigError(f"{path}: has intervals but no sequences; give data.reference, a FASTA")
    fasta = Reference(reference)
    return fasta, contig_names(contigs or None, fasta.contig_lengths_bp)


_STRAND_COLUMN = 5


def read_bed(path: str, config: DataConfig) -> Rows:
    """Read the intervals of a BED; those on the reverse strand as reverse complements.

    Columns are named by number, from 1, or by the first comment of the file. With `data.tracks`,
    labels are the values of bigWig files. Labels of every base in a column of the BED run along the
    strand, like the bases; those of a bigWig are reversed for a reverse strand.

    Raises:
        UserError: a line is not BED, lies outside of the reference, or lacks a column.
    """
    if not Path(path).is_file():
        raise UserError(f"{path}: {why_no_file(path)}; give a BED")
    label_names = () if config.tracks else config.labels
    tracks = {name: open_bigwig(config.at(path)) for name, path in config.tracks.items()}
    key_of = {
        **dict.fromkeys(label_names, "data.labels"),
        **({config.name: "data.name"} if config.name else {}),
        **({config.split.column: "data.split.column"} if config.split.column else {}),
    }
    reference, others = opened(path, config.reference, config.contigs)
    names_in = {name: _names_in(source, others) for name, source in tracks.items()}
    number_of: dict[str, int] = {}
    cells: dict[str, list[str]] = {name: [] for name in key_of}
    values: dict[str, list[Any]] = {name: [] for name in tracks}
    sequences, contigs, regions, places = [], [], [], []
    with reference:
        header = _bed_header(path)
        for where, columns in bed_lines(Path(path)):
            contig, start, end = bed_place(columns, where)
            contig = others.get(contig, contig)
            names = header or [str(i) for i in range(1, len(columns) + 1)]
            number_of = number_of or {
                name: names.index(_column(name, names, path, key)) for name, key in key_of.items()
            }
            for name, number in number_of.items():
                cells[name].append(_cell(columns, number, where))
            is_reverse = columns[_STRAND_COLUMN : _STRAND_COLUMN + 1] == ["-"]
            strand: Strand = "-" if is_reverse else "+"
            try:
                bases = window_of(reference, contig, start, end, strand, config.window_bp)
            except GenomeError as error:
                raise GenomeError(f"{where}: {error}") from None
            window = _window_place(reference, Interval(contig, start, end), config.window_bp)
            for name, source in tracks.items():
                values[name].append(_values_of_bases(source, window, strand, names_in[name]))
            sequences.append(bases)
            contigs.append(contig)
            regions.append(f"{contig}:{start + 1}-{end}({strand})")
            places.append(where)
    column: dict[str, Any] = dict(cells)
    for name, path_of_track in config.tracks.items():
        _check_contigs(path_of_track, contigs, names_in[name])
    return Rows(
        sequences=sequences,
        labels=values or {name: column[name] for name in label_names},
        names=column[config.name] if config.name else regions,
        columns={config.split.column: column[config.split.column]} if config.split.column else {},
        contigs=contigs,
        where=lambda row: places[row],
        notes=tuple(
            _unknown_bases(name, arrays, set(contigs) - names_in[name].keys())
            for name, arrays in values.items()
        ),
    )


def open_bigwig(path: str) -> Any:
    """Return an opened bigWig.

    Raises:
        UserError: pyBigWig is not installed, or the file is absent or not bigWig.
    """
    try:
        import pyBigWig
    except ImportError:
        raise UserError(f"{path}: needs pyBigWig; install carbon-dna[scan]") from None
    if not Path(path).is_file():
        raise UserError(f"{path}: {why_no_file(path)}; give a bigWig (data.tracks)")
    try:
        source = pyBigWig.open(path)
    except RuntimeError:
        raise UserError(f"{path}: is not a bigWig; convert it (data.tracks)") from None
    if not source.isBigWig():
        raise UserError(f"{path}: is a bigBed, not a bigWig; convert it (data.tracks)")
    return source


def _names_in(source: Any, others: Mapping[str, str]) -> dict[str, str]:
    """Return the bigWig's name of each contig, by the reference's name."""
    return {others.get(name, name): name for name in source.chroms()}


def _check_contigs(path: str, contigs: Sequence[str], names: Mapping[str, str]) -> None:
    """Raise UserError if a bigWig has none of the contigs of the intervals."""
    if contigs and names.keys().isdisjoint(contigs):
        raise UserError(
            f"{path}: has contigs such as {shown_names(names)}, and none of those of the "
            f"intervals, such as '{contigs[0]}' (data.tracks)"
            f"{prefix_hint(names, contigs) or '; give data.contigs, a table of names'}"
        )


def _values_of_bases(
    source: Any, window: Interval, strand: Strand, names: Mapping[str, str]
) -> NDArray[np.float32]:
    """Return the values of a window along its strand, NaN where the file has none.

    `names` are those of `_names_in`.
    """
    values = np.full(window.end - window.start, np.nan, dtype=np.float32)
    contig = names.get(window.contig)
    end = min(window.end, source.chroms(contig)) if contig else 0
    if window.start < end:
        known = source.values(contig, window.start, end, numpy=True)
        values[: end - window.start] = known
    return values if strand == "+" else values[::-1]


def _unknown_bases(name: str, arrays: Sequence[NDArray[np.float32]], missing: set[str]) -> str:
    """Return a sentence on the bases that a track has no value for, and on missing contigs."""
    num_unknown = sum(int(np.isnan(values).sum()) for values in arrays)
    note = f"Track {name}: {num_unknown:,} of {sum(map(len, arrays)):,} bases have no value."
    lacks = f" It lacks {len(missing)} contigs of the intervals: {shown_names(sorted(missing))}."
    return note + lacks * bool(missing)


def _bed_header(path: str) -> list[str]:
    """Return the column names in the first line of a BED, if it is a comment."""
    with open_text(Path(path), errors="replace") as lines:
        first = next(lines, "")
    return first[1:].strip().split("\t" if "\t" in first else None) if first[:1] == "#" else []


def _column(name: str, names: list[str], path: str, key: str) -> str:
    if name.isdecimal() and name not in names and 0 < int(name) <= len(names):
        return names[int(name) - 1]
    return find_column(name, names, path, key)


def _cell(columns: list[str], number: int, where: str) -> str:
    if number >= len(columns):
        raise UserError(
            f"{where}: has {len(columns)} columns, and no column {number + 1}; correct it"
        )
    return columns[number].strip()


_INFO = 7
_ID_AND_TYPE = re.compile(r"##INFO=<ID=([^,>]+),.*?Type=(\w+)")


def read_vcf(path: str, config: DataConfig, k: int) -> Rows:
    """Read the windows of each ALT; labels are keys of INFO, one value for each ALT or one for all.

    Alleles other than ACGT sequences, such as `*` and `<DEL>`, and alleles longer than half of the
    window are skipped and counted.

    Raises:
        UserError: a record is malformed or disagrees with the reference, or the header lacks a key.
    """
    if not config.window_bp:
        raise ConfigError(f"{path}: give data.window_bp, the bases to read around a variant")
    reference, others = opened(path, config.reference, config.contigs)
    others_of = [key for key in (config.split.column, config.consequence) if key]
    keys = [*config.labels, *others_of]
    values: dict[str, list[str]] = {key: [] for key in keys}
    sequences, contigs, variants, places = [], [], [], []
    reads_ref = config.variant_input != "alt"
    windows = partial(pair_of, k=k) if reads_ref else alleles_of
    num_skipped = 0
    with reference:
        reader = VcfReader(path, reference, contig_names=others)
        types = dict(_types(reader.header))
        for key in keys:
            find_column(key, types, path, "a key of INFO")
        for number, row in enumerate(reader, start=1):
            where = f"{path} record {number} ({row.columns[0]}:{row.columns[1]})"
            if row.disagreement and row.disagreement.is_contradiction:
                wrong = reference.explain(row.disagreement, row.contig, row.columns[3])
                raise GenomeError(f"{where}: {wrong}; is it the assembly of the variants?")
            info = info_of(row.columns[_INFO])
            for allele, variant in enumerate(row.variants):
                if not _has_sequence(reference, variant, config.window_bp):
                    num_skipped += 1
                    continue
                for key in keys:
                    values[key].append(
                        _value(info, key, types[key], allele, len(row.variants), where)
                    )
                ref_window, alt_window = windows(reference, variant, config.window_bp)
                sequences.append(alt_window)
                contigs.append(row.contig)
                consequence = values[config.consequence][-1] if config.consequence else ""
                if config.consequence and consequence in ("", "."):
                    raise UserError(f"{where}: has no {config.consequence}; add it")
                variants.append(
                    LabelledVariant(variant, ref_window.upper() if reads_ref else "", consequence)
                )
                places.append(where)
    why = "not a sequence of ACGT, or longer than half of the window"
    notes = (f"{path}: {num_skipped} alleles are skipped: {why}.",) if num_skipped else ()
    return Rows(
        sequences=sequences,
        labels={key: values[key] for key in config.labels},
        names=[each.variant.to_text() for each in variants],
        columns={key: values[key] for key in others_of},
        contigs=contigs,
        where=lambda row: places[row],
        notes=notes,
        variants=variants,
    )


def _has_sequence(reference: Reference, variant: Variant, window_bp: int) -> bool:
    is_known = variant.why_unscorable() in (None, "same_as_reference")
    return is_known and fits_window(reference, variant, window_bp)


def _types(header: Iterable[str]) -> Iterable[tuple[str, str]]:
    for line in header:
        if match := _ID_AND_TYPE.match(line):
            yield match[1], match[2]


def _value(
    info: dict[str, str], key: str, info_type: str, allele: int, num_alleles: int, where: str
) -> str:
    """Return the INFO value of an allele; 1 or 0 for a flag, empty if the key is absent."""
    if info_type == "Flag":
        return str(int(key in info))
    values = info.get(key, "").split(",")
    if len(values) not in (1, num_alleles):
        raise UserError(
            f"{where}: {key} has {len(values)} values for {num_alleles} ALT; give one, or one each"
        )
    return values[allele] if len(values) > 1 else values[0]


def read_fasta(path: str, config: DataConfig) -> Rows:
    """Read a FASTA and its labels, from a table or from the record names.

    Raises:
        UserError: there are no labels, one is missing, or a name occurs twice in a join by name.
    """
    if config.label_after:
        return _with_labels(path, config)
    if not config.table:
        raise ConfigError(
            f"{path}: a FASTA has no labels; give data.table and its data.name, or data.label_after"
        )
    return (_by_name if config.name else _in_order)(path, config)


def _with_labels(path: str, config: DataConfig) -> Rows:
    """Read the label of each sequence from the end of its name."""
    if len(config.labels) != 1:
        raise ConfigError(f"{path}: data.label_after gives one label; name one in data.labels")
    records = list(read_sequences(path))
    for name, _ in records:
        if config.label_after not in name:
            raise UserError(f"{path}: '{name}' has no '{config.label_after}' (data.label_after)")
    return Rows(
        sequences=[sequence for _, sequence in records],
        labels={config.labels[0]: [n.rpartition(config.label_after)[2] for n, _ in records]},
        names=None,
        columns={},
        contigs=None,
        where=lambda row: f"{path} sequence '{records[row][0]}'",
    )


def _in_order(path: str, config: DataConfig) -> Rows:
    """Read labels from a table whose rows have the order of the sequences."""
    table_path = config.at(config.table)
    table, first_line = _table(table_path)
    sequences = [sequence for _, sequence in read_sequences(path)]
    if len(sequences) != len(table):
        raise UserError(
            f"{path}: has {len(sequences)} sequences, and {table_path} {len(table)} rows; give a "
            "table in the same order, or join by data.name"
        )
    return Rows(
        sequences=sequences,
        labels={name: label_column(table, name, table_path) for name in config.labels},
        names=None,
        columns=split_columns(table, table_path, config),
        contigs=None,
        where=place_in(table_path, first_line),
    )


def _by_name(path: str, config: DataConfig) -> Rows:
    """Join a FASTA and a table by name, in the order of the table."""
    table_path = config.at(config.table)
    table, first_line = _table(table_path)
    names = text_column(table, config.name, table_path, "data.name")
    where, wanted = place_in(table_path, first_line), set(names)
    sequence_of: dict[str, str] = {}
    num_others = 0
    for name, sequence in read_sequences(path):
        if name in sequence_of:
            raise UserError(f"{path}: '{name}' occurs twice; keep one")
        if name in wanted:
            sequence_of[name] = sequence
        else:
            num_others += 1
    for row, name in enumerate(names):
        if name not in sequence_of:
            raise UserError(f"{where(row)}: no sequence '{name}' in {path}; take the row out")
    notes = (f"{path}: {num_others} sequences have no row in {table_path}.",) if num_others else ()
    return Rows(
        sequences=[sequence_of[name] for name in names],
        labels={name: label_column(table, name, table_path) for name in config.labels},
        names=names,
        columns=split_columns(table, table_path, config),
        contigs=None,
        where=where,
        notes=notes,
    )


def _table(path: str) -> tuple[pa.Table, int]:
    """Return a table, read by its ending, and the line number of its first row."""
    if Path(path).suffix == ".parquet":
        return parquet_table(path), 0
    return text_table(path, "," if ".csv" in Path(path).suffixes else "\t"), 2


READERS: dict[str, Callable[[str, DataConfig], Rows]] = {
    "csv": read_csv,
    "tsv": read_tsv,
    "parquet": read_parquet,
    "datasets": read_datasets,
    "fasta": read_fasta,
    "bed": read_bed,
}
"""The reader of each of `FORMATS`, except `read_vcf`, which also needs k."""

TABLES = ("csv", "tsv", "parquet", "datasets")
"""Formats whose rows can be selected by their columns."""


def read_rows(config: DataConfig, k: int) -> Rows:
    """Read all files that a configuration names, for a model of k-mers.

    Raises:
        UserError: a file is absent, has another format, or lacks a column.
    """
    if config.path:
        return _read(config, k)
    return joined(
        {split: _read(config.for_split(split), k) for split in config.files}, SPLIT_COLUMN
    )


def _read(config: DataConfig, k: int) -> Rows:
    path = config.at(config.path)
    file_format = config.format or _format_of(path)
    if (config.keep or config.below) and file_format not in TABLES:
        raise UserError(
            f"{path}: data.keep and data.below are for {', '.join(TABLES)}; take them out"
        )
    if config.tracks and file_format != "bed":
        raise UserError(f"{path}: data.tracks is for a BED, not for {file_format}; take it out")
    reader = partial(read_vcf, k=k) if file_format == "vcf" else READERS[file_format]
    rows = reader(path, config)
    if not len(rows):
        raise UserError(f"{path}: has no examples; give a file with examples")
    return rows


def format_of(config: DataConfig) -> str:
    """Return the format of the files of a configuration; empty if they differ."""
    if config.format:
        return config.format
    paths = [config.path] if config.path else list(config.files.values())
    formats = {_format_of(config.at(path)) for path in paths}
    return formats.pop() if len(formats) == 1 else ""


def _format_of(path: str) -> str:
    if holds_variants(Path(path)):
        return "vcf"
    for name, file_format in FORMATS.items():
        if path.lower().endswith(file_format.endings or ("/",)):
            return name
    if Path(path).is_file():
        raise UserError(f"{path}: unknown format; give data.format, one of {', '.join(FORMATS)}")
    return "datasets"
