"""Which files hold reads, and of which samples; samples are held out whole.

Reads of one sample are of the same molecules and organisms.
"""

import hashlib
import re
from collections.abc import Collection
from pathlib import Path

from carbon.errors import UserError

_FASTQ = re.compile(r"\.(fastq|fq)(\.b?gz)?$", re.IGNORECASE)
# What Illumina's programs put between the name of a sample and the ending, as in
# `SAMPLE_S1_L001_R1_001.fastq.gz`; and archives before that of mates, as in `SAMPLE_1.fastq.gz`.
_PART_OF_SAMPLE = re.compile(r"(_S\d+)?(_L\d{3})?([_.]R[12](_\d{3})?)?$")
_PART_OF_PAIR = re.compile(r"[_.][12]$")


def is_fastq(path: Path) -> bool:
    """Tell by its name whether a file holds reads, plain or gzip; a URL may have a query behind."""
    return _FASTQ.search(path.name.partition("?")[0]) is not None


def sample_of(path: Path, *, paired: bool = False) -> str:
    """Return the sample that a file of reads, alone or with one of mates, is named after.

    >>> sample_of(Path("gut7_S3_L001_R1_001.fastq.gz")), sample_of(Path("ERR1_1.fq"), paired=True)
    ('gut7', 'ERR1')
    """
    stem = _FASTQ.sub("", path.name)
    if paired:
        stem = _PART_OF_PAIR.sub("", stem)
    return _PART_OF_SAMPLE.sub("", stem) or stem


def held_out_samples(samples: Collection[str], share: float) -> set[str]:
    """Return the samples to hold out, one at least, in the order of their names' digests.

    Raises:
        UserError: there is but one.
    """
    if not share or not samples:
        return set()
    if len(set(samples)) == 1:
        (only,) = set(samples)
        raise UserError(
            f"test_share = {share} of reads: samples are held out whole, and '{only}' is the only "
            "one; give a second, or no test_share"
        )
    in_order = sorted(set(samples), key=lambda name: hashlib.blake2b(name.encode()).digest())
    return set(in_order[: min(max(1, round(share * len(in_order))), len(in_order) - 1)])
