"""Sequences with a label in their headers."""

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from carbon.errors import UserError
from carbon.genome.sequences import SequenceRecord, read_records


def labelled_records(files: Sequence[str], most: int, most_bp: int) -> Iterator[SequenceRecord]:
    """Yield the sequences of FASTA files, their labels in place of descriptions.

    A label is what `label=` names in the header, else what follows the name there, else the file's
    name.

    Args:
        files: paths.
        most: sequences of all files together.
        most_bp: bases of one.

    Raises:
        UserError: there are more, one is longer, or has no base that is one of ACGT.
        GenomeError: a file is malformed.
    """
    numbers = count(1)
    for path in files:
        for record in read_records(path):
            if next(numbers) > most:
                raise UserError(f"more than {most} sequences; give fewer")
            if len(record.bases) > most_bp:
                raise UserError(
                    f"{record.name}: {len(record.bases):,} bases; give {most_bp:,} at most"
                )
            if not any(letter in "ACGTacgt" for letter in record.bases):
                raise UserError(f"{record.name}: has no base that is one of ACGT; leave it out")
            yield record._replace(description=_label(record, path))


def _label(record: SequenceRecord, path: str) -> str:
    for word in record.description.split():
        if word.startswith("label="):
            return word.removeprefix("label=")
    return record.description.strip() or Path(path).stem
