"""The rules of VCF for records: every column by itself, and against the header.

Source: the specifications of VCF 4.1 to 4.5 (samtools/hts-specs), section 1.6 and the tables of
reserved keys. What repeats from record to record, contigs, filters, items of INFO, is judged once
and remembered, in memories of a fixed size; all samples of a record are judged by one pattern.

That a variant stands in two records is no fault: no version of the text forbids it, and collections
of variants do it.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from carbon.genome.alphabet import IUPAC_DNA
from carbon.genome.vcf_findings import Complaint
from carbon.genome.vcf_header_rules import (
    CONTIG,
    Field,
    Header,
    Version,
    key_pattern,
    reserved,
    shown,
)

_ALT_COLUMN, _INFO_COLUMN = 4, 7

_CHROM = re.compile(rf"{CONTIG.pattern}|<[^<>\s]+>")
_POS = re.compile(r"[0-9]{1,10}")
_BASES = r"[ACGTNacgtn]+"
_MATE = r"[^\[\]\s,]+:[0-9]+"
# What a breakend keeps of the base at POS; "." where there is none, before or after a contig.
_KEPT = rf"(?:\.|\.?{_BASES}|{_BASES}\.)"
_REF = re.compile(_BASES)
_CODES = re.compile(rf"[{IUPAC_DNA}]+", re.IGNORECASE)
_ALT = re.compile(
    rf"{_BASES}|\*|<[^<>\s,]+>|{_BASES}<[^<>\s,]+>|\.{_BASES}|{_BASES}\."
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
# How much is remembered: texts, none longer than the second; patterns.
_REMEMBERED, _SHORT = 1 << 13, 64
_FEW = 256


class RecordRules:
    """The rules for the records of one file."""

    def __init__(self, header: Header) -> None:
        self._header = header
        self._info = _InfoRules(header)
        self._samples = _SampleRules(header)

    def complaints(self, columns: Sequence[str]) -> Iterator[Complaint]:
        """Yield which rules a record breaks, the first of each column, from left to right.

        Args:
            columns: as text.
        """
        if len(columns) != self._header.num_columns:
            yield Complaint(
                "num_columns",
                f"has {len(columns)} columns and the #CHROM line {self._header.num_columns}; "
                "separate them by single tabs, and write '.' for what is missing",
            )
            return
        for rule, text in zip(_COLUMN_RULES, columns, strict=False):
            if complaint := rule(text):
                yield complaint
        alt, info, rest = columns[_ALT_COLUMN], columns[_INFO_COLUMN], columns[_INFO_COLUMN + 1 :]
        num_alts = 0 if alt == "." else alt.count(",") + 1
        if complaint := self._info.complaint(info, num_alts):
            yield complaint
        if rest and (complaint := self._samples.complaint(rest[0], rest[1:], num_alts)):
            yield complaint


@lru_cache(_REMEMBERED)
def _chrom_is_a_contig(text: str) -> Complaint | None:
    if _CHROM.fullmatch(text):
        return None
    return Complaint("chrom", f"CHROM {shown(text)} is not the name of a contig; rename it")


def _pos_is_a_number(text: str) -> Complaint | None:
    if not _POS.fullmatch(text):
        return Complaint("pos", f"POS {shown(text)} is not a whole number, 0 or more; mend it")
    if len(text) > 9 and int(text) > _LARGEST:
        return Complaint("pos", f"POS {shown(text)} does not fit into 32 bits; mend it")
    return None


def _ids_are_names(text: str) -> Complaint | None:
    if _ONE_ID.fullmatch(text):
        return None
    names = text.split(";")
    if not all(names) or _SPACE.search(text):
        wrong = f"ID {shown(text)} must be names with ';' between and no spaces; mend it"
        return Complaint("id", wrong)
    if len(set(names)) < len(names):
        return Complaint("id", f"ID {shown(text)} has a name twice; keep one")
    return None


def _ref_is_bases(text: str) -> Complaint | None:
    if _REF.fullmatch(text):
        return None
    return Complaint(
        "ambiguity_code" if _CODES.fullmatch(text) else "ref",
        f"REF {shown(text)} must be bases, ACGTN; for an ambiguity code write one of its bases",
    )


def _alts_are_alleles(text: str) -> Complaint | None:
    if _ALT.fullmatch(text) or text == ".":
        return None
    wrong = [alt for alt in text.split(",") if not _ALT.fullmatch(alt)]
    if not wrong:
        return None
    no_code = [alt for alt in wrong if not _CODES.fullmatch(alt)]
    return Complaint(
        "alt" if no_code else "ambiguity_code",
        f"ALT {shown((no_code or wrong)[0])} is no allele; write bases (ACGTN), *, <ID> or a "
        "breakend",
    )


@lru_cache(_REMEMBERED)
def _qual_is_a_number(text: str) -> Complaint | None:
    if text == "." or _QUAL.fullmatch(text):
        return None
    wrong = f"QUAL {shown(text)} is not a number, 0 or more; mend it, or write '.'"
    return Complaint("qual", wrong)


@lru_cache(_REMEMBERED)
def _filters_are_names(text: str) -> Complaint | None:
    names = text.split(";")
    if not all(names) or _SPACE.search(text) or ("." in names and len(names) > 1):
        wrong = f"FILTER {shown(text)} must be PASS, '.' or names with ';' between; mend it"
        return Complaint("filter", wrong)
    if "0" in names:
        return Complaint("filter", "FILTER 0 is reserved; name what failed, or write PASS")
    if len(set(names)) < len(names):
        return Complaint("filter", f"FILTER {shown(text)} has a name twice; keep one")
    return None


_COLUMN_RULES: tuple[Callable[[str], Complaint | None], ...] = (
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
        self._one = rf"(?>{one[0]}|\.)"
        self._pattern = re.compile(rf"{self._one}(?:,{self._one})*+")
        self._in_words = one[1]
        # Lists of no values came with the local alleles.
        self._may_be_empty = version >= (4, 5)

    def usual(self, num_alts: int, ploidy: int | None) -> str:
        """Return a pattern of values that are surely right, inside the column of a sample."""
        expected = _num_values(self._field, num_alts, ploidy)
        if expected == 0:
            return r"\."
        times = f"{{{expected - 1}}}" if expected else "*+"
        one = self._one
        for wide, narrow in (("[0-9]+", "[0-9]{1,9}"), ("[^,]*", "[^,]+"), ("[^,]", r"[^,:\t]")):
            one = one.replace(wide, narrow)
        return rf"(?>{one}(?:,{one}){times}|\.)"

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
        # What a file declares otherwise is not held against what the specification demands.
        kept = {key for key, field in reserved("INFO", header.version).items()
                if field == header.info[key]}  # fmt: skip
        self._values = {
            key: _Values(
                field,
                _OF_INFO[key] if key in kept and key in _OF_INFO else _one_value(field),
                header.version,
            )
            for key, field in header.info.items()
        }
        # By the number of ALTs: items that were right, and their keys.
        self._good: defaultdict[int, dict[str, str]] = defaultdict(dict)

    def complaint(self, text: str, num_alts: int) -> Complaint | None:
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
                    return complaint
                if len(item) <= _SHORT:
                    good[item] = key
            if key in keys:
                return Complaint("info", f"INFO {shown(key)} stands twice; keep one")
            keys.add(key)
        return None

    def _item_complaint(self, key: str, value: str | None, num_alts: int) -> Complaint | None:
        values = self._values.get(key)
        if values is None:
            if self._key.fullmatch(key):
                return None
            wrong = f"INFO {shown(key)} is not a key; items are key or key=value"
            return Complaint("info", wrong)
        text = None if value is None else values.complaint(value, num_alts, None)
        return Complaint("info_values", f"INFO {key}: {text}") if text else None


_Keys = tuple[tuple[str, _Values | None], ...]


class _SampleRules:
    def __init__(self, header: Header) -> None:
        self._header = header
        self._key = key_pattern(header.version)
        # What stands before the first allele came with 4.4.
        first = "[|/]?" if header.version >= (4, 4) else ""
        self._genotype = re.compile(first + _GENOTYPE)
        self._parsed = lru_cache(_FEW)(self._parse)
        self._usual = lru_cache(_FEW)(_usual_samples)

    def complaint(self, format_: str, samples: Sequence[str], num_alts: int) -> Complaint | None:
        keys = self._parsed(format_)
        if isinstance(keys, str):
            return Complaint("format", f"FORMAT {shown(format_)}: {keys}")
        # Thousands of samples at once, most often; one by one only where that does not do.
        if self._usual(keys, num_alts).fullmatch("\t".join(samples)):
            return None
        for name, text in zip(self._header.samples, samples, strict=True):
            if wrong := self._sample_complaint(text, keys, num_alts):
                return Complaint("sample_values", f"sample {shown(name)}: {wrong}")
        return None

    def _sample_complaint(self, text: str, keys: _Keys, num_alts: int) -> str | None:
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

    def _parse(self, text: str) -> str | _Keys:
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
        return tuple(
            (key, _Values(field, _one_value(field), version) if field else None)
            for key, field in fields
        )


def _one_value(field: Field) -> tuple[str, str]:
    return _OF_TYPE[field.type.rpartition(" or ")[2]]


def _usual_samples(keys: _Keys, num_alts: int) -> re.Pattern[str]:
    """Return what the columns of diploid and haploid samples match that are surely right."""
    kinds = "|".join(_usual_sample(keys, num_alts, ploidy) for ploidy in (2, 1, None))
    one = rf"(?>(?:{kinds})(?![^\t]))"
    return re.compile(rf"{one}(?:\t{one})*+")


def _usual_sample(keys: _Keys, num_alts: int, ploidy: int | None) -> str:
    allele = f"[.0-{min(num_alts, 9) or 9}]"
    diploid, haploid, unknown = rf"{allele}[|/]{allele}", allele, r"\.(?:[|/]\.)*"
    genotype = {2: diploid, 1: haploid, None: unknown}[ploidy]
    if keys[0][0] != "GT":
        ploidy = 2
    values = [
        genotype if key == "GT" else rules.usual(num_alts, ploidy) if rules else r"[^:\t]*"
        for key, rules in keys
    ]
    # Values at the end may be left out.
    return "(?::".join(values) + ")?" * (len(values) - 1)
