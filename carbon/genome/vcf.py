"""Read VCF and BCF records, check them, and filter them.

A VCF is read as text, because htslib silently repairs it: it drops or completes header lines, and
turns values that do not fit their Type into missing values. `check_with_htslib` compares the text
with htslib's reading of it. A BCF is read as htslib prints it. The content of a file decides which
of the two it is.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

import pysam

from carbon.errors import GenomeError, UserError, abridged
from carbon.genome import sequences
from carbon.genome.alphabet import IUPAC_DNA
from carbon.genome.bed import Regions
from carbon.genome.fasta import Disagreement, Reference
from carbon.genome.interval import Variant
from carbon.genome.sequences import BROKEN_GZIP, BYTE_ORDER_MARK, compression_of, open_bytes
from carbon.io.files import why_no_file

_VCF, _BCF = b"##fileformat=VCF", b"BCF\x02"
_ENCODING = ("utf-8", "utf-8-sig")  # the first line may begin with a byte-order mark
# htslib declares PASS itself, and drops text in brackets that is not a list of key=value.
_NOT_COMPARED = re.compile(r"##FILTER=<ID=PASS,.*|##[^=]+=<(?!\w+=).+>")
_FIXED_COLUMNS = 9  # up to FORMAT
_SEPARATOR = re.compile("[;:,=]")


def is_bcf(path: Path) -> bool:
    """Return whether a file begins like a BCF of version 2, compressed or not."""
    return _first_bytes(path).startswith(_BCF)


def holds_variants(path: Path) -> bool:
    """Return whether a regular file has the content of a VCF or BCF."""
    if not path.is_file():
        return False
    return _first_bytes(path).removeprefix(BYTE_ORDER_MARK).startswith((_VCF, _BCF))


def _first_bytes(path: Path) -> bytes:
    try:
        with open_bytes(path) as source:
            return source.read(len(BYTE_ORDER_MARK + _VCF))
    except BROKEN_GZIP:
        return b""


def variant_lines(path: Path) -> Iterator[bytes]:
    """Yield all lines of a VCF or BCF with their ends, header first, one in memory at a time.

    Raises:
        GenomeError: the file is broken or truncated, or a line is too long.
    """
    yield from _bcf_lines(path) if is_bcf(path) else _vcf_lines(path)


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line number and text, with its end, of each line that is not empty.

    Raises:
        GenomeError: as in `variant_lines`, or the file is not UTF-8.
    """
    number = 0
    try:
        for number, line in enumerate(variant_lines(path), start=1):
            if line.strip(b"\r\n"):
                yield number, line.decode(_ENCODING[number == 1])
    except UnicodeDecodeError:
        raise GenomeError(f"{path} line {number}: is not UTF-8; {sequences.TO_UTF_8}") from None


def _vcf_lines(path: Path) -> Iterator[bytes]:
    try:
        with open_bytes(path) as source:
            lines = iter(partial(source.readline, sequences.MOST_LINE_BYTES + 1), b"")
            for number, line in enumerate(lines, start=1):
                if sequences.is_too_long(len(line)):
                    raise GenomeError(f"{path} line {number}: {sequences.too_long()}")
                yield line
    except BROKEN_GZIP as error:
        raise GenomeError(f"{path}: is broken or cut off ({error}); fetch it again") from None


def _bcf_lines(path: Path) -> Iterator[bytes]:
    if compression_of(path) == "gzip":
        raise GenomeError(f"{path}: is a BCF packed by plain gzip; unpack it with `gunzip`")
    place, remedy = f"{path}", "fetch it again"
    try:
        with _opened(str(path)) as records:
            yield from str(records.header).encode().splitlines(keepends=True)
            remedy += ", or declare its contig, FILTER, INFO and FORMAT in the header"
            place = f"{path} record 1"
            for number, record in enumerate(records, start=2):
                yield str(record).encode()
                place = f"{path} record {number}"
    except (OSError, ValueError) as error:
        why = error if isinstance(error, OSError) else "htslib cannot parse it"
        raise GenomeError(f"{place}: is broken or cut off ({why}); {remedy}") from None


@contextmanager
def _opened(source: str | IO[bytes]) -> Iterator[pysam.VariantFile]:
    verbosity = pysam.set_verbosity(0)  # failures raise exceptions
    try:
        records = pysam.VariantFile(source)
        try:
            yield records
        finally:
            with suppress(OSError):  # closing a broken file raises the same error again
                records.close()
    finally:
        pysam.set_verbosity(verbosity)


