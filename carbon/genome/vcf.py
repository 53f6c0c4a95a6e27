"""VCF read record by record, checked against a reference, with every line kept as it stands.

Of a BCF the lines are those that htslib prints.

The rules of the specification stand in `vcf_header_rules` and `vcf_record_rules`, and what becomes
of a file that breaks one in `vcf_findings`. The text of a line travels beside what is read of it,
so that what is written out again differs from the input in what was added and in nothing else.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from carbon.errors import GenomeError, UserError
from carbon.genome.fasta import Disagreement, Reference
from carbon.genome.variant import Variant
from carbon.genome.vcf_findings import Complaint, Findings
from carbon.genome.vcf_header_rules import Header, check_header
from carbon.genome.vcf_lines import holds_variants, variant_lines
from carbon.genome.vcf_record_rules import RecordRules
from carbon.io.files import why_no_file

_POS, _REF, _ALT, _INFO = 1, 3, 4, 7  # columns of a VCF line, from 0
_ENCODING = ("utf-8", "utf-8-sig")  # of the first line, which may begin with a mark

_Place = tuple[str, int]
"""A contig and a position as the file has it, from 1."""


class VcfRow(NamedTuple):
    """One record.

    Attributes:
        columns: as text, as they stand.
        contig: of the reference.
        variants: one for each ALT, on that contig.
        disagreement: why REF cannot be taken to stand in the reference; None where it does.
    """

    columns: tuple[str, ...]
    contig: str
    variants: tuple[Variant, ...]
    disagreement: Disagreement | None

    def with_info(self, added: str) -> str:
        """Return the line with more in its INFO column."""
        info = self.columns[_INFO].rstrip(";")
        joined = ";".join(part for part in ("" if info == "." else info, added) if part) or "."
        return "\t".join((*self.columns[:_INFO], joined, *self.columns[_INFO + 1 :])) + "\n"


class VcfReader:
    """A sorted VCF, plain, gzip or bgzip, or a BCF, and the reference it was called on.

    Attributes:
        header: the header lines as they stand, `#CHROM` last.
        findings: the rules that are broken, of the header and of the records that were read first.
    """

    def __init__(
        self,
        path: str | Path,
        reference: Reference,
        *,
        strict: bool = False,
        contig_names: Mapping[str, str] | None = None,
    ) -> None:
        """Open the file and check its header.

        Args:
            path: of the file.
            reference: that the records are held against.
            strict: refuse whatever breaks the specification, and not only what scores would rest
                on. The records are held against it in the first full pass.
            contig_names: what the file calls a contig, and what the reference does.

        Raises:
            GenomeError: there is no such file, it is no VCF or BCF, or its header is malformed.
        """
        self.path = Path(path)
        self._reference = reference
        self._names = contig_names or {}
        self._check_is_a_vcf()
        # What the records have yet to be held against.
        self._rules: Header | None = None
        lines = list(self._header_lines())
        self.header = [line for _, line in lines]
        self.findings = Findings(str(path), strict=strict)
        self._rules = check_header(lines, self.findings)
        self._of_header = deepcopy(self.findings)

    def __iter__(self) -> Iterator[VcfRow]:
        """Yield the records in order.

        Raises:
            GenomeError: a record is malformed or out of order. A REF that disagrees is for the
                caller to judge.
        """
        seen_contigs: set[str] = set()
        previous: _Place | None = None
        rules = RecordRules(self._rules) if self._rules else None
        if rules:
            self.findings = deepcopy(self._of_header)
        records = enumerate(islice(self._lines(), len(self.header), None), start=1)
        for number, (line, text) in records:
            columns = tuple(text.split("\t"))
            complaints = list(rules.complaints(columns)) if rules else []
            place, where = self._place(number, columns, complaints)
            if place:
                self._check_order(where, place, previous, seen_contigs)
            for complaint in complaints:
                self.findings.take(complaint, line, where)
            previous = place
            yield self._row(columns)
        # What has been held against the rules once need not be in the next pass.
        self._rules = None

    def _row(self, columns: tuple[str, ...]) -> VcfRow:
        contig = self._names.get(columns[0], columns[0])
        start, ref = int(columns[_POS]) - 1, columns[_REF]
        alts = () if columns[_ALT] == "." else columns[_ALT].split(",")
        variants = tuple(Variant(contig, start, ref, alt) for alt in alts)
        disagreement = self._reference.disagreement(contig, start, ref)
        return VcfRow(columns, contig, variants, disagreement)

    def _check_is_a_vcf(self) -> None:
        """Raise GenomeError unless the file can be read twice and begins as a VCF or BCF."""
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
        """Yield the lines up to `#CHROM`, or to what stands in its place."""
        for number, line in self._lines():
            yield number, line
            if not line.startswith("##"):
                return

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Yield the lines that are not empty, without their ends, and their numbers."""
        line, number = b"\n", 0
        try:
            for number, line in enumerate(variant_lines(self.path), start=1):
                if text := line.decode(_ENCODING[number == 1]).rstrip("\r\n"):
                    yield number, text
        except UnicodeDecodeError:
            raise GenomeError(
                f"{self.path} line {number}: is not UTF-8; convert the file, for example with "
                "`iconv -f latin1 -t utf-8`"
            ) from None
        self._check_end(line, number)

    def _check_end(self, last: bytes, number: int) -> None:
        if not last.endswith(b"\n") and self._rules and self._rules.version >= (4, 3):
            wrong = "has no line end, so the file may be cut off; "
            complaint = Complaint("line_end", wrong + "fetch it again, or add the line end")
            self.findings.take(complaint, number, f"{self.path} line {number}")

    def _place(
        self, number: int, columns: tuple[str, ...], complaints: list[Complaint]
    ) -> tuple[_Place | None, str]:
        """Return where a record stands, None if that cannot be told, and how messages call it."""
        where = f"{self.path} record {number}"
        if any(complaint.rule in ("num_columns", "pos") for complaint in complaints):
            return None, where
        place = columns[0], int(columns[_POS])
        return place, f"{where} ({place[0]}:{place[1]})"

    def _check_order(
        self,
        where: str,
        place: _Place,
        previous: _Place | None,
        seen_contigs: set[str],
    ) -> None:
        """Raise GenomeError unless a record comes where it should; note its contig."""
        contig, position = place
        is_new = contig not in seen_contigs
        seen_contigs.add(contig)
        if previous is None or is_new or (contig == previous[0] and position >= previous[1]):
            return
        raise GenomeError(
            f"{where}: comes after {previous[0]}:{previous[1]}, the file is not sorted; "
            "sort it with `bcftools sort`"
        )


class Listed(NamedTuple):
    """A variant of a VCF, and why its REF cannot be taken to stand in the reference."""

    variant: Variant
    reason: str | None


def first_variants(files: Sequence[str], reference: Reference, most: int) -> list[Listed]:
    """Return the first variants of a VCF; none if no file is given.

    Raises:
        UserError: there are several files.
        GenomeError: it is malformed, as far as it is read.
    """
    if len(files) > 1:
        raise UserError(f"{len(files)} VCFs are given; give one")
    rows = (row for path in files for row in VcfReader(path, reference))
    each = (
        Listed(variant, row.disagreement.reason if row.disagreement else None)
        for row in rows
        for variant in row.variants
    )
    return list(islice(each, most))


def printed_vcf(variant: Variant, path: str) -> str:
    """Return the command line that writes a VCF of one variant."""
    place = variant.contig.replace("\\", "\\\\"), variant.position + 1
    record = (*place, ".", variant.ref, variant.alt, ".", ".", ".")
    header = "#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO"
    lines = ("\\t".join(map(str, columns)) for columns in (header, record))
    text = "".join(f"{line}\\n" for line in ("##fileformat=VCFv4.2", *lines))
    return f"printf '%b' {shlex.quote(text)} > {path}"
