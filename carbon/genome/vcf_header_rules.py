"""The rules of VCF for what stands above the records: the `##` lines and the `#CHROM` line.

Source: the specifications of VCF 4.1 to 4.5 (samtools/hts-specs), sections 1.2 to 1.5 and the
tables of reserved keys. Where the text is stricter than files that good tools write every day, the
files are right: `R` as a Number before 4.2 (freebayes), types of ALT that no list has (`CN0` of the
1000 Genomes, `NON_REF` of GATK) and contigs such as `HLA-A*01:01` are taken in every version.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from carbon.errors import GenomeError

Version = tuple[int, int]

LAST_VERSION = (4, 5)
COLUMNS = ("#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO")
# The names that SAM allows too.
CONTIG = re.compile(r"[0-9A-Za-z!#$%&+./:;?@^_|~-][0-9A-Za-z!#$%&*+./:;=?@^_|~-]*")


class Field(NamedTuple):
    """What a key of INFO or FORMAT holds.

    Attributes:
        number: how many values: a number, `.`, or a letter (A: one for each ALT, R: for REF too,
            G: for each genotype, ...).
        type: Integer, Float, Flag, Character or String.
    """

    number: str
    type: str


class Header(NamedTuple):
    """What the records are held against.

    Attributes:
        version: of the format, such as (4, 2).
        info: the keys of INFO, reserved and declared ones.
        format: the keys of FORMAT likewise.
        samples: their names; empty where there is no FORMAT column.
        num_columns: of a record.
    """

    version: Version
    info: dict[str, Field]
    format: dict[str, Field]
    samples: tuple[str, ...]
    num_columns: int


class MetaLine(NamedTuple):
    """A structured `##kind=<key=value,...>` line; values as they stand, quotes among them."""

    kind: str
    pairs: dict[str, str]
    version: Version


# The keys that the specification defines, with what it says of them, by the versions that do.
# Those for structural variants are left out: callers differ over them, and it harms nobody.
_ALWAYS, _UP_TO_4_2, _FROM_4_3 = ((4, 0), LAST_VERSION), ((4, 0), (4, 2)), ((4, 3), LAST_VERSION)
_DEPTHS = "AD R Integer, ADF R Integer, ADR R Integer"
_RESERVED = {
    ("INFO", _ALWAYS): "AA 1 String, AC A Integer, AF A Float, AN 1 Integer, BQ 1 Float, "
    "CIGAR A String, DB 0 Flag, DP 1 Integer, END 1 Integer, H2 0 Flag, H3 0 Flag, "
    # The Type of MQ differs between the versions, and between the tools.
    "MQ 1 Integer or Float, MQ0 1 Integer, NS 1 Integer, SOMATIC 0 Flag, VALIDATED 0 Flag, "
    "1000G 0 Flag",
    ("INFO", _FROM_4_3): _DEPTHS,
    ("FORMAT", _ALWAYS): "DP 1 Integer, EC A Integer, FT 1 String, GL G Float, GP G Float, "
    "GQ 1 Integer, GT 1 String, HQ 2 Integer, MQ 1 Integer, PL G Integer, PQ 1 Integer, "
    "PS 1 Integer",
    ("FORMAT", _UP_TO_4_2): "GLE G String",
    ("FORMAT", _FROM_4_3): f"{_DEPTHS}, PP G Integer",
}

_REQUIRED = {
    "INFO": ("ID", "Number", "Type", "Description"),
    "FORMAT": ("ID", "Number", "Type", "Description"),
    "FILTER": ("ID", "Description"),
    "ALT": ("ID", "Description"),
    "META": ("ID", "Number", "Type", "Values"),
    "contig": ("ID",),
    "SAMPLE": ("ID",),
    "PEDIGREE": (),
}
_ORDERED = ("INFO", "FORMAT", "FILTER", "ALT")
_TYPES = ("Integer", "Float", "Flag", "Character", "String")
_NUMBER = re.compile(r"[0-9]{1,9}|[.ARGPM]|L[ARG]")
_ALT_LEVELS = ("DEL", "INS", "DUP", "INV", "CNV", "BND")

_LEGACY_KEY = re.compile(r"[^\s;=]+")
_KEY = re.compile(r"[A-Za-z_][0-9A-Za-z_.]*|1000G")
_SYMBOL = re.compile(r"[^\s,<>]+")
_SAMPLE = re.compile(r'[^\s,:;*<>"=]+')
_ID = {
    "FILTER": re.compile(r"(?!0$)[^\s;]+"),
    "ALT": _SYMBOL,
    "META": _SYMBOL,
    "contig": CONTIG,
    "SAMPLE": _SAMPLE,
    "PEDIGREE": _SAMPLE,
}

_PAIR = r'([^=,<>"\s]+)=("(?:[^"\\]|\\.)*"|\[[^\]]*\]|[^",\[][^,]*|)'
_PAIRS = re.compile(rf"<{_PAIR}(?:,{_PAIR})*>")


def key_pattern(version: Version) -> re.Pattern[str]:
    """Return what a key of INFO or FORMAT must match."""
    return _KEY if version >= (4, 3) else _LEGACY_KEY


def check_header(lines: Sequence[tuple[int, str]]) -> Header:
    """Hold the header against the rules.

    Args:
        lines: with their numbers in the file, from 1; the first says VCF, the last is
            `#CHROM`, or what stands in its place.

    Raises:
        GenomeError: a rule is broken; the message opens with the number of the line.
    """
    seen: set[tuple[str, str]] = set()
    with _at_line(lines[0][0]):
        version = _version(lines[0][1])
    fields = {kind: dict(_reserved(kind, version)) for kind in ("INFO", "FORMAT")}
    for number, line in lines[1:-1]:
        with _at_line(number):
            if meta := _meta_line(line, version):
                _check_meta(meta, fields, seen)
    number, line = lines[-1]
    with _at_line(number):
        samples = _samples(line)
    return Header(version, fields["INFO"], fields["FORMAT"], samples, line.count("\t") + 1)


@contextmanager
def _at_line(number: int) -> Iterator[None]:
    try:
        yield
    except GenomeError as error:
        raise GenomeError(f"line {number}: {error}") from None


def _version(line: str) -> Version:
    known = re.fullmatch(r"##fileformat=VCFv4\.([0-9])", line)
    if not known or int(known[1]) > LAST_VERSION[1]:
        raise GenomeError(
            f"{shown(line)} is no known version; the first line is '##fileformat=VCFv4.x', "
            f"x from 0 to {LAST_VERSION[1]}"
        )
    return 4, int(known[1])


@cache
def _reserved(kind: str, version: Version) -> dict[str, Field]:
    fields = {}
    for (of, (first, last)), rows in _RESERVED.items():
        if of == kind and first <= version <= last:
            for row in rows.split(", "):
                key, number, type_ = row.split(maxsplit=2)
                fields[key] = Field(number, type_)
    return fields


def _samples(line: str) -> tuple[str, ...]:
    names = tuple(line.split("\t"))
    if names[: len(COLUMNS)] != COLUMNS or names[len(COLUMNS) :][:1] not in ((), ("FORMAT",)):
        raise GenomeError(
            f"{shown(line)} is neither a ##key=value line nor the line of columns: "
            f"{' '.join(COLUMNS)}, then FORMAT and the samples if there are any, with tabs between"
        )
    samples = names[len(COLUMNS) + 1 :]
    if len(names) == len(COLUMNS) + 1:
        raise GenomeError("there is a FORMAT column but no sample; add them, or drop the column")
    if not all(samples):
        raise GenomeError("a sample has no name; remove the tab too many, or name it")
    if len(set(samples)) < len(samples):
        twice = next(name for name in samples if samples.count(name) > 1)
        raise GenomeError(f"sample {shown(twice)} stands twice; rename one of them")
    return samples


def _meta_line(line: str, version: Version) -> MetaLine | None:
    """Parse a `##` line; None where it is not one of the structured kinds that have rules."""
    kind, equals, value = line[2:].partition("=")
    if not line.startswith("##") or not kind or not equals or not value:
        raise GenomeError(f"{shown(line)} is not of the form ##key=value; mend or remove it")
    if kind == "fileformat":
        raise GenomeError("##fileformat stands for the second time; keep the first line")
    if kind in ("assembly", "pedigreeDB"):
        _check_url(kind, value)
    if kind not in _REQUIRED:
        return None
    if not _PAIRS.fullmatch(value):
        raise GenomeError(
            f"{kind}: the value must be <key=value,...>, with text in double quotes and a quote "
            'inside it as \\"; is a quote or bracket missing or one too many?'
        )
    pairs = re.findall(_PAIR, value[1:-1])
    if len(dict(pairs)) < len(pairs):
        raise GenomeError(f"{kind}: a key stands twice; keep one")
    return MetaLine(kind, dict(pairs), version)


def _check_url(kind: str, value: str) -> None:
    """A URL names a host; what is not written as a URL is free."""
    url = value.strip("<>")
    if not url or ("://" in url and not _has_a_host(url)):
        raise GenomeError(f"{kind}: {shown(value)} is not a URL; mend or remove the line")


def _has_a_host(url: str) -> bool:
    scheme = url.partition("://")[0]
    try:
        host = urlsplit(url).hostname or ""
        return scheme == "file" or any(x.isalpha() for x in host) or bool(ip_address(host))
    except ValueError:
        return False


def _check_meta(
    meta: MetaLine, fields: dict[str, dict[str, Field]], seen: set[tuple[str, str]]
) -> None:
    for rule in _RULES:
        if complaint := rule(meta):
            name = f"{meta.kind} {meta.pairs['ID']}" if meta.pairs.get("ID") else meta.kind
            raise GenomeError(f"{name}: {complaint}")
    identifier = meta.kind, meta.pairs.get("ID", "")
    if meta.version >= (4, 3) and identifier in seen:
        raise GenomeError(f"{' '.join(identifier)}: is declared twice; keep one")
    seen.add(identifier)
    if meta.kind in fields:
        number, type_ = meta.pairs["Number"], meta.pairs["Type"]
        # One text may have commas of its own, so nothing is counted there.
        declared = Field("." if (number, type_) == ("1", "String") else number, type_)
        fields[meta.kind].setdefault(identifier[1], declared)


def _has_its_keys(meta: MetaLine) -> str | None:
    required = _REQUIRED[meta.kind]
    if meta.kind == "PEDIGREE" and meta.version >= (4, 3):
        required = ("ID",)
    missing = [key for key in required if key not in meta.pairs]
    return f"{missing[0]} is missing; add it" if missing else None


def _keys_are_in_order(meta: MetaLine) -> str | None:
    order = [key for key in _REQUIRED["INFO"] if key in meta.pairs]
    there = [key for key in meta.pairs if key in order]
    if meta.kind in _ORDERED and there != order:
        return f"the keys stand in the order {', '.join(there)}; write them as {', '.join(order)}"
    return None


def _id_is_a_name(meta: MetaLine) -> str | None:
    name = meta.pairs.get("ID")
    pattern = _ID.get(meta.kind) or key_pattern(meta.version)
    if name is None or pattern.fullmatch(name):
        return None
    return f"ID {shown(name)} is not a name of that kind; rename it"


def _alt_begins_with_a_level(meta: MetaLine) -> str | None:
    levels = meta.pairs.get("ID", "").split(":")
    if meta.kind == "ALT" and len(levels) > 1 and levels[0] not in _ALT_LEVELS:
        return f"a type with subtypes begins with one of {', '.join(_ALT_LEVELS)}; rename it"
    return None


def _number_is_known(meta: MetaLine) -> str | None:
    number = meta.pairs.get("Number", ".")
    if _NUMBER.fullmatch(number):
        return None
    return f"Number {shown(number)} is not known; write a count, A, R, G or '.'"


def _type_is_known(meta: MetaLine) -> str | None:
    types = [name for name in _TYPES if meta.kind != "FORMAT" or name != "Flag"]
    name = meta.pairs.get("Type", "String")
    if name in types:
        return None
    return f"Type {shown(name)} is not known; write one of {', '.join(types)}"


def _text_is_quoted(meta: MetaLine) -> str | None:
    if meta.pairs.get("Description", '"').startswith('"'):
        return None
    return "Description must stand in double quotes; add them"


def _lists_are_lists(meta: MetaLine) -> str | None:
    if meta.kind == "META" and not meta.pairs["Values"].startswith("["):
        return "Values must stand in square brackets; write [one, two]"
    lists = ("Genomes", "Mixture") if meta.kind == "SAMPLE" and meta.version < (4, 3) else ()
    quoted = [key for key in lists if meta.pairs.get(key, "").startswith('"')]
    return f"{quoted[0]} is a list and not text; remove the quotes" if quoted else None


def _parents_are_samples(meta: MetaLine) -> str | None:
    if meta.kind == "PEDIGREE":
        for key, name in meta.pairs.items():
            if not name.startswith('"') and not _SAMPLE.fullmatch(name):
                return f"{key} {shown(name)} is not a name of that kind; rename it"
    return None


def _reserved_key_is_kept(meta: MetaLine) -> str | None:
    field = _reserved(meta.kind, meta.version).get(meta.pairs.get("ID", ""))
    if field is None:
        return None
    number, type_ = meta.pairs["Number"], meta.pairs["Type"]
    if number == field.number and type_ in field.type.split(" or "):
        return None
    return (
        f"is reserved, with Number={field.number} and Type={field.type}, and is declared with "
        f"Number={number} and Type={type_}; mend it, or take another ID"
    )


_RULES = (
    _has_its_keys,
    _keys_are_in_order,
    _id_is_a_name,
    _alt_begins_with_a_level,
    _number_is_known,
    _type_is_known,
    _text_is_quoted,
    _lists_are_lists,
    _parents_are_samples,
    _reserved_key_is_kept,
)


def shown(text: str) -> str:
    """Write what a file says, the beginning of it if it is long."""
    return repr(text if len(text) <= 40 else f"{text[:40]}...")
