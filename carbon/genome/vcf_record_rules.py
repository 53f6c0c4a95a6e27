"""The rules of VCF for records: every column by itself, and against the header.

Source: the specifications of VCF 4.1 to 4.5 (samtools/hts-specs), section 1.6 and the tables of
reserved keys. What repeats from record to record is judged once: FORMAT strings, keys, filters and
whole sample columns are remembered, in memories of a fixed size.
"""

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache

from carbon.genome.vcf_header_rules import CONTIG, Field, Header, Version, key_pattern, shown

_CHROM = re.compile(rf"{CONTIG.pattern}|<[^<>\s]+>")
_POS = re.compile(r"[0-9]{1,10}")
_BASES = r"[ACGTNacgtn]+"
_MATE = r"[^\[\]\s]+:[0-9]+"
# What a breakend keeps of the base at POS; "." where there is none, before or after a contig.
_KEPT = rf"(?:\.|\.?{_BASES}|{_BASES}\.)"
_REF = re.compile(_BASES)
_ALT = re.compile(
    rf"{_BASES}|\*|<[^<>\s]+>|{_BASES}<[^<>\s]+>|\.{_BASES}|{_BASES}\."
    rf"|{_KEPT}([\[\]]){_MATE}\1|([\[\]]){_MATE}\2{_KEPT}"
)
_ALLELE = r"(?:[0-9]{1,9}|\.)"
_GENOTYPE = rf"{_ALLELE}(?:[|/]{_ALLELE})*"
_ONE_ID = re.compile(r"[^\s;]+")
_SPACE = re.compile(r"\s")

_NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[iI][nN][fF](?:[iI][nN][iI][tT][yY])?"
_QUAL = re.compile(rf"\+?(?:{_NUMBER}|[nN][aA][nN])|-0\.?0*")
# One value of a Type, and in words.
_OF_TYPE = {
    "Integer": (r"[-+]?[0-9]+", "a whole number"),
    "Float": (rf"[-+]?(?:{_NUMBER}|[nN][aA][nN])", "a number"),
    "Flag": (r"[01]", "allowed: a flag has no value"),
    "Character": (r"%[0-9A-F]{2}|[^,]", "one letter"),
    "String": (r"[^,]*", "text"),
}
_COUNT = (r"\+?[0-9]+", "a whole number, 0 or more")
# What a reserved key of INFO demands beyond its Type.
_OF_INFO = {
    **dict.fromkeys(("AC", "AN", "DP", "END", "MQ0", "NS"), _COUNT),
    "AF": (rf"\+?(?:{_NUMBER}|[nN][aA][nN])", "a number, 0 or more"),
    "CIGAR": (r"(?:[0-9]+[MIDNSHPX=])+", "operations of an alignment, such as 3M1D"),
}
# 32 bits, less the eight lowest values: these stand for what is missing in BCF.
_SMALLEST, _LARGEST = -(2**31) + 8, 2**31 - 1
_REMEMBERED = 1 << 13
_SHORT = 64


class RecordRules:
    """The rules, for one pass over the records of one file."""

    def __init__(self, header: Header) -> None:
        self._header = header
        self._info = _InfoRules(header)
        self._samples = _SampleRules(header)
        self._repeats = _Repeats()

    def complaint(self, columns: Sequence[str]) -> str | None:
        """Return which rule a record breaks and what to do, or None.

        Args:
            columns: as text. Records come in the order of the file.
        """
        if len(columns) != self._header.num_columns:
            return (
                f"has {len(columns)} columns and the #CHROM line {self._header.num_columns}; "
                "separate them by single tabs, and write '.' for what is missing"
            )
        if "" in columns and self._header.version < (4, 5):
            return f"column {columns.index('') + 1} is empty; write '.' for what is missing"
        for rule, text in zip(_COLUMN_RULES, columns, strict=False):
            if complaint := rule(text):
                return complaint
        chrom, pos, _, ref, alt, _, _, info, *rest = columns
        alts = [] if alt == "." else alt.split(",")
        return (
            self._info.complaint(info, len(alts))
            or (self._samples.complaint(rest[0], rest[1:], len(alts)) if rest else None)
            or self._repeats.complaint(chrom, int(pos), ref, alts)
        )


@lru_cache(_REMEMBERED)
def _chrom_is_a_contig(text: str) -> str | None:
    if _CHROM.fullmatch(text):
        return None
    return f"CHROM {shown(text)} is not the name of a contig; rename it"


def _pos_is_a_number(text: str) -> str | None:
    if _POS.fullmatch(text):
        return None
    return f"POS {shown(text)} is not a whole number, 0 or more; mend it"


