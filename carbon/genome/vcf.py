"""VCF read record by record, checked against a reference, with every line kept as it stands.

pysam parses, and the rules of the specification stand in `vcf_header_rules` and
`vcf_record_rules`; the text of a line travels beside, so that what is written out again differs
from the input in what was added and in nothing else.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pysam

from carbon.errors import GenomeError
from carbon.genome.fasta import Reference
from carbon.genome.streams import BROKEN_GZIP, open_bytes
from carbon.genome.variant import Variant
from carbon.genome.vcf_header_rules import Header, check_header
from carbon.genome.vcf_record_rules import RecordRules

_INFO = 7  # column of a VCF line, from 0
_VCF = b"##fileformat=VCF"
_ENCODING = ("utf-8", "utf-8-sig")  # of the first line, which may begin with a mark
_LENIENT = " (`--lenient` reads it all the same)"


class VcfRow(NamedTuple):
    """One record.

    Attributes:
        columns: as text, as they stand.
        variants: one for each ALT.
        mismatch: what the reference has instead of REF; None where it has REF.
    """

    columns: tuple[str, ...]
    variants: tuple[Variant, ...]
    mismatch: str | None

    def with_info(self, added: str) -> str:
        """Return the line with more in its INFO column."""
        info = self.columns[_INFO].rstrip(";")
        joined = ";".join(part for part in ("" if info == "." else info, added) if part) or "."
        return "\t".join((*self.columns[:_INFO], joined, *self.columns[_INFO + 1 :])) + "\n"


class VcfReader:
    """A sorted VCF, plain, gzip or bgzip, and the reference it was called on.

    Attributes:
        header: the header lines as they stand, `#CHROM` last.
    """

    def __init__(self, path: str | Path, reference: Reference, *, strict: bool = True) -> None:
        """Open the file and check its header.

        Args:
            path: of the file.
            reference: that the records are held against.
            strict: hold the file against the specification too, and not only against what is
                needed to read it. The records are held against it in the first full pass.

        Raises:
            GenomeError: there is no such file, it is not a VCF, or its header is malformed.
        """
        self.path = Path(path)
        self._reference = reference
        if not self.path.is_file():
            raise GenomeError(f"{path}: no such file; give a VCF, plain, gzip or bgzip")
        is_readable = self._is_readable()
        if not is_readable and not self._begins_as_vcf():
            raise GenomeError(
                f"{path}: is not a VCF: it must begin with '##fileformat=VCF' and have a #CHROM "
                "line (convert a BCF with `bcftools view`)"
            )
        lines = list(self._header_lines())
        self.header = [line for _, line in lines]
        # What the records have yet to be held against.
        self._rules: Header | None = None
        if strict or not is_readable:
            try:
                self._rules = check_header(lines)
            except GenomeError as error:
                hint = _LENIENT if is_readable else ""
                raise GenomeError(f"{path} {error}{hint}") from None
        if not is_readable:
            raise GenomeError(f"{path}: is damaged or cut off; fetch it again")

    def __iter__(self) -> Iterator[VcfRow]:
        """Yield the records in order.

        Raises:
            GenomeError: a record is malformed, out of order, or at a place that the reference does
                not have. A REF that disagrees is for the caller to judge.
        """
        seen_contigs: set[str] = set()
        previous: tuple[str, int] | None = None
        rules = RecordRules(self._rules) if self._rules else None
        lines = (line for _, line in islice(self._lines(), len(self.header), None))
        # From an open file pysam reads plain gzip too, which it does not by name.
        with self.path.open("rb") as source, pysam.VariantFile(source) as file:
            for number, line in enumerate(lines, start=1):
                columns = tuple(line.split("\t"))
                complaint = rules.complaint(columns) if rules else None
                record = self._parsed(file, number, columns, complaint)
                where = f"{self.path} record {number} ({record.contig}:{record.pos})"
                self._check_order(where, record, previous, seen_contigs)
                if complaint:
                    raise GenomeError(f"{where}: {complaint}{_LENIENT}")
                place = record.contig, record.start, record.ref or ""
                mismatch = self._reference.disagreement(*place, where)
                seen_contigs.add(record.contig)
                previous = record.contig, record.pos
                yield VcfRow(columns, _variants(record), mismatch)
        # What has been held against the rules once need not be in the next pass.
        self._rules = None

    def _is_readable(self) -> bool:
        pysam.set_verbosity(0)
        try:
            with self.path.open("rb") as source, pysam.VariantFile(source) as file:
                return bool(file.format == "VCF")
        except (ValueError, OSError, TypeError):  # TypeError: pysam, of an open file of no format
            return False

    def _begins_as_vcf(self) -> bool:
        try:
            with open_bytes(self.path) as source:
                return source.read(len(_VCF)) == _VCF
        except BROKEN_GZIP:
            return False

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
            with open_bytes(self.path) as lines:
                for number, line in enumerate(lines, start=1):
                    if text := line.decode(_ENCODING[number == 1]).rstrip("\r\n"):
                        yield number, text
        except UnicodeDecodeError:
            raise GenomeError(
                f"{self.path} line {number}: is not UTF-8; convert the file, for example with "
                "`iconv -f latin1 -t utf-8`"
            ) from None
        except BROKEN_GZIP as error:
            raise GenomeError(f"{self.path}: is broken ({error}); fetch it again") from None
        if not line.endswith(b"\n") and self._rules and self._rules.version >= (4, 3):
            raise GenomeError(
                f"{self.path} line {number}: has no line end, so the file may be cut off; fetch "
                f"it again, or add the line end{_LENIENT}"
            )

    def _parsed(
        self,
        file: pysam.VariantFile,
        number: int,
        columns: tuple[str, ...],
        complaint: str | None,
    ) -> pysam.VariantRecord:
        """Return the next record, which must be that of the columns."""
        try:
            record = next(file)
            if (columns[0], int(columns[1])) == (record.contig, record.pos):
                return record
        except (StopIteration, ValueError, OSError):
            pass
        cut_off = "cannot be read; is a column missing or malformed, or the file cut off?"
        raise GenomeError(f"{self.path} record {number}: {complaint or cut_off}")

    def _check_order(
        self,
        where: str,
        record: pysam.VariantRecord,
        previous: tuple[str, int] | None,
        seen_contigs: set[str],
    ) -> None:
        if previous is None:
            return
        same_contig = record.contig == previous[0]
        if (same_contig and record.pos < previous[1]) or (
            not same_contig and record.contig in seen_contigs
        ):
            raise GenomeError(
                f"{where}: comes after {previous[0]}:{previous[1]}, the file is not sorted; "
                "sort it with `bcftools sort`"
            )


def _variants(record: pysam.VariantRecord) -> tuple[Variant, ...]:
    ref = record.ref or ""
    return tuple(Variant(record.contig, record.start, ref, alt) for alt in record.alts or ())