def check_with_htslib(path: Path) -> None:
    """Raise GenomeError unless htslib's reading of each line of a VCF equals its text.

    Names that the header does not declare are allowed, as in the VCF specification: htslib declares
    them itself, and treats their values as text.
    """
    lines = ((number, line.rstrip("\r\n")) for number, line in text_lines(path))
    why = f"`bcftools view -h {path}` prints why"
    wrong: str | None = f"{path}: htslib cannot parse the header; {why}"
    try:
        # pysam cannot open a plain gzip by name.
        with path.open("rb") as source, _opened(source) as file:
            wrong = _first_change(path, file, lines)
    except (OSError, ValueError) as error:
        if isinstance(error, GenomeError):
            raise
    if wrong:
        raise GenomeError(f"{wrong} (not checked without `--strict`)")


def _first_change(
    path: Path, file: pysam.VariantFile, lines: Iterator[tuple[int, str]]
) -> str | None:
    """Return a message about the first change by htslib, None if it changes nothing."""
    header_lines, names = set(str(file.header).splitlines()), []
    declared = set()
    for number, text in lines:
        name = text.partition(",")[0].rstrip(">")
        is_second = name in declared  # htslib keeps the first; VCF before 4.3 allows repeats
        declared.add(name)
        is_compared = not is_second and not _NOT_COMPARED.fullmatch(text)
        if is_compared and text not in header_lines:
            return f"{path} line {number}: htslib drops or rewrites {text[:60]!r}; correct the line"
        names = text.split("\t")
        if not text.startswith("##"):
            break
    for number, (_, text) in enumerate(lines, start=1):
        columns = text.split("\t")
        where = f"{path} record {number} ({columns[0]}:{columns[1]}): htslib"
        try:
            printed = str(next(file)).rstrip("\n").split("\t")
        except (OSError, ValueError, StopIteration):
            printed = []
        if len(printed) != len(columns):
            return f"{where} cannot parse the record; `bcftools view {path}` prints why"
        for column, (name, ours, theirs) in enumerate(zip(names, columns, printed, strict=True)):
            if ours != theirs and not _same_values(ours, theirs, column >= _FIXED_COLUMNS):
                change = f"{name} {ours[:60]!r} as {theirs[:60]!r}"
                return f"{where} reads {change}; correct it, or its declaration in the header"
    return None


def _same_values(ours: str, theirs: str, is_sample: bool) -> bool:
    """Return whether two columns have equal values; htslib adds missing values of a sample."""
    values, others = _SEPARATOR.split(ours), _SEPARATOR.split(theirs)
    if is_sample:
        values = [value or "." for value in values] + ["."] * (len(others) - len(values))
    return len(values) == len(others) and all(map(_is_same, values, others))


def _is_same(ours: str, theirs: str) -> bool:
    """Return whether two values are equal; htslib prints 32-bit floats with six digits."""
    if ours == theirs:
        return True
    try:
        a, b = float(ours), float(theirs)
    except ValueError:
        return False
    return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-37) or (math.isnan(a) and math.isnan(b))


COLUMNS = ("#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO")
_CHROM, _POS, _, _REF, _ALT, _QUAL, _FILTER, _INFO = range(len(COLUMNS))
_LAST_POS, _MOST_DIGITS = 2**31 - 1, 10  # BCF holds 32 bits

