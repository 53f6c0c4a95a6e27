"""Variants with labels: a VCF, and the reference that the bases around them are of."""

import re
from collections.abc import Iterable

from carbon.adapt.config import DataConfig
from carbon.adapt.data.rows import Rows, find_column
from carbon.adapt.data.windows import alleles_of, fits_window, opened
from carbon.errors import ConfigError, GenomeError, UserError
from carbon.genome import Reference, Variant, VcfReader

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
