"""VCF read record by record, checked against a reference, with every line kept as it stands.

pysam parses and validates; the text of a line travels beside it, so that what is written out again
differs from the input in what was added and in nothing else.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pysam

from carbon.errors import GenomeError
from carbon.genome.fasta import Reference
from carbon.genome.streams import BROKEN_GZIP, open_text
from carbon.genome.variant import Variant

_INFO = 7  # column of a VCF line, from 0


class VcfRow(NamedTuple):
    """One record: its columns as text, and a variant for each ALT."""

    columns: tuple[str, ...]
    variants: tuple[Variant, ...]

    def with_info(self, added: str) -> str:
        """Return the line with more in its INFO column."""
        info = self.columns[_INFO]
        joined = ";".join(part for part in ("" if info == "." else info, added) if part) or "."
        return "\t".join((*self.columns[:_INFO], joined, *self.columns[_INFO + 1 :])) + "\n"


class VcfReader:
    """A sorted VCF, plain, gzip or bgzip, and the reference it was called on.

    Attributes:
        header: the header lines as they stand, `#CHROM` last.
    """

    def __init__(self, path: str | Path, reference: Reference) -> None:
        """Open the file.

        Raises:
            GenomeError: there is no such file or it is not a VCF.
        """
        self.path = Path(path)
        self._reference = reference
        if not self.path.is_file():
            raise GenomeError(f"{path}: no such file; give a VCF, plain or bgzip")
        pysam.set_verbosity(0)
        try:
            with pysam.VariantFile(str(self.path)) as file:
                is_vcf = file.format == "VCF"
        except (ValueError, OSError):
            is_vcf = False
        if not is_vcf:
            raise GenomeError(
                f"{path}: is not a VCF: it must begin with '##fileformat=VCF' and have a #CHROM "
                "line (convert a BCF with `bcftools view`)"
            )
        self.header = [line for line in self._lines() if line.startswith("#")]

    def __iter__(self) -> Iterator[VcfRow]:
        """Yield the records in order.

        Raises:
            GenomeError: a record is malformed, out of order, on a contig that the reference does
                not have, or its REF disagrees with the reference.
        """
        seen_contigs: set[str] = set()
        previous: tuple[str, int] | None = None
        lines = (line for line in self._lines() if not line.startswith("#"))
        with pysam.VariantFile(str(self.path)) as file:
            for number, line in enumerate(lines, start=1):
                record = self._parsed(file, number)
                where = f"{self.path} record {number} ({record.contig}:{record.pos})"
                self._check_order(where, record, previous, seen_contigs)
                self._reference.check_ref(record.contig, record.start, record.ref or "", where)
                seen_contigs.add(record.contig)
                previous = record.contig, record.pos
                yield VcfRow(tuple(line.split("\t")), _variants(record))

    def _lines(self) -> Iterator[str]:
        try:
            with open_text(self.path) as lines:
                for line in lines:
                    if text := line.rstrip("\r\n"):
                        yield text
        except (*BROKEN_GZIP, UnicodeDecodeError) as error:
            raise GenomeError(f"{self.path}: is broken ({error}); fetch it again") from None

    def _parsed(self, file: pysam.VariantFile, number: int) -> pysam.VariantRecord:
        try:
            return next(file)
        except (StopIteration, ValueError, OSError):
            raise GenomeError(
                f"{self.path} record {number}: cannot be read; is a column missing or malformed, "
                "or the file cut off?"
            ) from None

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