# Contig names, as in SAM.
CONTIG = re.compile(r"[0-9A-Za-z!#$%&+./:;?@^_|~-][0-9A-Za-z!#$%&*+./:;=?@^_|~-]*")
_DECLARED = re.compile(rf'##contig=<(?:[^"]*,)?ID=({CONTIG.pattern})(?:,.*)?>')
_CODES = re.compile(rf"[{IUPAC_DNA}]+", re.IGNORECASE)
_BASES, _MATE = r"[ACGTNacgtn]+", r"[^\[\]\s,]+:[0-9]+"
# Bases of a breakend; "." if the contig has no base.
_KEPT = rf"(?:\.|\.?{_BASES}|{_BASES}\.)"
_ALLELE = (
    rf"(?:{_BASES}|\*|<[^<>\s,]+>|{_BASES}<[^<>\s,]+>|\.{_BASES}|{_BASES}\."
    rf"|{_KEPT}\[{_MATE}\[|{_KEPT}\]{_MATE}\]|\[{_MATE}\[{_KEPT}|\]{_MATE}\]{_KEPT})"
)
# Header lines by their beginning: the pattern, and the form for messages.
_TEXT = r'"(?:[^"\\]|\\.)*"'
_FIELD = (
    r"=<ID=[^\s,;=]+,Number=(?:[0-9]+|[.ARGPM]|L[ARG]),Type=(?:{types})"
    rf",Description={_TEXT}(?:,\w+=(?:{_TEXT}|[^\",]+))*>"
)
_FIELD_FORM = '<ID=key,Number=1,Type=String,Description="...">'
_TYPES = "Integer|Float|Character|String"
_LINES = {
    "##contig": (_DECLARED, "<ID=name,...>"),
    "##INFO": (re.compile("##INFO" + _FIELD.replace("{types}", f"{_TYPES}|Flag")), _FIELD_FORM),
    "##FORMAT": (re.compile("##FORMAT" + _FIELD.replace("{types}", _TYPES)), _FIELD_FORM),
}
_NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[iI][nN][fF](?:[iI][nN][iI][tT][yY])?"
_NAME, _FAILED = r"[^\s;]+", r"(?![0.](?:[;\t]|$))[^\s;]+"
# Columns in the order of the file: the pattern of their text, and the end of the message.
_RULES = {
    "CHROM": (rf"{CONTIG.pattern}|<[^<>\s]+>", "is not the name of a contig; rename it"),
    "POS": (rf"[0-9]{{1,{_MOST_DIGITS}}}", "is not a whole number, 0 or more; correct it"),
    "ID": (rf"{_NAME}(?:;{_NAME})*", "must be names with ';' between and no spaces; correct it"),
    "REF": (_BASES, "must be bases, ACGTN; for an ambiguity code write one of its bases"),
    "ALT": (
        rf"\.|{_ALLELE}(?:,{_ALLELE})*",
        "is not an allele; write bases (ACGTN), *, <ID> or a breakend",
    ),
    "QUAL": (
        rf"\.|\+?(?:{_NUMBER}|[nN][aA][nN])|-0\.?0*",
        "is not a number, 0 or more; correct it, or write '.'",
    ),
    "FILTER": (
        rf"\.|{_FAILED}(?:;{_FAILED})*",
        "must be PASS, '.' or names with ';' between, none of them 0; correct it",
    ),
}
_PATTERNS = {column: re.compile(pattern) for column, (pattern, _) in _RULES.items()}
# All columns in one pattern, which most lines match.
_RIGHT = re.compile("".join(rf"(?:{pattern})\t" for pattern, _ in _RULES.values()))
# With these mistakes, a score could be written next to other bases. Other mistakes are warnings.
_REFUSED = frozenset({"column_line", "num_columns", "chrom", "pos", "ref", "alt"})
# VCF recommends a ##contig line for each contig but does not require it.
_ALLOWED = frozenset({"contig"})

