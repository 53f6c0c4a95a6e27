"""Places inside genes, with the bases before them and the bases to recover."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from carbon.errors import UserError
from carbon.genome import (
    CHR,
    Gene,
    Interval,
    Reference,
    contig_names,
    read_annotation,
    reverse_complement,
)
from eval.contract import BuildReport
from eval.tasks.common.building import Source, write_dataset

LABEL_BP = 128
PROMPT_BP = 6144
_TRIES = 20  # draws for one row


def build(
    output: Path,
    *,
    sources: Sequence[Source],
    num_examples: int = 5000,
    seed: int = 0,
) -> BuildReport:
    """Write places drawn from the genes of each source, in proportion to their lengths.

    A sequence is read along its gene's strand and ends at the place; it may begin before the gene.

    Args:
        output: Parquet to write.
        sources: a genome with its annotation for each group.
        num_examples: rows of each source.
        seed: of the draw.

    Raises:
        GenomeError: files are broken or not of one assembly.
        UserError: a source has no annotation, or nothing is left.
    """
    dropped: Counter[str] = Counter()
    inputs = [path for source in sources for path in source[1:] if isinstance(path, Path)]
    rows = [
        row
        for number, source in enumerate(sources)
        for row in _rows(source, num_examples, [seed, number], dropped)
    ]
    settings = {
        "task": "sequence_recovery",
        "groups": [source.group for source in sources],
        "num_examples": num_examples,
        "prompt_bp": PROMPT_BP,
        "seed": seed,
    }
    return write_dataset(output, rows, dropped, inputs, settings)


def _rows(
    source: Source, num_rows: int, seed: list[int], dropped: Counter[str]
) -> Iterator[dict[str, Any]]:
    if source.annotation is None:
        raise UserError(f"source '{source.group}': needs an annotation beside {source.fasta}")
    with Reference(source.fasta) as reference:
        names = contig_names(CHR, reference.contig_lengths_bp)
        genes = read_annotation(source.annotation, reference, contig_names=names).genes
        long_enough = [gene for gene in genes if gene.interval.length_bp >= LABEL_BP]
        dropped["gene_shorter_than_a_label"] += len(genes) - len(long_enough)
        num_found = 0
        for gene, offset in _places(long_enough, _TRIES * num_rows, seed):
            if num_found == num_rows:
                return
            row = _row(reference, source.group, gene, offset)
            if isinstance(row, str):
                dropped[row] += 1
            else:
                num_found += 1
                yield row
        dropped["place_wanted_and_not_found"] += num_rows - num_found


def _places(genes: Sequence[Gene], num_draws: int, seed: list[int]) -> Iterator[tuple[Gene, int]]:
    """Yield different places, each a gene and how many of its bases are read before it."""
    counts = np.array([gene.interval.length_bp - LABEL_BP + 1 for gene in genes], dtype=np.int64)
    ends = np.cumsum(counts)
    if not len(ends):
        return
    random = np.random.default_rng(seed)
    seen: set[int] = set()
    for place in random.integers(ends[-1], size=num_draws).tolist():
        if place not in seen:
            seen.add(place)
            which = int(np.searchsorted(ends, place, side="right"))
            yield genes[which], place - int(ends[which] - counts[which])


def _row(reference: Reference, group: str, gene: Gene, offset: int) -> dict[str, Any] | str:
    contig, start, end = gene.interval.contig, gene.interval.start, gene.interval.end
    whole_bp = PROMPT_BP + LABEL_BP
    if gene.strand == "+":
        label = Interval(contig, start + offset, start + offset + LABEL_BP)
        first = label.start - PROMPT_BP
    else:
        label = Interval(contig, end - offset - LABEL_BP, end - offset)
        first = label.start
    if first < 0 or first + whole_bp > reference.contig_lengths_bp[contig]:
        return "near_the_end_of_its_contig"
    bases = reference.fetch(Interval(contig, first, first + whole_bp)).upper()
    read = bases if gene.strand == "+" else reverse_complement(bases)
    if not set(read[PROMPT_BP:]) <= set("ACGT"):
        return "unknown_base_in_label"
    return {
        "sequence": read[:PROMPT_BP],
        "label": read[PROMPT_BP:],
        "type": group,
        "record_id": contig,
        "start": label.start,
        "end": label.end,
        "strand": gene.strand,
    }
