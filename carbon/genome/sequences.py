"""A stream of named sequences from FASTA or FASTQ, for what needs no random access."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pysam

from carbon.errors import GenomeError
from carbon.genome.alphabet import IUPAC_DNA
from carbon.genome.fasta import check_bgzip_end, check_fasta, compression_of
from carbon.genome.streams import BROKEN_GZIP, open_bytes

_NO_LETTERS = str.maketrans("", "", IUPAC_DNA + IUPAC_DNA.lower() + "-")


class Record(NamedTuple):
    """A sequence of a FASTA or FASTQ; the description is what follows its name in the header."""

    name: str
    description: str
    bases: str


def read_sequences(path: str | Path) -> Iterator[tuple[str, str]]:
    """Return `(name, bases)` of what `read_records` returns.

    Raises:
        GenomeError: as there.
    """
    return ((record.name, record.bases) for record in read_records(path))


def read_records(path: str | Path) -> Iterator[Record]:
    """Return the records of FASTA or FASTQ, plain, bgzip or gzip, one in memory at a time.

    A FASTA file is checked as a whole before the first record is given; FASTQ and what comes
    through standard input (`-`) record by record.

    Raises:
        GenomeError: the file is missing, empty, truncated or not DNA in one of the formats.
    """
    path = Path(path)
    is_stream = str(path) == "-"
    if not (is_stream or path.is_file()):
        raise GenomeError(f"{path}: no such file; give a FASTA or FASTQ, or - for standard input")
    if not is_stream and compression_of(path) == "bgzip":
        check_bgzip_end(path)
    if not (is_stream or _is_fastq(path)):
        check_fasta(path, shown_as=path)
    return _records(path)


def _is_fastq(path: Path) -> bool:
    try:
        with open_bytes(path) as source:
            return source.read(1) == b"@"
    except BROKEN_GZIP:
        return False  # said where the FASTA is checked


def _records(path: Path) -> Iterator[Record]:
    shown_as = "standard input" if str(path) == "-" else str(path)
    number, has_quality = 0, False
    try:
        with pysam.FastxFile(str(path)) as records:
            for number, record in enumerate(records, start=1):
                bases = str(record.sequence or "")
                if wrong := bases.translate(_NO_LETTERS):
                    raise GenomeError(
                        f"{shown_as} record {number} ({record.name}): {wrong[0]!r} is not a DNA "
                        "letter (ACGT, N and IUPAC codes); is this a protein or a damaged file?"
                    )
                if has_quality and record.quality is None:
                    raise GenomeError(
                        f"{shown_as} record {number} ({record.name}): has no quality as those "
                        "before it have; is the file cut off?"
                    )
                has_quality = record.quality is not None
                yield Record(str(record.name), str(record.comment or ""), bases)
    except (OSError, ValueError) as error:
        if isinstance(error, GenomeError):
            raise
        raise GenomeError(
            f"{shown_as}: is broken after record {number} ({error}); fetch it again"
        ) from None
    if not number:
        raise GenomeError(f"{shown_as}: has no sequence; give a FASTA or FASTQ")
