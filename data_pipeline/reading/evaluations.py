"""Places that models will be measured on, which no record may overlap."""

import bisect
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from carbon.errors import GenomeError, UserError
from carbon.genome import Interval
from carbon.genome.bed import bed_lines, bed_place
from carbon.genome.streams import BROKEN_GZIP, open_text
from data_pipeline.reading.assemblies import names_of
from data_pipeline.recipe import AssemblyConfig, EvaluationConfig


class EvaluationPlaces:
    """Places on contigs, to be asked whether anything overlaps one."""

    def __init__(self, intervals: Iterable[Interval]) -> None:
        """Join them, so that two ends tell."""
        self._starts: dict[str, list[int]] = {}
        self._ends: dict[str, list[int]] = {}
        for place in sorted(intervals):
            starts = self._starts.setdefault(place.contig, [])
            ends = self._ends.setdefault(place.contig, [])
            if ends and place.start <= ends[-1]:
                ends[-1] = max(ends[-1], place.end)
            else:
                starts.append(place.start)
                ends.append(place.end)

    @property
    def contigs(self) -> Collection[str]:
        """Those that a place is on."""
        return self._ends.keys()

    def overlap(self, interval: Interval) -> bool:
        """Tell whether an interval shares a base with a place."""
        ends = self._ends.get(interval.contig, [])
        at = bisect.bisect_right(ends, interval.start)
        return at < len(ends) and self._starts[interval.contig][at] < interval.end


def evaluation_places(
    config: EvaluationConfig, assembly: AssemblyConfig, contig_lengths_bp: Mapping[str, int]
) -> list[Interval]:
    """Return the places of a BED or VCF on an assembly, widened by its margin.

    They are in the coordinates of the annotation: names and offset of the assembly apply.

    Raises:
        UserError: a line is neither, or no place is on the assembly.
    """
    path = Path(config.path)
    is_vcf = path.name.removesuffix(".gz").endswith(".vcf")
    names = names_of(assembly, contig_lengths_bp)
    result = []
    for place in _vcf_places(path) if is_vcf else _bed_places(path):
        contig = names.get(place.contig, place.contig)
        start = place.start - assembly.annotation_offset_bp - config.margin_bp
        end = place.end - assembly.annotation_offset_bp + config.margin_bp
        if end > 0 and start < contig_lengths_bp.get(contig, 0):
            result.append(Interval(contig, max(0, start), end))
    if not result:
        raise UserError(
            f"{path}: no place lies on assembly '{config.assembly}', whose contigs are "
            f"{', '.join(list(contig_lengths_bp)[:3])} ...; are they named alike?"
        )
    return result


def _bed_places(path: Path) -> Iterator[Interval]:
    return (Interval(*bed_place(columns, where)) for where, columns in bed_lines(path))


def _vcf_places(path: Path) -> Iterator[Interval]:
    number = 0
    try:
        with open_text(path, errors="replace") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip() and not line.startswith("#"):
                    yield _vcf_place(line, f"{path} line {number}")
    except BROKEN_GZIP as error:
        raise UserError(f"{path}: broken after line {number} ({error}); fetch it again") from None


def _vcf_place(line: str, where: str) -> Interval:
    columns = line.rstrip("\r\n").split("\t")
    try:
        start = int(columns[1]) - 1  # POS is 1-based, and REF tells the end
        return Interval(columns[0], start, start + len(columns[3]))
    except (IndexError, ValueError, GenomeError):
        raise UserError(f"{where}: is no line of VCF") from None
