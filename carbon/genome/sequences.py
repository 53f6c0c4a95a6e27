"""A stream of named sequences from FASTA, for what needs no random access."""

from collections.abc import Iterator
from pathlib import Path

import pysam

from carbon.errors import GenomeError
from carbon.genome.fasta import check_fasta


def read_sequences(path: str | Path) -> Iterator[tuple[str, str]]:
    """Return `(name, bases)` of a FASTA, plain, bgzip or gzip, one record in memory at a time.

    The whole file is checked before the first record is given.

    Raises:
        GenomeError: the file is missing, empty, truncated or not DNA in FASTA.
    """
    path = Path(path)
    if not path.is_file():
        raise GenomeError(f"{path}: no such file; give a FASTA")
    check_fasta(path, shown_as=path)
    return _records(path)


def _records(path: Path) -> Iterator[tuple[str, str]]:
    with pysam.FastxFile(str(path)) as records:
        for record in records:
            yield str(record.name), str(record.sequence or "")