def _ids_are_names(text: str) -> str | None:
    if _ONE_ID.fullmatch(text):
        return None
    names = text.split(";")
    if not all(names) or _SPACE.search(text):
        return f"ID {shown(text)} must be names with ';' between and no spaces; mend it"
    if len(set(names)) < len(names):
        return f"ID {shown(text)} has a name twice; keep one"
    return None


def _ref_is_bases(text: str) -> str | None:
    if _REF.fullmatch(text):
        return None
    return f"REF {shown(text)} must be bases, ACGTN; for an ambiguity code write one of its bases"


def _alts_are_alleles(text: str) -> str | None:
    if text == "." or all(map(_ALT.fullmatch, text.split(","))):
        return None
    wrong = next(alt for alt in text.split(",") if not _ALT.fullmatch(alt))
    return f"ALT {shown(wrong)} is no allele; write bases (ACGTN), *, <ID> or a breakend"


@lru_cache(_REMEMBERED)
def _qual_is_a_number(text: str) -> str | None:
    if text == "." or _QUAL.fullmatch(text):
        return None
    return f"QUAL {shown(text)} is not a number, 0 or more; mend it, or write '.'"


@lru_cache(_REMEMBERED)
def _filters_are_names(text: str) -> str | None:
    names = text.split(";")
    if not all(names) or _SPACE.search(text) or ("." in names and len(names) > 1):
        return f"FILTER {shown(text)} must be PASS, '.' or names with ';' between; mend it"
    if "0" in names:
        return "FILTER 0 is reserved; name what failed, or write PASS"
    if len(set(names)) < len(names):
        return f"FILTER {shown(text)} has a name twice; keep one"
    return None


_COLUMN_RULES: tuple[Callable[[str], str | None], ...] = (
    _chrom_is_a_contig,
    _pos_is_a_number,
    _ids_are_names,
    _ref_is_bases,
    _alts_are_alleles,
    _qual_is_a_number,
    _filters_are_names,
)


class _Values:
    """The rules for the values of one key of INFO or FORMAT."""

    def __init__(self, field: Field, one: tuple[str, str], version: Version) -> None:
        self._field = field
        self._pattern = re.compile(rf"(?>{one[0]}|\.)(?:,(?>{one[0]}|\.))*+")
        self._in_words = one[1]
        # Lists of no values came with the local alleles.
        self._may_be_empty = version >= (4, 5)

    def complaint(self, text: str, num_alts: int, ploidy: int | None) -> str | None:
        """Return what is wrong with the values, or None; no ploidy for INFO or where unknown."""
        if text == "." or (not text and self._may_be_empty):
            return None
        if not text or not self._pattern.fullmatch(text):
            return f"{shown(text)} is not {self._in_words}; mend it, or write '.'"
        if self._field.type == "Integer" and len(text) > 9:
            for value in text.split(","):
                if value != "." and not _fits(value):
                    return f"{shown(value)} does not fit into 32 bits; mend it, or write '.'"
        count, expected = text.count(",") + 1, _num_values(self._field, num_alts, ploidy)
        if expected is None or count == expected:
            return None
        return (
            f"{shown(text)} counts {count}, and Number={self._field.number} asks for {expected} "
            "here; mend it, or write '.'"
        )


def _fits(number: str) -> bool:
    return len(number) <= len(str(_SMALLEST)) and _SMALLEST <= int(number) <= _LARGEST


def _num_values(field: Field, num_alts: int, ploidy: int | None) -> int | None:
    """Return how many values there must be; None where no count is asked for."""
    if field.number.isdecimal():
        return None if field.type == "Flag" else int(field.number)
    # Where there is no ALT, tools differ over what A, R and G count.
    if num_alts and field.number in ("A", "R"):
        return num_alts + (field.number == "R")
    if num_alts and field.number == "G" and ploidy:
        return math.comb(num_alts + ploidy, ploidy)
    return None


class _InfoRules:
    def __init__(self, header: Header) -> None:
        self._key = key_pattern(header.version)
        self._values = {
            key: _Values(field, _OF_INFO.get(key) or _one_value(field), header.version)
            for key, field in header.info.items()
        }
        # By the number of ALTs: items that were right, and their keys.
        self._good: defaultdict[int, dict[str, str]] = defaultdict(dict)

    def complaint(self, text: str, num_alts: int) -> str | None:
        if text == ".":
            return None
        good = self._good[num_alts]
        if len(good) > _REMEMBERED:
            good.clear()
        keys = set()
        for item in text.split(";"):
            key = good.get(item)
            if key is None:
                key, equals, value = item.partition("=")
                if complaint := self._item_complaint(key, value if equals else None, num_alts):
                    return f"INFO {complaint}"
                if len(item) <= _SHORT:
                    good[item] = key
            if key in keys:
                return f"INFO {shown(key)} stands twice; keep one"
            keys.add(key)
        return None

    def _item_complaint(self, key: str, value: str | None, num_alts: int) -> str | None:
        values = self._values.get(key)
        if values is None:
            is_key = self._key.fullmatch(key)
            return None if is_key else f"{shown(key)} is not a key; items are key or key=value"
        complaint = None if value is None else values.complaint(value, num_alts, None)
        return f"{key}: {complaint}" if complaint else None


