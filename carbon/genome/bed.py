"""Read BED files: transcripts as GTF features, and sets of regions.

Format: BED v1 of the GA4GH (https://samtools.github.io/hts-specs/BEDv1.pdf), with 0-based,
half-open coordinates, as everywhere in Carbon.

A line of 12 columns is a transcript: its blocks are the exons, and the blocks between thickStart
and thickEnd the CDS, whose first base begins a codon. A line of 6 to 11 columns is an exon; lines
with the same name, contig and strand form one non-coding transcript. A BED does not name genes, so
transcripts on the same strand whose exons overlap form a gene.
"""

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from carbon.errors import GenomeError
from carbon.genome.contig_names import region_by_name
from carbon.genome.genes import Span
from carbon.genome.gff import Feature
from carbon.genome.interval import Interval
from carbon.genome.sequences import numbered_lines
from carbon.progress import say

_BED_NAME = re.compile(r"\.bed(\.b?gz)?$", re.IGNORECASE)
_STRAND_COLUMNS, _BLOCK_COLUMNS = 6, 12
_NOT_DATA = ("track", "browser")
_NAMELESS = ("", ".")


class _Transcript(NamedTuple):
    """A line of a BED; spans ascend. Lines with the same `part_of` form one transcript."""

    contig: str
    strand: str
    name: str
    exons: tuple[Span, ...]
    cds: tuple[Span, ...]
    where: str
    part_of: str


def is_bed(path: Path) -> bool:
    """Return whether a file has the name of a BED, plain or gzip."""
    return _BED_NAME.search(path.name) is not None


