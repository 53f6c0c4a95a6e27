"""Sequences that are cut from a reference: around a place, and with a variant in them."""

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
    """Return the bases of a place, or `window_bp` around its middle, cut at the contig's ends.

    Raises:
        GenomeError: the place is not in the reference.
    """
    place = Interval(contig, start, end)
    if window_bp:
        reference.fetch(Interval(contig, end, end))  # the contig is there, and long enough
        first = (start + end) // 2 - window_bp // 2
        last = min(first + window_bp, reference.contig_lengths_bp[contig])
        place = Interval(contig, max(0, first), max(0, last))
    bases = reference.fetch(place)
    return bases if strand == "+" else reverse_complement(bases)


def alleles_of(reference: Reference, variant: Variant, window_bp: int) -> tuple[str, str]:
    """Return the bases around a variant with REF and with ALT, each of `window_bp`.

    The variant is trimmed and left-aligned first, so that the windows do not depend on how it is
    written. Both begin with the same half window before it; what is cut at a contig's end is
    shorter.
    """
    variant = normalize_variant(reference, variant)
    start = max(0, variant.position - window_bp // 2)
    behind = variant.position + len(variant.ref)
    length_bp = reference.contig_lengths_bp[variant.contig]
    before = reference.fetch(Interval(variant.contig, start, variant.position))
    last = min(length_bp, max(behind, start + window_bp + len(variant.ref)))
    after = reference.fetch(Interval(variant.contig, behind, last))
    ref, alt = ((before + bases + after)[:window_bp] for bases in (variant.ref, variant.alt))
    return ref, alt


def fits_window(reference: Reference, variant: Variant, window_bp: int) -> bool:
    """Tell whether half of a window holds the longer allele, trimmed and left-aligned."""
    plain = normalize_variant(reference, variant)
    return max(len(plain.ref), len(plain.alt)) <= window_bp // 2


def checked_alleles_of(reference: Reference, variant: Variant, window_bp: int) -> tuple[str, str]:
    """Return what `alleles_of` does, of a variant that was typed.

    Raises:
        UserError: REF does not stand there, or the alleles do not fit, and why.
    """
    found = reference.disagreement(variant.contig, variant.position, variant.ref)
    reason = found.reason if found else variant.why_unscorable()
    if reason:
        told = reason.replace("_", " ")
        raise UserError(f"variant {variant.to_text()} cannot be predicted: {told}")
    if not fits_window(reference, variant, window_bp):
        raise UserError(f"an allele is longer than half of the window of {window_bp} bases")
    return alleles_of(reference, variant, window_bp)


def opened(path: str, reference: str, contigs: str) -> tuple[Reference, dict[str, str]]:
    """Return the reference of a file, and the names of its contigs that are others there.

    Raises:
        UserError: none is named, or it is not there.
    """
    if not reference:
        raise ConfigError(f"{path}: has places, and no sequence; give data.reference, a FASTA")
    found = Reference(reference)
    return found, contig_names(contigs or None, found.contig_lengths_bp)


_STRAND_COLUMN = 5


def read_bed(path: str, config: DataConfig) -> Rows:
    """Read the places of a BED, those of the reverse strand as its reverse complement.

    Columns are named by number, from 1, or as the first comment of the file does.

    Raises:
        UserError: a line is no BED, lies outside of the reference, or lacks a column.
    """
    if not Path(path).is_file():
        raise UserError(f"{path}: {why_no_file(path)}; give a BED")
    asked = {
        **dict.fromkeys(config.labels, "data.labels"),
        **({config.name: "data.name"} if config.name else {}),
        **({config.split.column: "data.split.column"} if config.split.column else {}),
    }
    reference, others = opened(path, config.reference, config.contigs)
    number_of: dict[str, int] = {}
    found: dict[str, list[str]] = {name: [] for name in asked}
    sequences, contigs, regions, places = [], [], [], []
    with reference:
        header = _header(path)
        for where, columns in bed_lines(Path(path)):
            contig, start, end = bed_place(columns, where)
            contig = others.get(contig, contig)
            names = header or [str(i) for i in range(1, len(columns) + 1)]
            number_of = number_of or {
                name: names.index(_known(name, names, path, why)) for name, why in asked.items()
            }
            for name, number in number_of.items():
                found[name].append(_cell(columns, number, where))
            strand = "-" if columns[_STRAND_COLUMN : _STRAND_COLUMN + 1] == ["-"] else "+"
            try:
                bases = window_of(reference, contig, start, end, strand, config.window_bp)  # type: ignore[arg-type]
            except GenomeError as error:
                raise GenomeError(f"{where}: {error}") from None
            sequences.append(bases)
            contigs.append(contig)
            regions.append(f"{contig}:{start + 1}-{end}({strand})")
            places.append(where)
    of: dict[str, Any] = dict(found)
    return Rows(
        sequences=sequences,
        labels={name: of[name] for name in config.labels},
        names=of[config.name] if config.name else regions,
        columns={config.split.column: of[config.split.column]} if config.split.column else {},
        contigs=contigs,
        where=lambda row: places[row],
    )


def _header(path: str) -> list[str]:
    """Return the names of the columns that the first line of a BED has, if it is a comment."""
    with open_text(Path(path), errors="replace") as lines:
        first = next(lines, "")
    return first[1:].strip().split("\t" if "\t" in first else None) if first[:1] == "#" else []


def _known(name: str, names: list[str], path: str, asked: str) -> str:
    if name.isdecimal() and name not in names and 0 < int(name) <= len(names):
        return names[int(name) - 1]
    return find_column(name, names, path, asked)


def _cell(columns: list[str], number: int, where: str) -> str:
    if number >= len(columns):
        raise UserError(f"{where}: has {len(columns)} columns, and no column {number + 1}; mend it")
    return columns[number].strip()


_INFO = 7
_ID_AND_TYPE = re.compile(r"##INFO=<ID=([^,>]+),.*?Type=(\w+)")


def read_vcf(path: str, config: DataConfig) -> Rows:
    """Read a window with each ALT in it; labels are keys of INFO, one for each ALT or for all.

    Alleles that are no sequence of ACGT, as `*` and `<DEL>`, or are longer than half of the window,
    are passed over and told.

    Raises:
        UserError: a record breaks the format or disagrees with the reference, or the header has no
            such key.
    """
    if not config.window_bp:
        raise ConfigError(f"{path}: give data.window_bp, the bases around a variant that are read")
    reference, others = opened(path, config.reference, config.contigs)
    keys = [*config.labels, *([config.split.column] if config.split.column else [])]
    found: dict[str, list[str]] = {key: [] for key in keys}
    sequences, contigs, names, places = [], [], [], []
    num_passed = 0
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
                    num_passed += 1
                    continue
                for key in keys:
                    found[key].append(
                        _value(info, key, types[key], allele, len(row.variants), where)
                    )
                sequences.append(alleles_of(reference, variant, config.window_bp)[1])
                contigs.append(row.contig)
                names.append(variant.to_text())
                places.append(where)
    why = "are no sequence of ACGT that half of the window holds"
    told = (f"{path}: {num_passed} alleles {why}.",) if num_passed else ()
    return Rows(
        sequences=sequences,
        labels={key: found[key] for key in config.labels},
        names=names,
        columns={key: found[key] for key in keys[len(config.labels) :]},
        contigs=contigs,
        where=lambda row: places[row],
        told=told,
    )


def _has_sequence(reference: Reference, variant: Variant, window_bp: int) -> bool:
    is_known = variant.why_unscorable() in (None, "same_as_reference")
    return is_known and fits_window(reference, variant, window_bp)


def _types(header: Iterable[str]) -> Iterable[tuple[str, str]]:
    for line in header:
        if match := _ID_AND_TYPE.match(line):
            yield match[1], match[2]


def _value(
    info: dict[str, str], key: str, kind: str, allele: int, num_alleles: int, where: str
) -> str:
    """Return what INFO says of an allele; 1 or 0 of a flag, nothing where a key is absent."""
    if kind == "Flag":
        return str(int(key in info))
    values = info.get(key, "").split(",")
    if len(values) not in (1, num_alleles):
        raise UserError(
            f"{where}: {key} has {len(values)} values for {num_alleles} ALT; give one, or one each"
        )
    return values[allele] if len(values) > 1 else values[0]
