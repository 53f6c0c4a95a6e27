"""Places of a BED as records, each of the source that its kind names: enhancers, and any other."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from carbon.errors import UserError
from carbon.genome import Strand
from carbon.genome.bed import bed_lines, bed_place
from data_pipeline.cuts import Dropped
from data_pipeline.recipe import AssemblyConfig, RegionsConfig
from data_pipeline.records import Record, Segment

_NAME_COLUMN, _STRAND_COLUMN = 4, 6
_STRANDS: dict[str, Strand] = {"+": "+", "-": "-", ".": "+", "": "+"}
_NOT_IN_A_NAME = re.compile(r"[^\w.-]+|^[.-]+")


def bed_regions(
    config: RegionsConfig,
    assembly: AssemblyConfig,
    names: Mapping[str, str],
    contig_lengths_bp: Mapping[str, int],
) -> Iterator[tuple[str, Record | Dropped]]:
    """Yield the places of a BED with their flanks, each with the source that it is of.

    They are in the coordinates of the annotation: names and offset of the assembly apply. Flanks
    end where the contig does; a place without a strand is read as the contig stands.

    Raises:
        UserError: a line is not BED, or lacks the column of kinds; or no line is on the assembly.
    """
    on_assembly = False
    for where, columns in bed_lines(Path(config.path)):
        contig, start, end = bed_place(columns, where)
        contig = names.get(contig, contig)
        start, end = (place - assembly.annotation_offset_bp for place in (start, end))
        source = config.source or _kind(columns, config.kind_column, where)
        place = f"{contig}:{start + 1}-{end}"
        given = _column(columns, _NAME_COLUMN).strip(" .")
        name = f"{given or source} {place}"
        length_bp = contig_lengths_bp.get(contig)
        if length_bp is None:
            yield source, Dropped(name, "contig_not_in_fasta")
        elif not 0 <= start < end <= length_bp:
            yield source, Dropped(name, "outside_of_the_sequence")
        else:
            on_assembly = True
            first, last = max(0, start - config.flank_bp), min(length_bp, end + config.flank_bp)
            segment = Segment(first, last, _strand(columns, where))
            yield source, Record(contig, (segment,), "", name)
    if not on_assembly:
        some = ", ".join(list(contig_lengths_bp)[:3])
        raise UserError(
            f"{config.path}: no line lies on the assembly, whose contigs are {some} ...; are they "
            "named alike?"
        )


def _column(columns: list[str], number: int) -> str:
    return columns[number - 1] if len(columns) >= number else ""


def _kind(columns: list[str], number: int, where: str) -> str:
    kind = _NOT_IN_A_NAME.sub("_", _column(columns, number).strip()).strip("_")
    if not kind:
        raise UserError(
            f"{where}: has no kind in column {number}; give the column of kinds (kind_column), or "
            "one source for all lines"
        )
    return kind


def _strand(columns: list[str], where: str) -> Strand:
    told = _column(columns, _STRAND_COLUMN).strip()
    if told not in _STRANDS:
        raise UserError(f"{where}: strand '{told}' in column 6: must be +, - or .")
    return _STRANDS[told]