# VCF 4.3, section 1.2: characters with a meaning in INFO are percent-encoded. So are control
# characters, and blanks, which earlier versions do not allow there.
_ENCODED = {code: f"%{code:02X}" for code in (*range(33), 127, *map(ord, "%;=,"))}


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordFilter:
    """Conditions on the records that a reader yields; a record must meet all of them.

    Attributes:
        regions: POS must lie in one of these regions.
        min_qual: minimum of QUAL. A record without QUAL fails.
        filters: FILTER must have at least one of these names, such as `PASS`; `.` matches records
            to which no filter was applied.
    """

    regions: Regions | None = None
    min_qual: float | None = None
    filters: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise UserError unless the minimum is a number and each filter a name."""
        if self.min_qual is not None and not math.isfinite(self.min_qual):
            raise UserError(f"minimum QUAL {self.min_qual}: give a finite number, such as 30")
        for name in self.filters:
            if name != "." and not re.fullmatch(_FAILED, name):
                raise UserError(f"FILTER {name!r}: give a name, such as PASS, or several by commas")

    def failed(self, contig: str, columns: Sequence[str]) -> str | None:
        """Return the condition that a record fails: `region`, `qual` or `filter`; else None.

        Args:
            contig: the reference's name of the contig.
            columns: columns of the record, as text; QUAL is a number or `.`.
        """
        if self.regions and not self.regions.holds(contig, int(columns[_POS]) - 1):
            return "region"
        qual = columns[_QUAL]
        if self.min_qual is not None and (qual == "." or not float(qual) >= self.min_qual):
            return "qual"
        if self.filters and not set(columns[_FILTER].split(";")) & set(self.filters):
            return "filter"
        return None


class VcfRow(NamedTuple):
    """A record of a VCF or BCF.

    Attributes:
        columns: columns as text, unchanged.
        contig: the reference's name of the contig.
        variants: one variant per ALT, on that contig.
        disagreement: disagreement of REF with the reference; None if they agree.
        number: number of the record in the file, from 1.
    """

    columns: tuple[str, ...]
    contig: str
    variants: tuple[Variant, ...]
    disagreement: Disagreement | None
    number: int

    def with_info(self, added: str) -> str:
        """Return the line with text added to its INFO column."""
        info = self.columns[_INFO].rstrip(";")
        joined = ";".join(part for part in ("" if info == "." else info, added) if part) or "."
        return "\t".join((*self.columns[:_INFO], joined, *self.columns[_INFO + 1 :])) + "\n"


class Mistake(NamedTuple):
    """A broken rule of the format, by its name in `warnings`, and the problem with its remedy."""

    rule: str
    text: str


class Warned(NamedTuple):
    """A broken rule that does not prevent reading the file.

    Attributes:
        first_line: number of the first line that breaks the rule, from 1.
        text: problem and remedy in that line.
        num_lines: number of lines that break the rule.
    """

    first_line: int
    text: str
    num_lines: int


_Warnings = dict[str, Warned]


class VcfReader:
    """Reader of a sorted VCF (plain, gzip or bgzip) or BCF, and the reference it was called on.

    Attributes:
        path: the file.
        header: header lines, unchanged, `#CHROM` last.
        contigs: contigs that the header declares; empty if it declares none.
        warnings: mistakes by rule, in the header, and after a full pass also in the records.
        left_out: number of records that the filter rejected in a full pass, by condition.
    """

    def __init__(
        self,
        path: str | Path,
        reference: Reference | None = None,
        *,
        strict: bool = False,
        contig_names: Mapping[str, str] | None = None,
        keep: RecordFilter | None = None,
    ) -> None:
        """Open the file and check its header.

        Args:
            path: VCF or BCF file.
            reference: reference that REF is compared with; None compares it with nothing.
            strict: refuse every mistake. The first full pass ends with an error if htslib's reading
                of a line differs from its text.
            contig_names: the reference's name of each contig that the file names differently.
            keep: records to yield; all if None. The other records are checked, too.

        Raises:
            GenomeError: the file does not exist, is not a VCF or BCF, or its header is malformed.
        """
        self.path = Path(path)
        self._reference, self._strict = reference, strict
        self._names = contig_names or {}
        self._keep = keep or RecordFilter()
        # QUAL that is not a number cannot be compared with the minimum.
        self._refused = _REFUSED | ({"qual"} if self._keep.min_qual is not None else set())
        self.warnings: _Warnings = {}
        self.left_out: Counter[str] = Counter()
        self._check_is_a_vcf()
        self._needs_htslib = strict and not is_bcf(self.path)
        lines = list(self._header_lines())
        self.header = [line for _, line in lines]
        self.contigs = frozenset(m[1] for line in self.header if (m := _DECLARED.fullmatch(line)))
        for number, mistake in _header_mistakes(lines):
            self._take(mistake, number, f"{path} line {number}", self.warnings)
        self._of_header = dict(self.warnings)

    def __iter__(self) -> Iterator[VcfRow]:
        """Yield the records that the filter keeps, in order; several passes may run at once.

        Records whose REF disagrees with the reference are yielded with the disagreement.

        Raises:
            GenomeError: a record is malformed or out of order.
        """
        warnings, left_out = dict(self._of_header), Counter[str]()
        for number, columns in enumerate(self._checked_records(warnings), start=1):
            contig = self._names.get(columns[_CHROM], columns[_CHROM])
            if condition := self._keep.failed(contig, columns):
                left_out[condition] += 1
            else:
                yield self._row(number, contig, columns)
        self.warnings, self.left_out = warnings, left_out
        if self._needs_htslib:
            check_with_htslib(self.path)
            self._needs_htslib = False

    def warning_lines(self) -> Iterator[str]:
        """Yield a line for each rule that the header or a record breaks."""
        for rule, (line, text, count) in self.warnings.items():
            times = f"{count:,} times, first in " if count > 1 else ""
            yield f"warning: {self.path}: {rule}, {times}line {line}: {text}"

    def _row(self, number: int, contig: str, columns: tuple[str, ...]) -> VcfRow:
        start, ref = int(columns[_POS]) - 1, columns[_REF]
        alts = () if columns[_ALT] == "." else columns[_ALT].split(",")
        variants = tuple(Variant(contig, start, ref, alt) for alt in alts)
        compared = self._reference
        disagreement = compared.disagreement(contig, start, ref) if compared else None
        return VcfRow(columns, contig, variants, disagreement, number)

    def _take(self, mistake: Mistake, line: int, where: str, warnings: _Warnings) -> None:
        """Add a mistake to the warnings; raises GenomeError if the file is refused for it."""
        rule, text = mistake
        if rule in self._refused:
            raise GenomeError(f"{where}: {text}")
        if self._strict and rule not in _ALLOWED:
            raise GenomeError(f"{where}: {text} (a warning without `--strict`)")
        first = warnings.get(rule, Warned(line, text, 0))
        warnings[rule] = first._replace(num_lines=first.num_lines + 1)

    def _check_is_a_vcf(self) -> None:
        """Raise GenomeError unless the file can be read twice and begins like a VCF or BCF."""
        if str(self.path) == "-":
            raise GenomeError("standard input: a VCF is read twice; save it and give the file")
        if not self.path.is_file():
            raise GenomeError(f"{self.path}: {why_no_file(self.path)}; give a VCF or BCF file")
        if not holds_variants(self.path):
            raise GenomeError(
                f"{self.path}: is not a VCF or BCF: a VCF must begin with '##fileformat=VCF' and "
                "have a #CHROM line"
            )

    def _header_lines(self) -> Iterator[tuple[int, str]]:
        """Yield number and text of the lines up to `#CHROM`, or up to the line in its place."""
        for number, line in text_lines(self.path):
            yield number, line.rstrip("\r\n")
            if not line.startswith("##"):
                return

    def _checked_records(self, warnings: _Warnings) -> Iterator[tuple[str, ...]]:
        """Yield the columns of each record, and add its mistakes to the warnings.

        Raises:
            GenomeError: a mistake of a record is refused.
        """
        num_columns = self.header[-1].count("\t") + 1
        line, text, order = 0, "\n", _Order()
        for number, (line, text) in enumerate(text_lines(self.path), start=1 - len(self.header)):
            if number < 1:
                continue
            columns, where = tuple(text.rstrip("\r\n").split("\t")), f"{self.path} record {number}"
            mistakes = list(_record_mistakes(text, columns, num_columns, self.contigs))
            if not any(mistake.rule in ("num_columns", "pos") for mistake in mistakes):
                contig, position = columns[_CHROM], int(columns[_POS])
                where = f"{where} ({contig}:{position})"
                order.check(contig, position, where)
            for mistake in mistakes:
                self._take(mistake, line, where, warnings)
            yield columns
        # Since VCF 4.3, the last line must have a line end.
        if not text.endswith("\n") and self.header[0][-3:] >= "4.3":
            wrong = "has no line end, so the file may be cut off"
            mistake = Mistake("line_end", f"{wrong}; fetch it again, or add the line end")
            self._take(mistake, line, f"{self.path} line {line}", warnings)


class _Order:
    """Check of the order of records: each contig in one block, with ascending positions."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._last = ("", 0)

    def check(self, contig: str, position: int, where: str) -> None:
        """Raise GenomeError unless this record may follow the last one."""
        before, last_position = self._last
        if contig in self._seen and (contig != before or position < last_position):
            raise GenomeError(
                f"{where}: comes after {before}:{last_position}, the file is not sorted; "
                "sort it with `bcftools sort`"
            )
        self._seen.add(contig)
        self._last = contig, position