class _SampleRules:
    def __init__(self, header: Header) -> None:
        self._header = header
        self._key = key_pattern(header.version)
        # What stands before the first allele came with 4.4.
        first = "[|/]?" if header.version >= (4, 4) else ""
        self._genotype = re.compile(first + _GENOTYPE)
        self._parsed = lru_cache(_REMEMBERED)(self._parse)
        # By FORMAT and the number of ALTs: whole columns that were right.
        self._good: defaultdict[tuple[str, int], set[str]] = defaultdict(set)

    def complaint(self, format_: str, samples: Sequence[str], num_alts: int) -> str | None:
        keys = self._parsed(format_)
        if isinstance(keys, str):
            return f"FORMAT {shown(format_)}: {keys}"
        good = self._good[format_, num_alts]
        if len(good) > _REMEMBERED:
            good.clear()
        for name, text in zip(self._header.samples, samples, strict=True):
            if text in good:
                continue
            if complaint := self._sample_complaint(text, keys, num_alts):
                return f"sample {shown(name)}: {complaint}"
            if len(text) <= _SHORT:
                good.add(text)
        return None

    def _sample_complaint(
        self, text: str, keys: Sequence[tuple[str, _Values | None]], num_alts: int
    ) -> str | None:
        values = text.split(":")
        if len(values) > len(keys):
            return f"has {len(values)} values and FORMAT {len(keys)} keys; remove what is too much"
        ploidy: int | None = 2
        for (key, rules), value in zip(keys, values, strict=False):
            if key == "GT":
                alleles = re.findall("[0-9]+", value)
                if not self._genotype.fullmatch(value):
                    return f"GT {shown(value)} is no genotype; write one such as 0/1, 1|0 or ./."
                if num_alts and any(int(allele) > num_alts for allele in alleles):
                    return f"GT {shown(value)} has an allele that ALT does not have; mend it"
                # A genotype that is not known may be written shorter than it is.
                ploidy = len(re.findall(_ALLELE, value)) if alleles else None
            elif rules and (complaint := rules.complaint(value, num_alts, ploidy)):
                return f"{key}: {complaint}"
        return None

    def _parse(self, text: str) -> str | list[tuple[str, _Values | None]]:
        """Return the keys with their rules, or what is wrong with them."""
        keys = text.split(":")
        if text != "." and (wrong := [key for key in keys if not self._key.fullmatch(key)]):
            return f"{shown(wrong[0])} is not a key; rename it"
        if len(set(keys)) < len(keys):
            return "a key stands twice; keep one"
        if "GT" in keys[1:]:
            return "GT must be the first key; move it"
        fields = [(key, self._header.format.get(key)) for key in keys]
        version = self._header.version
        return [
            (key, _Values(field, _one_value(field), version) if field else None)
            for key, field in fields
        ]


def _one_value(field: Field) -> tuple[str, str]:
    return _OF_TYPE[field.type.rpartition(" or ")[2]]


class _Repeats:
    """Tells a variant that an earlier record has, be it written with other bases around it."""

    def __init__(self) -> None:
        self._place = ("", 0)
        self._seen: set[tuple[int, str, str]] = set()

    def complaint(self, chrom: str, pos: int, ref: str, alts: Sequence[str]) -> str | None:
        if (chrom, pos) != self._place:
            # Trimming moves a variant to the right only, so what is behind cannot come again.
            same_contig = chrom == self._place[0]
            self._seen = {v for v in self._seen if v[0] >= pos} if same_contig else set()
            self._place = chrom, pos
        for alt in alts:
            if alt.isalpha():
                variant = _trimmed(pos, ref.upper(), alt.upper())
                if variant in self._seen:
                    return f"{shown(ref)} to {shown(alt)} stands in the file already; keep one"
                self._seen.add(variant)
        return None


def _trimmed(pos: int, ref: str, alt: str) -> tuple[int, str, str]:
    """Return a variant without the bases that both alleles end or begin with."""
    if len(ref) == len(alt) == 1:
        return pos, ref, alt
    end = _num_same(ref[::-1], alt[::-1])
    ref, alt = ref[: len(ref) - end], alt[: len(alt) - end]
    start = _num_same(ref, alt)
    return pos + start, ref[start:], alt[start:]


def _num_same(ref: str, alt: str) -> int:
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(ref, alt, strict=False))
    return sum(1 for _ in same)
