"""Regions of a reference, by which a job is cut into parts that are computed apart."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from pathlib import Path

from carbon.errors import GenomeError
from carbon.genome.bed import bed_lines, bed_place
from carbon.genome.contig_names import region_by_name
from carbon.genome.interval import Interval


class Regions:
    """Regions in the order of the reference, those that overlap or touch as one.

    >>> regions = Regions([Interval("c", 5, 9), Interval("c", 0, 5)], {"c": 20})
    >>> regions.intervals
    (Interval(contig='c', start=0, end=9),)
    >>> regions.holds("c", 8), regions.holds("c", 9)
    (True, False)

    Attributes:
        intervals: of contigs of the reference.
    """

    def __init__(self, intervals: Iterable[Interval], contig_lengths_bp: Mapping[str, int]) -> None:
        """Put regions in order and join them."""
        self._lengths_bp = contig_lengths_bp
        order = {contig: number for number, contig in enumerate(contig_lengths_bp)}
        merged: list[Interval] = []
        for each in sorted(intervals, key=lambda i: (order[i.contig], i.start, i.end)):
            last = merged[-1] if merged else None
            if last and last.contig == each.contig and each.start <= last.end:
                merged[-1] = Interval(last.contig, last.start, max(last.end, each.end))
            else:
                merged.append(each)
        self.intervals = tuple(merged)
        self._starts: dict[str, list[int]] = {}
        self._ends: dict[str, list[int]] = {}
        for each in merged:
            self._starts.setdefault(each.contig, []).append(each.start)
            self._ends.setdefault(each.contig, []).append(each.end)

    def holds(self, contig: str, position: int) -> bool:
        """Return whether a base, counted from 0, is in a region.

        A position before the contig or past it, as telomeres have, counts as the nearest base, so
        that regions which cover a contig hold all of its records.
        """
        starts = self._starts.get(contig)
        if not starts:
            return False
        place = min(max(position, 0), self._lengths_bp[contig] - 1)
        number = bisect_right(starts, place) - 1
        return number >= 0 and place < self._ends[contig][number]


def read_regions(
    region: str | None,
    path: Path | None,
    contig_lengths_bp: Mapping[str, int],
    names: Mapping[str, str],
) -> Regions | None:
    """Return the regions that a command names, None if it names none.

    Args:
        region: `contig`, or `contig:first-last`, 1-based and inclusive.
        path: a BED, plain or gzip; its intervals are 0-based and half-open.
        contig_lengths_bp: of the reference.
        names: what other files call a contig, and what the reference does.

    Raises:
        GenomeError: a contig is unknown, a region ends past it, or the file has no region.
    """
    if path is None:
        if region is None:
            return None
        return Regions([region_by_name(region, contig_lengths_bp, names)], contig_lengths_bp)
    intervals = []
    for where, columns in bed_lines(path):
        contig, start, end = bed_place(columns, where)
        contig = names.get(contig, contig)
        if contig not in contig_lengths_bp:
            raise GenomeError(f"{where}: no contig '{contig}' in the FASTA")
        if end > contig_lengths_bp[contig]:
            length_bp = contig_lengths_bp[contig]
            raise GenomeError(f"{where}: ends past the {length_bp} bases of '{contig}'")
        if start < end:
            intervals.append(Interval(contig, start, end))
    if not intervals:
        raise GenomeError(f"{path}: has no region")
    return Regions(intervals, contig_lengths_bp)
