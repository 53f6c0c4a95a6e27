"""Reads of a sequencer as records: FASTQ, alone or with a second file of mates."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from carbon.errors import UserError
from carbon.genome.sequences import SequenceRecord, read_records
from data_pipeline.cuts import Dropped

_SLASH = re.compile(r"/[12]$")  # of Illumina before version 1.8
# RUN.SPOT.MATE of `fastq-dump --readids`; RUN.SPOT alone does not end in a mate.
_RUN_AND_SPOT = re.compile(r"[SED]RR[0-9]+\.[0-9]+")
EMPTY_READ, MATE_OF_EMPTY_READ = "empty_read", "mate_of_empty_read"


def read_rows(path: Path, mates: Path | None) -> Iterator[dict[str, Any] | Dropped]:
    """Yield the reads of a file, each before its mate if there is a file of these.

    A read without a base is dropped, and its mate with it.

    Raises:
        UserError: a file is absent, broken or without a read, or a read and its mate have two
            names.
    """
    if mates is None:
        for record in read_records(path):
            yield _row(record.name, record.bases, EMPTY_READ)
        return
    pairs = itertools.zip_longest(read_records(path), read_records(mates))
    for number, pair in enumerate(pairs, start=1):
        name = _name_of_both(number, (path, mates), pair)
        both = [record for record in pair if record]
        is_whole = all(record.bases for record in both)
        for mate, record in enumerate(both, start=1):
            reason = MATE_OF_EMPTY_READ if record.bases else EMPTY_READ
            yield _row(f"{name}/{mate}", record.bases if is_whole else "", reason)


def _row(name: str, bases: str, reason: str) -> dict[str, Any] | Dropped:
    return {"name": name, "sequence": bases} if bases else Dropped(name, reason)


def _name_of_both(
    number: int, paths: tuple[Path, Path], pair: tuple[SequenceRecord | None, ...]
) -> str:
    for path, other, record in zip(paths, reversed(paths), pair, strict=True):
        if record is None:
            raise UserError(
                f"{path}: ends after read {number - 1}, and {other} does not; is it cut off?"
            )
    names = [record.name for record in pair if record]
    first, second = _without_mates(*names)
    if names[0] == names[1] and _SLASH.search(names[0]):
        raise UserError(
            f"{paths[0]} and {paths[1]} both have '{names[0]}' as read {number}; is one file given "
            "twice?"
        )
    if first != second:
        raise UserError(
            f"{paths[0]} read {number} is '{first}', and that of {paths[1]} '{second}': "
            "mates must stand in the same order; pair the files again"
        )
    return first


def _without_mates(first: str, second: str) -> tuple[str, str]:
    """Return the names of a read and its mate without their mate numbers.

    >>> _without_mates("r7/1", "r7/2"), _without_mates("SRR1.7.1", "SRR1.7.2")
    (('r7', 'r7'), ('SRR1.7', 'SRR1.7'))
    >>> _without_mates("SRR1.1", "SRR1.2")
    ('SRR1.1', 'SRR1.2')
    """
    are_spots = _RUN_AND_SPOT.fullmatch(first) and _RUN_AND_SPOT.fullmatch(second)
    if first.endswith(".1") and second.endswith(".2") and not are_spots:
        return first[:-2], second[:-2]
    return _SLASH.sub("", first), _SLASH.sub("", second)
