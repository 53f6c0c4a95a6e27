"""Records of a VCF or FASTA as a stream, and values that other libraries have for them.

Variants of pysam and cyvcf2, and intervals of pyranges, pybedtools or a table, are recognised by
their attributes, so that none of these packages is needed.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from carbon.errors import GenomeError
from carbon.genome.bed import Regions
from carbon.genome.interval import Interval, Variant, from_region, region_contig
from carbon.genome.sequences import SequenceRecord, read_records
from carbon.genome.vcf import RecordFilter, VcfReader, VcfRow

_ANY_LENGTH_BP = 2**31 - 1  # largest position of a BCF
_VARIANT_HINT = (
    'write carbon.Variant("chr1", 9, "A", "T") or Variant.parse("chr1:10 A>T"), or pass records of '
    "carbon.read_vcf, pysam or cyvcf2"
)
_INTERVAL_HINT = (
    'write carbon.Interval("chr1", 0, 600) or "chr1:1-600", a list of intervals, or a table with '
    "the columns Chromosome, Start and End"
)


class PysamRecord(Protocol):
    """A record of pysam, whose position is 1-based."""

    @property
    def contig(self) -> str:
        """Contig."""

    @property
    def pos(self) -> int:
        """Position."""

    @property
    def ref(self) -> str | None:
        """REF."""

    @property
    def alts(self) -> Sequence[str] | None:
        """ALT alleles."""


class Cyvcf2Record(Protocol):
    """A record of cyvcf2, whose position is 1-based."""

    @property
    def CHROM(self) -> str:
        """Contig."""

    @property
    def POS(self) -> int:
        """Position."""

    @property
    def REF(self) -> str:
        """REF."""

    @property
    def ALT(self) -> Sequence[str]:
        """ALT alleles."""


Record = Variant | VcfRow | PysamRecord | Cyvcf2Record
"""What has variants: one, or a record of a VCF with one for each ALT."""


class Place(Protocol):
    """An interval of pybedtools, 0-based and half-open."""

    @property
    def chrom(self) -> str:
        """Contig."""

    @property
    def start(self) -> int:
        """Start."""

    @property
    def end(self) -> int:
        """End."""


class PlaceTable(Protocol):
    """A PyRanges or another table with the columns `Chromosome`, `Start` and `End`."""

    @property
    def columns(self) -> Any:
        """Names of the columns."""

    def __getitem__(self, name: Any) -> Any:
        """Return a column."""


Intervals = Interval | Place | PlaceTable | Iterable[Interval | Place]
"""One interval or several, 0-based and half-open."""
Region = str | Intervals
"""`contig:first-last` or `contig:first-`, 1-based with both ends included, or intervals."""


def read_fasta(path: str | Path) -> Iterator[SequenceRecord]:
    """Return an iterator over the records of a FASTA or FASTQ: `name`, `description`, `bases`.

    One record is in memory at a time. A FASTA is checked completely before the first record.

    Args:
        path: plain, bgzip or gzip; `-` reads standard input.

    Raises:
        GenomeError: the file is missing, empty, truncated or not DNA in one of the formats.
    """
    return read_records(path)


def read_vcf(path: str | Path, region: Region | None = None) -> VcfReader:
    """Return a reader that yields the records of a sorted VCF or BCF, one in memory at a time.

    A record has its `columns` as text, `contig`, `number` and `variants`, one for each ALT. REF is
    not compared with a reference; `Model.score_vcf` does that. After a full pass, `warnings` of the
    reader has the broken rules of the format that do not prevent reading.

    Args:
        path: VCF, plain, gzip or bgzip; or BCF.
        region: yield the records whose POS is in it: `contig`, `contig:first-last` (1-based, both
            ends included), `contig:first-` (to the end), an `Interval`, or several as for
            `intervals_of`; all records if None.

    Raises:
        GenomeError: the file does not exist, is not a VCF or BCF, or its header is malformed; while
            reading: a record is malformed or out of order.
    """
    if region is None:
        return VcfReader(path)
    declared = VcfReader(path).contigs
    places = list(_places(region, declared))
    names = dict.fromkeys([*sorted(declared), *(place.contig for place in places)])
    regions = Regions(places, dict.fromkeys(names, _ANY_LENGTH_BP))
    return VcfReader(path, keep=RecordFilter(regions=regions))


def _places(region: Region, declared: frozenset[str]) -> Iterator[Interval]:
    """Yield the intervals of a region of a VCF; a header without contigs allows any contig."""
    places = [_typed(region, declared)] if isinstance(region, str) else intervals_of(region)
    for place in places:
        if declared and place.contig not in declared:
            first = ", ".join(sorted(declared)[:5])
            raise GenomeError(
                f"region '{place.to_region()}': the header declares no contig '{place.contig}'; "
                f"give one of: {first} ..."
            )
        yield place


def _typed(region: str, declared: frozenset[str]) -> Interval:
    contig = region if region in declared else region_contig(region)
    return from_region(region, {contig: _ANY_LENGTH_BP})


def intervals_of(region: Intervals) -> list[Interval]:
    """Return intervals that other libraries describe.

    Args:
        region: an `Interval`; an object with `chrom`, `start` and `end` (pybedtools), 0-based and
            half-open; a PyRanges or another table with the columns `Chromosome`, `Start` and `End`;
            or several of the first two.

    Raises:
        TypeError: it is anything else.
        GenomeError: there is no interval, or one has no bases.
    """
    intervals = _intervals(region)
    if not intervals:
        raise GenomeError(f"region: has no intervals; {_INTERVAL_HINT}")
    for number, each in enumerate(intervals, start=1):
        if not each.length_bp:
            place = f"{each.contig}, start and end {each.start}"
            raise GenomeError(f"region: interval {number} ({place}) has no bases; leave it out")
    return intervals


def _intervals(region: Intervals) -> list[Interval]:
    table = getattr(region, "df", region)  # PyRanges before 1.0 has its table there
    if hasattr(table, "columns"):
        return _of_table(table)
    if isinstance(region, Interval) or hasattr(region, "chrom"):
        return [_interval(region)]
    if isinstance(region, Iterable) and not isinstance(region, (str, bytes)):
        return [_interval(each) for each in region]
    raise _no_interval(region)


def _of_table(table: Any) -> list[Interval]:
    names = ("Chromosome", "Start", "End")
    if missing := [name for name in names if name not in list(table.columns)]:
        raise TypeError(f"region: a table without the column {missing[0]}; {_INTERVAL_HINT}")
    rows = zip(*(table[name] for name in names), strict=True)
    return [Interval(str(contig), int(start), int(end)) for contig, start, end in rows]


def _interval(item: Any) -> Interval:
    if isinstance(item, Interval):
        return item
    if not hasattr(item, "chrom"):
        raise _no_interval(item)
    return Interval(str(item.chrom), int(item.start), int(item.end))


def _no_interval(value: object) -> TypeError:
    return TypeError(f"region: a {type(value).__name__} is not an interval; {_INTERVAL_HINT}")


def variants_of(record: Record) -> tuple[Variant, ...]:
    """Return the variants of a record, one for each ALT.

    Args:
        record: a `Variant`, a `VcfRow`, or a record of pysam (`contig`, `pos`, `ref`, `alts`) or
            cyvcf2 (`CHROM`, `POS`, `REF`, `ALT`), whose positions are 1-based.

    Raises:
        TypeError: it is anything else.
    """
    if isinstance(record, Variant):
        return (record,)
    if isinstance(record, VcfRow):
        return record.variants
    columns: Any = record
    if hasattr(record, "alts"):
        place, ref, alts = (columns.contig, columns.pos), columns.ref, columns.alts
    elif hasattr(record, "CHROM"):
        place, ref, alts = (columns.CHROM, columns.POS), columns.REF, columns.ALT
    else:
        raise TypeError(f"a {type(record).__name__} is not a Variant; {_VARIANT_HINT}")
    contig, position = place
    return tuple(Variant(contig, position - 1, ref, alt) for alt in alts or ())
