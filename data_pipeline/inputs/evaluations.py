"""Places that models will be measured on, which no record may overlap."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from carbon.errors import UserError
from carbon.genome import Interval, read_sequences
from carbon.genome.bed import bed_lines, bed_place, is_bed
from carbon.genome.genes import parts_on_contig
from carbon.genome.kmers import canonical_kmers
from carbon.genome.vcf import holds_variants
from data_pipeline.inputs.assemblies import names_of
from data_pipeline.inputs.variant_places import Shortened, variant_places
from data_pipeline.recipe import AssemblyConfig, EvaluationConfig

_VCF_NAME = re.compile(r"\.vcf(\.b?gz)?$", re.IGNORECASE)


def evaluation_sequences(config: EvaluationConfig) -> Iterator[tuple[str, str]]:
    """Return name and bases of the sequences of an evaluation that names no assembly.

    Raises:
        UserError: the file holds places, or is not FASTA.
    """
    path = Path(config.path)
    if holds_variants(path) or _VCF_NAME.search(path.name) or is_bed(path):
        raise UserError(
            f"{path}: has places and no sequences; name the assembly that they lie on (`assembly` "
            "of the evaluation)"
        )
    return read_sequences(path)


def evaluation_places(
    config: EvaluationConfig,
    assembly: AssemblyConfig,
    contig_lengths_bp: Mapping[str, int],
    circular: Collection[str] = (),
) -> tuple[list[Interval], list[str]]:
    """Return the places of a BED, VCF or BCF on an assembly, widened by its margin, and warnings.

    A warning is for each kind of place that is left out or not whole. On a circular contig the
    margin continues over the origin.
    The file is in the coordinates of the annotation: names and offset of the assembly apply. Its
    content distinguishes VCF or BCF from BED; a VCF without a header is recognised by its name.

    Raises:
        UserError: a line is neither, there is none, or no place is on the assembly.
    """
    path = Path(config.path)
    names = names_of(assembly, contig_lengths_bp)
    shortened: Counter[Shortened] = Counter()
    result: list[Interval] = []
    num_places, num_here = 0, 0
    is_vcf = holds_variants(path) or _VCF_NAME.search(path.name)
    of_bed = (Interval(*bed_place(columns, where)) for where, columns in bed_lines(path))
    for place in variant_places(path, shortened) if is_vcf else of_bed:
        num_places += 1
        contig = names.get(place.contig, place.contig)
        start = place.start - assembly.annotation_offset_bp - config.margin_bp
        end = place.end - assembly.annotation_offset_bp + config.margin_bp
        length_bp = contig_lengths_bp.get(contig, 0)
        if length_bp and end > 0 and start < length_bp:
            num_here += 1
            if contig in circular:
                first = start % length_bp
                result += parts_on_contig(Interval(contig, first, first + end - start), length_bp)
            else:
                result.append(Interval(contig, max(0, start), end))
    if not num_places:
        raise UserError(f"{path}: has no {'record' if is_vcf else 'line'}; take the evaluation out")
    if not result:
        raise UserError(
            f"{path}: no place lies on assembly '{config.assembly}', whose contigs are "
            f"{', '.join(list(contig_lengths_bp)[:3])} ...; are they named alike?"
        )
    return result, _warnings(config, num_places, num_here, shortened)


def _warnings(
    config: EvaluationConfig, num_places: int, num_kept: int, shortened: Mapping[Shortened, int]
) -> list[str]:
    counts = [f"{count:,} {why.value}" for why, count in shortened.items()]
    if num_kept < num_places:
        elsewhere = num_places - num_kept
        counts.append(
            f"{elsewhere:,} of {num_places:,} places lie outside of assembly '{config.assembly}'"
        )
    return [f"warning: {config.path}: {each}" for each in counts]


EVALUATION_K = 31


class EvaluationSequences:
    """The 31-mers of sequences that models will be measured on."""

    def __init__(self, named: Iterable[tuple[str, str]], shared: float) -> None:
        """Index sequences.

        Raises:
            UserError: one has no 31 known bases in a row.
        """
        self._shared = shared
        self.names: list[str] = []
        kmers, owners, sizes = [], [], []
        for name, sequence in named:
            found = np.unique(canonical_kmers(sequence, EVALUATION_K))
            if not len(found):
                raise UserError(
                    f"evaluation sequence '{name}': has no {EVALUATION_K} known bases in a row; "
                    "leave it out, or give its place in a BED"
                )
            owners.append(np.full(len(found), len(self.names)))
            kmers.append(found)
            sizes.append(len(found))
            self.names.append(name)
        self._kmers = np.concatenate([np.zeros(0, dtype=np.uint64), *kmers])
        self._owners = np.concatenate([np.zeros(0, dtype=np.int64), *owners])
        self._needed = np.array(sizes) * shared
        order = np.argsort(self._kmers, kind="stable")
        self._kmers, self._owners = self._kmers[order], self._owners[order]

    def contained_in(self, sequence: str) -> str | None:
        """Return the name of an evaluation sequence that a record nearly contains or lies in.

        That is where one of the two has this share of the other's distinct 31-mers.
        """
        if not self.names:
            return None
        mine = np.unique(canonical_kmers(sequence, EVALUATION_K))
        first = np.searchsorted(self._kmers, mine, side="left")
        last = np.searchsorted(self._kmers, mine, side="right")
        hit = last > first
        if not hit.any():
            return None
        spans = zip(first[hit].tolist(), last[hit].tolist(), strict=True)
        owners = np.concatenate([self._owners[a:b] for a, b in spans])
        counts = np.bincount(owners, minlength=len(self.names))
        needed = np.minimum(self._needed, self._shared * len(mine))
        full = np.flatnonzero((counts > 0) & (counts >= needed))
        return self.names[full[0]] if len(full) else None
