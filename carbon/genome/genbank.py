"""Read sequences and genes from GenBank flat files, parsed by Biopython.

Format: NCBI GenBank flat file and INSDC feature table (version 11).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from carbon.errors import GenomeError
from carbon.genome.genbank_genes import GenBankGenes
from carbon.genome.genes import Annotation, Gene, LeftOut, report_left_out
from carbon.genome.sequences import BROKEN_GZIP, open_text
from carbon.io.files import why_no_file

if TYPE_CHECKING:
    from Bio.SeqRecord import SeqRecord

_FASTA_LINE_BP = 80


@dataclass(frozen=True, slots=True)
class GenBank:
    """Annotation and source of a GenBank file, whose sequences were unpacked to a FASTA.

    Attributes:
        annotation: genes of all records.
        organism: organism of the first record that has one, or empty.
        taxonomy: lineage of the first record that has one, from the root, or empty.
    """

    annotation: Annotation
    organism: str
    taxonomy: tuple[str, ...]


def unpack_genbank(path: str | Path, fasta: Path) -> GenBank:
    """Read a GenBank file, plain or gzip, and write its sequences to `fasta`.

    Contigs are named by the versioned accessions of the records. Features without an exact location
    are left out, and one line on stderr counts them by reason.

    Raises:
        GenomeError: the file is missing or malformed, a record has no nucleotide sequence, or two
            records share a name.
    """
    path = Path(path)
    if not path.is_file():
        raise GenomeError(f"{path}: {why_no_file(path)}; give a GenBank flat file, plain or gzip")
    genes: list[Gene] = []
    left_out: list[LeftOut] = []
    circular: set[str] = set()
    contigs: set[str] = set()
    organism = ""
    taxonomy: tuple[str, ...] = ()
    with fasta.open("w", encoding="ascii") as sink:
        for number, record in enumerate(_records(path), start=1):
            contig = _name(record)
            where = f"{path} record {number} ({contig})"
            bases = _bases(record, where)
            if contig in contigs:
                raise GenomeError(f"{where}: stands twice; keep one")
            contigs.add(contig)
            _write_contig(sink, contig, bases)
            if record.annotations.get("topology") == "circular":
                circular.add(contig)
            genes += GenBankGenes(record, contig, where, left_out).genes()
            organism = organism or str(record.annotations.get("organism", ""))
            taxonomy = taxonomy or tuple(map(str, record.annotations.get("taxonomy", ())))  # type: ignore[arg-type]
    if not contigs:
        raise GenomeError(f"{path}: has no record that begins with LOCUS; is this GenBank?")
    genes.sort(key=lambda gene: (gene.interval, gene.gene_id))
    report_left_out(path, left_out)
    annotation = Annotation(path, tuple(genes), tuple(left_out), frozenset(circular))
    return GenBank(annotation, organism, taxonomy)


def is_genbank(path: str | Path) -> bool:
    """Return whether a file, plain or gzip, begins as a GenBank flat file does."""
    try:
        with open_text(Path(path), errors="replace") as lines:
            return any(line.startswith("LOCUS ") for line, _ in zip(lines, range(20), strict=False))
    except BROKEN_GZIP:
        return False


class _CountedLines:
    """Lines of a file as a handle for Biopython, with the number of the last line read."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self.number = 0

    def readline(self) -> str:
        self.number += 1
        return next(self._lines, "")

    def __iter__(self) -> Iterator[str]:
        return iter(self.readline, "")


def _records(path: Path) -> Iterator[SeqRecord]:
    from Bio.GenBank.Scanner import GenBankScanner

    with open_text(path, errors="replace") as lines:
        counted = _CountedLines(lines)
        scanner = GenBankScanner()  # type: ignore[no-untyped-call]
        records = scanner.parse_records(counted, do_features=True)  # type: ignore[no-untyped-call]
        try:
            # Biopython warns about faults that it repairs, and about truncated sequences.
            while True:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    record = next(records, None)
                if record is None:
                    return
                _check_length(caught, f"{path} line {counted.number} ({_name(record)})")
                yield record
        except BROKEN_GZIP as error:
            reason = f"broken after line {counted.number} ({error}); fetch it again"
            raise GenomeError(f"{path}: {reason}") from None
        except (ValueError, AssertionError, IndexError, KeyError, AttributeError) as error:
            message = " ".join(str(error).split()) or type(error).__name__
            raise GenomeError(
                f"{path} line {counted.number}: not GenBank: {message}; fetch the record again"
            ) from None


def _check_length(caught: list[warnings.WarningMessage], where: str) -> None:
    for warning in caught:
        match = re.match(r"Expected sequence length (\d+), found (\d+)", str(warning.message))
        if match and int(match[2]) < int(match[1]):
            raise GenomeError(
                f"{where}: LOCUS says {match[1]} bases, and {match[2]} are there; "
                "is the file cut off? Fetch it again"
            )


def _name(record: SeqRecord) -> str:
    """Return the versioned accession of a record, or else the name on its LOCUS line."""
    return str(record.name if record.id in (None, "", ".", "<unknown id>") else record.id)


def _bases(record: SeqRecord, where: str) -> str:
    from Bio.Seq import UndefinedSequenceError

    if record.annotations.get("molecule_type") == "protein" or "aa" in str(
        record.annotations.get("residue_type", "")
    ):
        raise GenomeError(f"{where}: is a protein; give records of DNA or RNA")
    try:
        bases = str(record.seq)
    except UndefinedSequenceError:
        bases = ""
    if not bases:
        raise GenomeError(f"{where}: has no sequence; fetch it with its ORIGIN (gbwithparts)")
    return bases.upper().replace("U", "T")


def _write_contig(sink: IO[str], name: str, bases: str) -> None:
    sink.write(f">{name}\n")
    for at in range(0, len(bases), _FASTA_LINE_BP):
        sink.write(bases[at : at + _FASTA_LINE_BP] + "\n")
