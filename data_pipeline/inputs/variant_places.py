"""Places of the records of a VCF or BCF: from POS to the last base that an allele replaces.

A record ends (0-based, half-open) at the largest of POS - 1 + the length of REF, END, POS + the
length in SVLEN of a deletion, duplication, inversion or copy number variant, and POS - 1 + the LEN
of a sample. Source: VCF 4.5 (samtools/hts-specs), sections 1.6.1, 3 and 5. SVLEN of a deletion is
negative before version 4.4.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path

from carbon.errors import UserError
from carbon.genome import Interval
from carbon.genome.vcf import info_of, variant_lines

_REF, _ALT, _INFO, _FORMAT = 3, 4, 7, 8  # columns of a VCF line, from 0
_SPANNING = frozenset({"DEL", "DUP", "INV", "CNV"})
_OF_KNOWN_LENGTH = frozenset({"INS", "NON_REF", "*"})  # what replaces REF and nothing after it
_ELSEWHERE = frozenset({"BND", "TRA", "CTX"})
_COPY_NUMBER = re.compile(r"CN[0-9]+")  # of the 1000 Genomes
_BREAKEND = re.compile(r".*[\[\]].*|\.[A-Za-z]+|[A-Za-z]+\.")


class Shortened(Enum):
    """Why less than the whole variant is in the place of a record; texts follow a count."""

    BREAKEND = "breakends: only REF is protected, not the place of the mate"
    NO_LENGTH = "symbolic alleles without END or SVLEN: only REF is protected"


def variant_places(path: Path, shortened: Counter[Shortened]) -> Iterator[Interval]:
    """Yield the place of each record, and count the records whose place is not all of the variant.

    The columns from ID on may be absent, except REF; a line without POS and REF is refused.

    Args:
        path: of a VCF, plain, gzip or bgzip, or a BCF.
        shortened: the counts to add to.

    Raises:
        UserError: the file is broken, or a line is not a record.
    """
    in_header = True  # below it, the name of a contig may begin with "#"
    for number, line in enumerate(variant_lines(path), start=1):
        text = line.decode("utf-8-sig", "replace").rstrip("\r\n")
        if text.strip() and not (in_header and text.startswith("#")):
            yield _place(text.split("\t"), f"{path} line {number}", shortened)
            in_header = False
        in_header = in_header and not text.startswith("#CHROM")


def _place(columns: list[str], where: str, shortened: Counter[Shortened]) -> Interval:
    if len(columns) <= _REF or not columns[1].isdecimal():
        raise UserError(f"{where}: is no line of VCF")
    position = int(columns[1])
    ref_end = position - 1 + len(columns[_REF])
    columns = [*columns, *[""] * (_FORMAT + 1 - len(columns))]
    info = info_of(columns[_INFO])
    alts = columns[_ALT].split(",")
    kinds = [_kind(alt, info.get("SVTYPE", "")) for alt in alts]
    if set(kinds) <= _ELSEWHERE or info.get("CHR2", columns[0]) != columns[0]:
        info.pop("END", None)  # where it is written at all, it is a position on another contig
    end = max(ref_end, *_ends(columns, info, kinds, position, where))
    shortened.update(_why_shortened(alts, kinds, has_length=end > ref_end))
    start = max(0, position - 1)  # POS 0 is a telomere
    return Interval(columns[0], start, max(start + 1, end))


def _ends(
    columns: list[str], info: Mapping[str, str], kinds: list[str], position: int, where: str
) -> Iterator[int]:
    """Yield 0 and the ends that INFO and FORMAT state, 0-based and half-open."""
    yield 0
    yield from _numbers(info.get("END", ""), "END", where)
    for size in _numbers(_lengths(info, kinds), "SVLEN", where):
        yield position + abs(size)
    for size in _numbers(_block_lengths(columns), "LEN", where):
        yield position - 1 + size


def _why_shortened(alts: list[str], kinds: list[str], *, has_length: bool) -> set[Shortened]:
    result = {Shortened.BREAKEND} if _ELSEWHERE & set(kinds) else set()
    of_unknown_length = any(
        alt.startswith("<") and kind not in _OF_KNOWN_LENGTH | _ELSEWHERE
        for alt, kind in zip(alts, kinds, strict=True)
    )
    if of_unknown_length and not has_length:
        result.add(Shortened.NO_LENGTH)
    return result


def _kind(alt: str, svtype: str) -> str:
    """Return the first level of a symbolic allele's type, or of SVTYPE where ALT does not say.

    A breakend of a deletion, duplication or inversion is of that kind, and so is an insertion that
    SVTYPE calls a duplication: more is protected rather than less.

    >>> _kind("<DUP:TANDEM>", ""), _kind("<CN0>", "DEL"), _kind("G]17:198982]", "")
    ('DUP', 'CNV', 'BND')
    >>> _kind("N", "DEL"), _kind("G]17:198982]", "INV"), _kind("<del>", "")
    ('DEL', 'INV', 'DEL')
    """
    stated = svtype.upper().partition(":")[0]
    own = alt.strip("<>").upper().partition(":")[0] if alt.startswith("<") else ""
    if _BREAKEND.fullmatch(alt):
        return stated if stated in _SPANNING else "BND"
    if _COPY_NUMBER.fullmatch(own):
        return "CNV"
    if own == "INS" and stated == "DUP":
        return stated
    is_known = own in _SPANNING | _OF_KNOWN_LENGTH | _ELSEWHERE
    return own if is_known else stated or own


def _lengths(info: Mapping[str, str], kinds: list[str]) -> str:
    """Return SVLEN of the alleles that span reference bases; all of it if it is not per ALT."""
    if not _SPANNING & set(kinds):
        return ""
    values = info.get("SVLEN", "").split(",")
    if len(values) == len(kinds):
        values = [value for value, kind in zip(values, kinds, strict=True) if kind in _SPANNING]
    return ",".join(values)


def _block_lengths(columns: list[str]) -> str:
    """Return LEN of the samples, the length of a reference block since version 4.5."""
    keys = columns[_FORMAT].split(":")
    if "LEN" not in keys:
        return ""
    cells = [sample.split(":") for sample in columns[_FORMAT + 1 :]]
    return ",".join(cell[keys.index("LEN")] for cell in cells if len(cell) > keys.index("LEN"))


def _numbers(text: str, key: str, where: str) -> list[int]:
    try:
        return [int(value) for value in text.split(",") if value not in ("", ".")]
    except ValueError:
        raise UserError(f"{where}: {key}={text}: must be whole numbers; mend the line") from None
