"""Reads of a sequencer as records: FASTQ, alone or with a second file of mates."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from carbon.errors import UserError
from carbon.genome.sequences import SequenceRecord, read_records

_MATE = re.compile(r"/[12]$")


def read_rows(path: Path, mates: Path | None) -> Iterator[dict[str, Any]]:
    """Yield the reads of a file, each before its mate if there is a file of these.

    Raises:
        UserError: a file is absent, broken or without a read, or a read and its mate have two
            names.
    """
    if mates is None:
        for record in read_records(path):
            yield {"name": record.name, "sequence": record.bases}
        return
    pairs = itertools.zip_longest(read_records(path), read_records(mates))
    for number, pair in enumerate(pairs, start=1):
        name = _name_of_both(number, (path, mates), pair)
        for mate, record in enumerate(pair, start=1):
            yield {"name": f"{name}/{mate}", "sequence": record.bases}


def _name_of_both(
    number: int, paths: tuple[Path, Path], pair: tuple[SequenceRecord | None, ...]
) -> str:
    for path, other, record in zip(paths, reversed(paths), pair, strict=True):
        if record is None:
            raise UserError(
                f"{path}: ends after read {number - 1}, and {other} does not; is it cut off?"
            )
    names = [_MATE.sub("", record.name) for record in pair if record]
    if names[0] != names[1]:
        raise UserError(
            f"{paths[0]} read {number} is '{names[0]}', and that of {paths[1]} '{names[1]}': "
            "mates must stand in the same order; pair the files again"
        )
    return names[0]
