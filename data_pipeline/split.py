"""Which regions of an assembly are held out, and on which side of their edges a record lies."""

import hashlib
import re
from collections.abc import Collection
from pathlib import Path

from carbon.errors import UserError
from carbon.genome import Gene, Interval, from_region

# An automatic hold-out, of the contigs that carry genes: the shortest with this share of the
# genome, or the longest where none is so large; of one that is most of the genome, or has all the
# genes, the last tenth.
HELD_OUT_SHARE = 0.04
HELD_OUT_TAIL = 0.1


def held_out_regions(
    holdout: tuple[str, ...], contig_lengths_bp: dict[str, int], genes: tuple[Gene, ...]
) -> list[Interval]:
    """Return the intervals that a `holdout` setting names; `auto` chooses one.

    Raises:
        GenomeError: the region does not exist.
    """
    if holdout != ("auto",):
        return [from_region(text, contig_lengths_bp) for text in holdout]
    with_genes = {gene.interval.contig for gene in genes} or set(contig_lengths_bp)
    by_length = sorted((contig_lengths_bp[contig], contig) for contig in with_genes)
    genome_bp = sum(contig_lengths_bp.values())
    large = (each for each in by_length if each[0] >= HELD_OUT_SHARE * genome_bp)
    length_bp, contig = next(large, by_length[-1])
    # Something is to be left to train on.
    is_most = length_bp > genome_bp / 2 or len(with_genes) == 1
    start = _tail_start(contig, length_bp, genes) if is_most else 0
    return [Interval(contig, start, length_bp)]


def _tail_start(contig: str, length_bp: int, genes: tuple[Gene, ...]) -> int:
    """Return where the last tenth of a contig begins, or of its genes if none begins in that."""
    start = round((1 - HELD_OUT_TAIL) * length_bp)
    starts = sorted(gene.interval.start for gene in genes if gene.interval.contig == contig)
    if len(starts) < 2 or starts[-1] >= start:
        return start
    return starts[int((1 - HELD_OUT_TAIL) * len(starts))]


def split_of(intervals: list[Interval], held_out: list[Interval]) -> str | None:
    """Return train, test, or None where a record is partly held out."""
    if not any(i.overlaps(region) for i in intervals for region in held_out):
        return "train"
    inside = all(
        any(
            region.contig == i.contig and region.start <= i.start and i.end <= region.end
            for region in held_out
        )
        for i in intervals
    )
    return "test" if inside else None


_FASTQ = re.compile(r"\.(fastq|fq)(\.b?gz)?$", re.IGNORECASE)
# What Illumina's programs put between the name of a sample and the ending, as in
# `SAMPLE_S1_L001_R1_001.fastq.gz`; archives put one before the mate, as in `SAMPLE_1.fastq.gz`.
_PART_OF_SAMPLE = re.compile(r"(_S\d+)?(_L\d{3})?([_.]R[12](_\d{3})?)?$")
_PART_OF_PAIR = re.compile(r"[_.][12]$")


def is_fastq(path: Path) -> bool:
    """Return whether a file name is one of reads, plain or gzip; a URL may end in a query."""
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