def _header_mistakes(lines: Sequence[tuple[int, str]]) -> Iterator[tuple[int, Mistake]]:
    """Yield line number and mistake, first for the column line, whose mistakes are refused."""
    (first_number, first), (number, line) = lines[0], lines[-1]
    if text := _wrong_columns(line):
        yield number, Mistake("column_line", text)
    if not re.fullmatch(r"##fileformat=VCFv4\.[0-5]", first):
        known = "is not a known version; the first line is '##fileformat=VCFv4.x', x from 0 to 5"
        yield first_number, Mistake("fileformat", f"{abridged(first)!r} {known}")
    for number, line in lines:
        for beginning, (pattern, form) in _LINES.items():
            if line.startswith(f"{beginning}=") and not pattern.fullmatch(line):
                text = f"{abridged(line)!r} is not of the form {beginning}={form}; correct it"
                yield number, Mistake("header_line", text)


def _wrong_columns(line: str) -> str | None:
    """Return the mistake in the `#CHROM` line, or None."""
    names = line.split("\t")
    more, samples = names[len(COLUMNS) :], names[len(COLUMNS) + 1 :]
    if more == [""]:
        return "the line of columns ends in a tab; remove it"
    if not line.startswith("#") and len(names) >= len(COLUMNS):
        return f"the #CHROM line is missing; add it before the records: {' '.join(COLUMNS)}"
    if tuple(names[: len(COLUMNS)]) != COLUMNS or more[:1] not in ([], ["FORMAT"]):
        return (
            f"{abridged(line)!r} is neither a ##key=value line nor the line of columns: "
            f"{' '.join(COLUMNS)}, then FORMAT and the samples if there are any, with tabs between"
        )
    if more and not samples:
        return "there is a FORMAT column but no sample; add them, or drop the column"
    if not all(samples):
        return "a sample has no name; remove the tab too many, or name it"
    twice = [name for name, count in Counter(samples).items() if count > 1]
    return f"sample {abridged(twice[0])!r} occurs twice; rename one of them" if twice else None