def bed_lines(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield file and line number, for messages, and columns of each line of a BED, plain or gzip.

    Columns are split at tabs, or at blanks in a line without tabs. Comments and `track` and
    `browser` lines are skipped.

    Raises:
        GenomeError: the file is truncated.
    """
    for number, line in numbered_lines(path):
        words = line.split()
        if words and not line.startswith("#") and words[0] not in _NOT_DATA:
            columns = line.rstrip("\r\n").split("\t") if "\t" in line else words
            yield f"{path} line {number}", columns


def bed_place(columns: list[str], where: str) -> tuple[str, int, int]:
    """Return contig, start and end from the first three columns of a BED line.

    Raises:
        GenomeError: there are fewer columns, or they do not form an interval.
    """
    if len(columns) < 3:
        raise GenomeError(f"{where}: is not a BED line, which has 3 columns or more")
    start, end = (_whole(text, where) for text in columns[1:3])
    if start > end:
        raise GenomeError(f"{where}: need start <= end, got {start} and {end}; correct the line")
    return columns[0], start, end


def read_bed_features(path: Path) -> Iterator[Feature]:
    """Yield genes, exons and CDS of the transcripts of a BED, plain or gzip.

    Lines of 12 columns with the same name are different transcripts.

    Raises:
        GenomeError: at the first malformed line, or the first line with more or fewer columns than
            the first.
    """
    lines = (_transcript(columns, where) for where, columns in _of_equal_width(bed_lines(path)))
    for number, gene in enumerate(_genes(_joined(lines))):
        first = gene[0]
        attributes = {
            "gene_id": f"{first.name}\t{number}",  # text after the tab is not shown
            "gene_name": first.name,
            "gene_biotype": "protein_coding" if any(each.cds for each in gene) else "",
        }
        starts, ends = zip(*(_ends(each) for each in gene), strict=True)
        yield _feature(first, "gene", (min(starts), max(ends)), attributes)
        for place, transcript in enumerate(gene):
            own = attributes | {"transcript_id": f"{transcript.name}\t{place}"}
            for kind, spans in (("exon", transcript.exons), ("CDS", transcript.cds)):
                for span in spans:
                    yield _feature(transcript, kind, span, own)


def _feature(of: _Transcript, kind: str, span: Span, attributes: dict[str, str]) -> Feature:
    return Feature(
        contig=of.contig,
        kind=kind,
        start=span[0],
        end=span[1],
        strand=of.strand,
        attributes=attributes,
        is_gtf=True,
        where=of.where,
    )


def _ends(transcript: _Transcript) -> Span:
    return transcript.exons[0][0], transcript.exons[-1][1]


def _of_equal_width(lines: Iterable[tuple[str, list[str]]]) -> Iterator[tuple[str, list[str]]]:
    """Yield lines with as many columns as the first: 12 truncated columns could pass for 6."""
    num_columns = 0
    for where, columns in lines:
        num_columns = num_columns or len(columns)
        if len(columns) != num_columns:
            raise GenomeError(
                f"{where}: has {len(columns)} columns, and the first line {num_columns}; is the "
                "file cut off, or two in one?"
            )
        yield where, columns


def _transcript(columns: list[str], where: str) -> _Transcript:
    if len(columns) < _STRAND_COLUMNS:
        raise GenomeError(
            f"{where}: {len(columns)} columns; a BED of transcripts has 6, the strand in the "
            "sixth, or 12, with blocks and CDS"
        )
    contig, start, end = bed_place(columns, where)
    if start == end:
        raise GenomeError(f"{where}: has no base (start and end are {start}); take the line out")
    name, strand = columns[3].strip(), columns[5].strip()
    if strand not in ("+", "-", "."):
        raise GenomeError(f"{where}: strand '{strand}' in column 6: must be +, - or .")
    if name in _NAMELESS:
        name = f"{contig}:{start + 1}-{end}"
    if len(columns) < _BLOCK_COLUMNS:
        return _Transcript(contig, strand, name, ((start, end),), (), where, name)
    exons = _blocks(columns, start, end, where)
    return _Transcript(contig, strand, name, exons, _coding(columns, exons, where), where, where)


def _blocks(columns: list[str], start: int, end: int, where: str) -> tuple[Span, ...]:
    """Return the exons of a line of 12 columns, in which blocks are relative to its start."""
    count = _whole(columns[9], where)
    sizes, starts = (
        [_whole(text, where) for text in columns[n].rstrip(", ").split(",")] for n in (10, 11)
    )
    if not len(sizes) == len(starts) == count:
        raise GenomeError(
            f"{where}: says {count} blocks, and has {len(sizes)} sizes and {len(starts)} starts; "
            "correct the line"
        )
    spans = [(start + at, start + at + size) for at, size in zip(starts, sizes, strict=True)]
    if (spans[0][0], spans[-1][1]) != (start, end):
        raise GenomeError(
            f"{where}: its blocks reach from {spans[0][0]} to {spans[-1][1]}, the line from "
            f"{start} to {end}; correct the line"
        )
    apart = all(left[1] <= right[0] for left, right in itertools.pairwise(spans))
    if not apart or not all(sizes):
        raise GenomeError(
            f"{where}: its blocks are empty, overlap or do not ascend; put them in order"
        )
    return tuple(spans)


def _coding(columns: list[str], exons: tuple[Span, ...], where: str) -> tuple[Span, ...]:
    """Return the exonic spans between thickStart and thickEnd; empty if the two are equal."""
    first, last = (_whole(text, where) for text in columns[6:8])
    if first == last:
        return ()
    cut = ((max(start, first), min(end, last)) for start, end in exons)
    cds = tuple((start, end) for start, end in cut if start < end)
    if not cds or not exons[0][0] <= first < last <= exons[-1][1]:
        raise GenomeError(
            f"{where}: thickStart {first} and thickEnd {last} are not within its blocks; correct "
            "the line, or make the two equal if it is not coding"
        )
    return cds


def _whole(text: str, where: str) -> int:
    if not re.fullmatch(r"[0-9]{1,15}", text.strip()):
        raise GenomeError(f"{where}: '{text}' is not a whole number of 0 or more; is it a BED?")
    return int(text)


def _joined(lines: Iterable[_Transcript]) -> list[_Transcript]:
    """Join lines that are exons of the same transcript, in the order of their first lines."""
    parts: dict[tuple[str, str, str], list[_Transcript]] = {}
    for line in lines:
        parts.setdefault((line.contig, line.strand, line.part_of), []).append(line)
    return [
        first._replace(exons=tuple(sorted(span for each in (first, *more) for span in each.exons)))
        for first, *more in parts.values()
    ]


def _genes(transcripts: list[_Transcript]) -> Iterator[list[_Transcript]]:
    """Yield groups of transcripts on one strand whose exons overlap, directly or in a chain."""
    above = list(range(len(transcripts)))  # from each to another of its gene, or itself

    def highest(number: int) -> int:
        while above[number] != number:
            above[number] = above[above[number]]
            number = above[number]
        return number

    exons = sorted(
        (each.contig, each.strand, *span, number)
        for number, each in enumerate(transcripts)
        for span in each.exons
    )
    place, reach, last = ("", ""), 0, 0
    for contig, strand, start, end, number in exons:
        if (contig, strand) == place and start < reach:
            above[highest(number)] = highest(last)
        else:
            place, reach = (contig, strand), end
        reach, last = max(reach, end), number
    genes: dict[int, list[_Transcript]] = {}
    for number, transcript in enumerate(transcripts):
        genes.setdefault(highest(number), []).append(transcript)
    yield from genes.values()


class Regions:
    """Regions in the order of the reference; regions that overlap or touch are merged.

    >>> regions = Regions([Interval("c", 5, 9), Interval("c", 0, 5)], {"c": 20})
    >>> regions.intervals
    (Interval(contig='c', start=0, end=9),)
    >>> regions.holds("c", 8), regions.holds("c", 9)
    (True, False)
    >>> regions.overlap(Interval("c", 8, 12)), regions.overlap(Interval("c", 9, 12))
    (True, False)

    Attributes:
        intervals: merged regions, on contigs of the reference.
        contigs: names of the contigs with a region.
    """

    def __init__(self, intervals: Iterable[Interval], contig_lengths_bp: Mapping[str, int]) -> None:
        """Sort and merge regions."""
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
        self.contigs = self._starts.keys()

    def overlap(self, interval: Interval) -> bool:
        """Return whether an interval shares a base with a region."""
        ends = self._ends.get(interval.contig, [])
        number = bisect_right(ends, interval.start)
        return number < len(ends) and self._starts[interval.contig][number] < interval.end

    def holds(self, contig: str, position: int) -> bool:
        """Return whether a 0-based position is in a region.

        A position before or past the contig, as VCF has for telomeres, counts as the nearest base,
        so that a region that covers a contig holds all records on it.
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
    """Return the regions named by the options of a command, or None without them.

    Args:
        region: `contig`, `contig:first-last` or `contig:first-`, 1-based and inclusive.
        path: BED, plain or gzip; its intervals are 0-based and half-open. Regions without bases,
            which BED allows for insertions, are left out and counted on stderr.
        contig_lengths_bp: contigs of the reference.
        names: the reference's name of each contig that other files name differently.

    Raises:
        GenomeError: a contig is unknown, a region ends past it, or the file has no region.
    """
    if path is None:
        if region is None:
            return None
        return Regions([region_by_name(region, contig_lengths_bp, names)], contig_lengths_bp)
    intervals, empty = [], []
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
        else:
            empty.append(where)
    if empty:
        first = f"first: {empty[0]}"
        say(f"{path}: left out {len(empty):,} regions without bases, start = end ({first})")
    if not intervals:
        raise GenomeError(f"{path}: has no region")
    return Regions(intervals, contig_lengths_bp)
