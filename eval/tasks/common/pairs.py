"""The two perturbation tasks: which of two sequences is real?"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from carbon.batching import in_blocks
from carbon.errors import UserError
from carbon.genome import CHR, Reference, contig_names, read_annotation
from eval.contract import BuildReport, Example, Model, Options, Result, Task
from eval.metrics import summary_of
from eval.tasks.common.building import write_drawn
from eval.tasks.common.coding import CodingExon, coding_exons

COLUMNS: dict[str, type] = {"original_sequence": str, "sequence": str}
HUB_ID = "HuggingFaceBio/perturbation-bench"
_BLOCK = 64
_BASES = frozenset("ACGT")

Perturb = Callable[[Reference, CodingExon], dict[str, Any] | str]
"""From an exon to a row, or to the reason why there is none."""


def task(
    name: str,
    build: Callable[..., BuildReport],
    hub_file: str,
    published: dict[str, float],
    measures: str,
) -> Task:
    """Return a task whose rows have an `original_sequence` and a perturbed `sequence`."""
    return Task(
        name=name,
        axis="perturbation",
        measures=measures,
        metric="mean",
        chance=0.5,
        published=published,
        citation="Carbon technical report, tables 6 and 7",
        columns=COLUMNS,
        hub_id=HUB_ID,
        hub_file=hub_file,
        build=build,
        examples=_examples,
        run=_run,
        summarise=partial(summary_of, metric="mean"),
    )


def _examples(table: pa.Table, options: Options) -> list[Example]:
    """Return a question a row.

    Raises:
        UserError: a row is not a pair of sequences of one length.
    """
    examples = []
    for row in options.rows_of(table):
        real_bp, changed_bp = map(row.length_bp, COLUMNS)
        if real_bp != changed_bp:
            raise UserError(
                f"{row.where}: original_sequence has {real_bp} bases and sequence {changed_bp}; "
                "a longer sequence is less likely for that alone"
            )
        group = str(row.get("species") or "")
        examples.append(Example(str(row.number + 1), group, {"row": row}, real_bp))
    return examples


def _run(model: Model, examples: Sequence[Example]) -> Iterator[Result]:
    """Yield whether the real sequence is the likelier one of each pair, in order.

    A tie is a miss, as published. Both are of one length, so that sums and means agree.
    """
    for block in in_blocks(examples, _BLOCK):
        rows = [example.data["row"] for example in block]
        pairs = [(row.dna("original_sequence"), row.dna("sequence")) for row in rows]
        for example, difference in zip(block, model.differences(pairs), strict=True):
            score = np.nan if np.isnan(difference) else float(difference > 0)
            yield example.result(score=score, difference_nats=float(difference))


def build_pairs(
    output: Path,
    *,
    reference: Path,
    annotation: Path,
    perturb: Perturb,
    inputs: Sequence[Path],
    num_examples: int | None,
    seed: int,
    settings: dict[str, Any],
) -> BuildReport:
    """Perturb the coding exons of a genome, one transcript a gene.

    Args:
        output: Parquet to write.
        reference: FASTA.
        annotation: GFF3, GTF or BED of it.
        perturb: an exon.
        inputs: further files that the rows follow from.
        num_examples: most rows; all if None.
        seed: of the choice of those rows.
        settings: more to write down about the build.

    Raises:
        GenomeError: the files are broken or not of one assembly.
        UserError: nothing is left.
    """
    dropped: Counter[str] = Counter()
    rows = []
    with Reference(reference) as fasta:
        names = contig_names(CHR, fasta.contig_lengths_bp)
        genes = read_annotation(annotation, fasta, contig_names=names)
        for exon in coding_exons(fasta, genes, dropped):
            row = perturb(fasta, exon)
            if isinstance(row, str):
                dropped[row] += 1
            elif not set(row["original_sequence"]) <= _BASES:
                dropped["unknown_base"] += 1
            else:
                rows.append(row)
    files = (reference, annotation, *inputs)
    return write_drawn(output, rows, num_examples, seed, dropped, files, {**settings, "seed": seed})
