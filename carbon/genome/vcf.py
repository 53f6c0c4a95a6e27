"""VCF in and out (pysam), with every field of the input kept."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pysam

from carbon.errors import GenomeError
from carbon.genome.fasta import Reference
from carbon.genome.interval import Interval
from carbon.genome.variant import Variant


@dataclass(frozen=True, slots=True)
class VcfRow:
    """One record of a VCF: its number in the file (from 1) and a variant for each ALT."""

    number: int
    record: pysam.VariantRecord
    variants: tuple[Variant, ...]


class VcfReader:
    """Reads a sorted VCF (plain, gzip or bgzip) and checks it against a reference.

    The header may be added to (INFO fields, contigs) before the first record is read, and serves
    as the header of the output.
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
            self._file = pysam.VariantFile(str(self.path))
        except (ValueError, OSError):
            raise GenomeError(
                f"{path}: not a VCF: it must begin with '##fileformat=VCF' and have a #CHROM line"
            ) from None
        if self._file.format != "VCF":
            raise GenomeError(f"{path}: is {self._file.format}, not VCF; convert it first")
        known = set(self._file.header.contigs)
        for contig, length_bp in reference.contig_lengths_bp.items():
            if contig not in known:
                self._file.header.contigs.add(contig, length=length_bp)

    @property
    def header(self) -> pysam.VariantHeader:
        """The header, shared by every record."""
        return self._file.header

    def __iter__(self) -> Iterator[VcfRow]:
        """Yield the records in order.

        Raises:
            GenomeError: a record is malformed, out of order, on a contig that the reference does
                not have, or its REF disagrees with the reference.
        """
        seen_contigs: set[str] = set()
        previous: tuple[str, int] | None = None
        number = 0
        while (record := self._next(number)) is not None:
            number += 1
            where = f"{self.path} record {number} ({record.contig}:{record.pos})"
            self._check_order(where, record, previous, seen_contigs)
            self._check_ref(where, record)
            seen_contigs.add(record.contig)
            previous = record.contig, record.pos
            yield VcfRow(number, record, _variants(record))

    def _next(self, number: int) -> pysam.VariantRecord | None:
        try:
            return next(self._file)
        except StopIteration:
            return None
        except (ValueError, OSError) as error:
            raise GenomeError(
                f"{self.path} record {number + 1}: cannot be read ({error}); "
                "is the file cut off, or a column malformed?"
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

    def _check_ref(self, where: str, record: pysam.VariantRecord) -> None:
        ref = (record.ref or "").upper()
        if record.contig not in self._reference.contig_lengths_bp:
            raise GenomeError(f"{where}: {self._reference.explain_missing([record.contig])}")
        length_bp = self._reference.contig_lengths_bp[record.contig]
        if record.start < 0 or record.start + len(ref) > length_bp:
            raise GenomeError(
                f"{where}: REF ends past the contig's {length_bp} bases; "
                f"is {self._reference.path} the assembly that the VCF was called on?"
            )
        span = Interval(record.contig, record.start, record.start + len(ref))
        there = self._reference.fetch(span).upper()
        if there != ref:
            raise GenomeError(
                f"{where}: REF is {_short(ref)} but {self._reference.path} has {_short(there)}; "
                "is it the assembly that the VCF was called on?"
            )

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _short(bases: str) -> str:
    return bases if len(bases) <= 12 else f"{bases[:12]}... ({len(bases)} bases)"


def _variants(record: pysam.VariantRecord) -> tuple[Variant, ...]:
    ref = record.ref or ""
    return tuple(Variant(record.contig, record.start, ref, alt) for alt in record.alts or ())
