"""Cut sequences from a reference: around BED intervals, and with a VCF's variants in them."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from carbon.errors import ConfigError, GenomeError, UserError
from carbon.finetune.config import DataConfig
from carbon.finetune.tables import Rows, find_column
from carbon.genome import (
    Interval,
    Reference,
    Strand,
    Variant,
    VcfReader,
    contig_names,
    reverse_complement,
)
from carbon.genome.bed import bed_lines, bed_place
from carbon.genome.normalize import normalize_variant
from carbon.genome.sequences import open_text
from carbon.io.files import why_no_file


def window_of(
    reference: Reference, contig: str, start: int, end: int, strand: Strand, window_bp: int
) -> str:
    """Return the bases of an interval, or `window_bp` bases around its middle, clipped to the
    contig.

    Raises:
        GenomeError: the interval lies outside of the reference.
    """
    place = Interval(contig, start, end)
    if window_bp:
        reference.fetch(Interval(contig, end, end))  # raises unless the contig is long enough
        first = (start + end) // 2 - window_bp // 2
        last = min(first + window_bp, reference.contig_lengths_bp[contig])
        place = Interval(contig, max(0, first), max(0, last))
    bases = reference.fetch(place)
    return bases if strand == "+" else reverse_complement(bases)


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


def fits_window(reference: Reference, variant: Variant, window_bp: int) -> bool:
    """Return whether half of a window holds the longer allele, trimmed and left-aligned."""
    plain = normalize_variant(reference, variant)
    return max(len(plain.ref), len(plain.alt)) <= window_bp // 2


def checked_alleles_of(reference: Reference, variant: Variant, window_bp: int) -> tuple[str, str]:
    """Return `alleles_of` for a variant that a user typed.

    Raises:
        UserError: REF disagrees with the reference, or the alleles cannot be predicted.
    """
    disagreement = reference.disagreement(variant.contig, variant.position, variant.ref)
    reason = disagreement.reason if disagreement else variant.why_unscorable()
    if reason:
        shown = reason.replace("_", " ")
        raise UserError(f"variant {variant.to_text()} cannot be predicted: {shown}")
    if not fits_window(reference, variant, window_bp):
        raise UserError(f"an allele is longer than half of the window of {window_bp} bases")
    return alleles_of(reference, variant, window_bp)


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

    Columns are named by number, from 1, or by the first comment of the file.

    Raises:
        UserError: a line is not BED, lies outside of the reference, or lacks a column.
    """
    if not Path(path).is_file():
        raise UserError(f"{path}: {why_no_file(path)}; give a BED")
    key_of = {
        **dict.fromkeys(config.labels, "data.labels"),
        **({config.name: "data.name"} if config.name else {}),
        **({config.split.column: "data.split.column"} if config.split.column else {}),
    }
    reference, others = opened(path, config.reference, config.contigs)
    number_of: dict[str, int] = {}
    cells: dict[str, list[str]] = {name: [] for name in key_of}
    sequences, contigs, regions, places = [], [], [], []
    with reference:
        header = _header(path)
        for where, columns in bed_lines(Path(path)):
            contig, start, end = bed_place(columns, where)
            contig = others.get(contig, contig)
            names = header or [str(i) for i in range(1, len(columns) + 1)]
            number_of = number_of or {
                name: names.index(_column(name, names, path, key)) for name, key in key_of.items()
            }
            for name, number in number_of.items():
                cells[name].append(_cell(columns, number, where))
            strand = "-" if columns[_STRAND_COLUMN : _STRAND_COLUMN + 1] == ["-"] else "+"
            try:
                bases = window_of(reference, contig, start, end, strand, config.window_bp)  # type: ignore[arg-type]
            except GenomeError as error:
                raise GenomeError(f"{where}: {error}") from None
            sequences.append(bases)
            contigs.append(contig)
            regions.append(f"{contig}:{start + 1}-{end}({strand})")
            places.append(where)
    column: dict[str, Any] = dict(cells)
    return Rows(
        sequences=sequences,
        labels={name: column[name] for name in config.labels},
        names=column[config.name] if config.name else regions,
        columns={config.split.column: column[config.split.column]} if config.split.column else {},
        contigs=contigs,
        where=lambda row: places[row],
    )


def _header(path: str) -> list[str]:
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


def read_vcf(path: str, config: DataConfig) -> Rows:
    """Read a window for each ALT; labels are keys of INFO, one value for each ALT or one for all.

    Alleles other than ACGT sequences, such as `*` and `<DEL>`, and alleles longer than half of the
    window are skipped and counted.

    Raises:
        UserError: a record is malformed or disagrees with the reference, or the header lacks a key.
    """
    if not config.window_bp:
        raise ConfigError(f"{path}: give data.window_bp, the bases to read around a variant")
    reference, others = opened(path, config.reference, config.contigs)
    keys = [*config.labels, *([config.split.column] if config.split.column else [])]
    values: dict[str, list[str]] = {key: [] for key in keys}
    sequences, contigs, names, places = [], [], [], []
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
            info = dict(part.partition("=")[::2] for part in row.columns[_INFO].split(";"))
            for allele, variant in enumerate(row.variants):
                if not _has_sequence(reference, variant, config.window_bp):
                    num_skipped += 1
                    continue
                for key in keys:
                    values[key].append(
                        _value(info, key, types[key], allele, len(row.variants), where)
                    )
                sequences.append(alleles_of(reference, variant, config.window_bp)[1])
                contigs.append(row.contig)
                names.append(variant.to_text())
                places.append(where)
    why = "not a sequence of ACGT, or longer than half of the window"
    notes = (f"{path}: {num_skipped} alleles are skipped: {why}.",) if num_skipped else ()
    return Rows(
        sequences=sequences,
        labels={key: values[key] for key in config.labels},
        names=names,
        columns={key: values[key] for key in keys[len(config.labels) :]},
        contigs=contigs,
        where=lambda row: places[row],
        notes=notes,
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