def _record_mistakes(
    line: str, columns: Sequence[str], num_columns: int, contigs: frozenset[str]
) -> Iterator[Mistake]:
    """Yield the mistakes in the columns of a record before INFO.

    Args:
        line: text of the record.
        columns: columns of the record.
        num_columns: number of columns of the `#CHROM` line.
        contigs: contigs declared in the header; if empty, any contig is allowed.
    """
    if len(columns) != num_columns:
        yield Mistake(
            "num_columns",
            f"has {len(columns)} columns and the #CHROM line {num_columns}; separate them by "
            "single tabs, and write '.' for what is missing",
        )
        return
    if not _RIGHT.match(line):
        for (column, pattern), text in zip(_PATTERNS.items(), columns, strict=False):
            if not pattern.fullmatch(text):
                yield _mistake_in(column, text)
    contig, position = columns[_CHROM], columns[_POS]
    if len(position) == _MOST_DIGITS and position > str(_LAST_POS):
        yield Mistake("pos", f"POS {abridged(position)!r} does not fit into 32 bits; correct it")
    if contigs and contig not in contigs and not contig.startswith("<"):
        text = f"CHROM {abridged(contig)!r} has no ##contig line, and others have; add it"
        yield Mistake("contig", text)


def _mistake_in(column: str, text: str) -> Mistake:
    """Return the mistake in a column; alleles with an ambiguity code have a rule of their own."""
    alleles = text.split(",") if column == "ALT" else [text]
    wrong = [each for each in alleles if each == "." or not _PATTERNS[column].fullmatch(each)]
    others = [each for each in wrong if not _CODES.fullmatch(each)]
    is_code = column in ("REF", "ALT") and not others
    text = f"{column} {abridged((others or wrong)[0])!r} {_RULES[column][1]}"
    return Mistake("ambiguity_code" if is_code else column.lower(), text)


def info_of(column: str) -> dict[str, str]:
    """Return the values of an INFO column by key, an empty text for a flag.

    >>> info_of("DB;AC=1,2")
    {'DB': '', 'AC': '1,2'}
    """
    return {key: value for key, _, value in (part.partition("=") for part in column.split(";"))}


def info_text(text: str) -> str:
    """Return text encoded as one value of INFO, in which a comma does not separate values.

    >>> info_text("a;b, 50%")
    'a%3Bb%2C%2050%25'
    """
    return text.translate(_ENCODED)


def vcf_text(variants: Iterable[tuple[Variant, str]], contig_lengths_bp: Mapping[str, int]) -> str:
    """Return a VCF of variants, each with an ID, which is left out if VCF does not allow it."""
    lines = ["##fileformat=VCFv4.3"]
    lines += [f"##contig=<ID={name},length={bp}>" for name, bp in contig_lengths_bp.items()]
    lines.append("\t".join(COLUMNS))
    for variant, name in variants:
        shown = name if re.fullmatch(_NAME, name) else "."
        columns = (variant.contig, variant.position + 1, shown, variant.ref, variant.alt)
        lines.append("\t".join(map(str, (*columns, ".", ".", "."))))
    return "".join(f"{line}\n" for line in lines)
