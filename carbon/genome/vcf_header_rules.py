"""The rules of VCF for what stands above the records: the `##` lines and the `#CHROM` line.

Source: the specifications of VCF 4.1 to 4.5 (samtools/hts-specs), sections 1.2 to 1.5 and the
tables of reserved keys. Where the text is stricter than files that good tools write every day, the
files are right: `R` as a Number before 4.2 (freebayes), types of ALT that no list has (`CN0` of the
1000 Genomes, `NON_REF` of GATK) and contigs such as `HLA-A*01:01` are taken in every version.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from carbon.genome.vcf_findings import Complaint, Findings

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


def check_header(lines: Sequence[tuple[int, str]], findings: Findings) -> Header:
    """Hold the header against the rules.

    Args:
        lines: with their numbers in the file, from 1; the first says VCF, the last is
            `#CHROM`, or what stands in its place.
        findings: take what is wrong.

    Raises:
        GenomeError: a rule is broken that the findings refuse.
    """

    def take(number: int, complaint: Complaint | None) -> None:
        if complaint:
            findings.take(complaint, number, f"{findings.path} line {number}")

    version, complaint = _version(lines[0][1])
    take(lines[0][0], complaint)
    declared = _Declared(version)
    for number, line in lines[1:-1]:
        take(number, declared.complaint(line))
    number, line = lines[-1]
    take(number, _column_line_complaint(line))
    samples = tuple(line.split("\t")[len(COLUMNS) + 1 :])
    info, format_ = declared.fields["INFO"], declared.fields["FORMAT"]
    return Header(version, info, format_, samples, line.count("\t") + 1)


def _version(line: str) -> tuple[Version, Complaint | None]:
    """Return the version, and what is wrong with it: one that is not known is read as the last."""
    known = re.fullmatch(r"##fileformat=VCFv4\.([0-9])", line)
    if known and int(known[1]) <= LAST_VERSION[1]:
        return (4, int(known[1])), None
    wrong = (
        f"{shown(line)} is no known version; the first line is '##fileformat=VCFv4.x', "
        f"x from 0 to {LAST_VERSION[1]}"
    )
    return LAST_VERSION, Complaint("fileformat", wrong)


@cache
def reserved(kind: str, version: Version) -> dict[str, Field]:
    """Return what the specification says that the keys of INFO or FORMAT hold."""
    fields = {}
    for (of, (first, last)), rows in _RESERVED.items():
        if of == kind and first <= version <= last:
            for row in rows.split(", "):
                key, number, type_ = row.split(maxsplit=2)
                fields[key] = Field(number, type_)
    return fields


def _column_line_complaint(line: str) -> Complaint | None:
    text = _wrong_columns(line) or _wrong_samples(line.split("\t")[len(COLUMNS) :])
    return Complaint("column_line", text) if text else None


def _wrong_columns(line: str) -> str | None:
    names = tuple(line.split("\t"))
    if names == (*COLUMNS, ""):
        return "the line of columns ends in a tab; remove it"
    if names[: len(COLUMNS)] == COLUMNS and names[len(COLUMNS) :][:1] in ((), ("FORMAT",)):
        return None
    return (
        f"{shown(line)} is neither a ##key=value line nor the line of columns: "
        f"{' '.join(COLUMNS)}, then FORMAT and the samples if there are any, with tabs between"
    )


def _wrong_samples(names: Sequence[str]) -> str | None:
    """Say what is wrong with what stands behind INFO, FORMAT first."""
    if len(names) == 1:
        return "there is a FORMAT column but no sample; add them, or drop the column"
    if not all(names):
        return "a sample has no name; remove the tab too many, or name it"
    if len(set(names[1:])) == len(names[1:]):
        return None
    twice = next(name for name, times in Counter(names[1:]).items() if times > 1)
    return f"sample {shown(twice)} stands twice; rename one of them"


class _Declared:
    """The `##` lines, one after the other.

    Attributes:
        fields: by INFO and FORMAT, what their keys hold: those of the specification and those that
            were declared.
    """

    def __init__(self, version: Version) -> None:
        self._version = version
        self._seen: set[tuple[str, str]] = set()
        self.fields = {kind: dict(reserved(kind, version)) for kind in ("INFO", "FORMAT")}

    def complaint(self, line: str) -> Complaint | None:
        """Take a line, and return the first rule that it breaks."""
        kind, _, value = line[2:].partition("=")
        complaint = _line_complaint(line, kind, value)
        if complaint or kind not in _REQUIRED:
            return complaint
        pairs = re.findall(_PAIR, value[1:-1])
        if len(dict(pairs)) < len(pairs):
            return Complaint("header_keys", f"{kind}: a key stands twice; keep one")
        return self._declare(MetaLine(kind, dict(pairs), self._version))

    def _declare(self, meta: MetaLine) -> Complaint | None:
        identifier = meta.kind, meta.pairs.get("ID", "")
        stands_twice = identifier in self._seen
        if not stands_twice:
            self._seen.add(identifier)
            self._keep(meta)
        name = " ".join(identifier).strip()
        for rule, wrong in _RULES:
            if text := wrong(meta):
                return Complaint(rule, f"{name}: {text}")
        if stands_twice and self._version >= (4, 3):
            return Complaint("declared_twice", f"{name}: is declared twice; keep one")
        return None

    def _keep(self, meta: MetaLine) -> None:
        """Have the records held against what a line declares, be it against the specification."""
        fields, key = self.fields.get(meta.kind, {}), meta.pairs.get("ID", "")
        number, type_ = meta.pairs.get("Number"), meta.pairs.get("Type")
        if number is None or type_ is None or _number_is_known(meta) or _type_is_known(meta):
            return
        if key and (key not in fields or _reserved_key_is_kept(meta)):
            # One text may have commas of its own, so nothing is counted there.
            fields[key] = Field("." if (number, type_) == ("1", "String") else number, type_)


def _line_complaint(line: str, kind: str, value: str) -> Complaint | None:
    """Say what is wrong with the form of a `##` line."""
    text = None
    if not line.startswith("##") or not kind or not value:
        text = f"{shown(line)} is not of the form ##key=value; mend or remove it"
    elif kind == "fileformat":
        text = "##fileformat stands for the second time; keep the first line"
    elif kind in ("assembly", "pedigreeDB"):
        text = _wrong_url(kind, value)
    elif kind in _REQUIRED and not _PAIRS.fullmatch(value):
        text = (
            f"{kind}: the value must be <key=value,...>, with text in double quotes and a quote "
            'inside it as \\"; is a quote or bracket missing or one too many?'
        )
    return Complaint("header_line", text) if text else None


def _wrong_url(kind: str, value: str) -> str | None:
    """A URL names a host; what is not written as a URL is free."""
    url = value.strip("<>")
    if not url or ("://" in url and not _has_a_host(url)):
        return f"{kind}: {shown(value)} is not a URL; mend or remove the line"
    return None


def _has_a_host(url: str) -> bool:
    scheme = url.partition("://")[0]
    try:
        host = urlsplit(url).hostname or ""
        return scheme == "file" or any(x.isalpha() for x in host) or bool(ip_address(host))
    except ValueError:
        return False


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
    field = reserved(meta.kind, meta.version).get(meta.pairs.get("ID", ""))
    if field is None:
        return None
    number, type_ = meta.pairs["Number"], meta.pairs["Type"]
    if number == field.number and type_ in field.type.split(" or "):
        return None
    return (
        f"is reserved, with Number={field.number} and Type={field.type}, and is declared with "
        f"Number={number} and Type={type_}; mend it, or take another ID"
    )


_RULES: tuple[tuple[str, Callable[[MetaLine], str | None]], ...] = (
    ("header_keys", _has_its_keys),
    ("header_keys", _keys_are_in_order),
    ("header_id", _id_is_a_name),
    ("header_id", _alt_begins_with_a_level),
    ("header_number", _number_is_known),
    ("header_type", _type_is_known),
    ("header_text", _text_is_quoted),
    ("header_text", _lists_are_lists),
    ("header_id", _parents_are_samples),
    ("reserved_key", _reserved_key_is_kept),
)


def shown(text: str) -> str:
    """Write what a file says, the beginning of it if it is long."""
    return repr(text if len(text) <= 40 else f"{text[:40]}...")
