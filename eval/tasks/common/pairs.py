"""The two perturbation tasks: which of two sequences is real?"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from carbon.batching import in_blocks
from carbon.errors import UserError
from carbon.genome import CHR, Reference, contig_names, read_annotation
from eval.contract import BuildReport, Example, Model, Options, Result, Task
from eval.metrics import summary_of
from eval.tasks.common.building import drawn, write_dataset
from eval.tasks.common.coding import CodingExon, coding_exons
from eval.tasks.common.tables import Row, check_dna, chosen_rows, reader

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
        version="1",
        axis="perturbation",
        measures=measures,
        metric="mean",
        chance=0.5,
        published=published,
        citation="Carbon technical report, tables 6 and 7",
        columns=COLUMNS,
        hub_id=HUB_ID,
        hub_file=hub_file,
        read=reader(COLUMNS, hub_file),
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
    lengths = [pc.utf8_length(table[name]) for name in COLUMNS]
    examples = []
    for number in chosen_rows(table.num_rows, options):
        row = Row(table, number)
        real_bp, changed_bp = (column[number].as_py() for column in lengths)
        if real_bp != changed_bp:
            raise UserError(
                f"{row.where}: original_sequence has {real_bp} bases and sequence {changed_bp}; "
                "a longer sequence is less likely for that alone"
            )
        group = str(row.get("species") or "")
        examples.append(Example(str(number + 1), group, row, real_bp))
    return examples


def _run(model: Model, examples: Sequence[Example]) -> Iterator[Result]:
    """Yield whether the real sequence is the likelier one of each pair, in order.

    A tie is a miss, as published. Both are of one length, so that sums and means agree.
    """
    for block in in_blocks(examples, _BLOCK):
        pairs = [_pair(example.data) for example in block]
        for example, difference in zip(block, model.differences(pairs), strict=True):
            yield {
                "id": example.id,
                "group": example.group,
                "score": np.nan if np.isnan(difference) else float(difference > 0),
                "difference_nats": float(difference),
            }


def _pair(data: Any) -> tuple[str, str]:
    real, changed = (check_dna(data[name], f"{data.where} {name}") for name in COLUMNS)
    return real, changed


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
        exons = coding_exons(fasta, genes, dropped)
        for exon in exons:
            row = perturb(fasta, exon)
            if isinstance(row, str):
                dropped[row] += 1
            elif not set(row["original_sequence"]) <= _BASES:
                dropped["unknown_base"] += 1
            else:
                rows.append(row)
    kept = drawn(len(rows), num_examples, seed)
    dropped["not_drawn"] += len(rows) - len(kept)
    return write_dataset(
        output,
        [rows[number] for number in kept],
        dropped,
        (reference, annotation, *inputs),
        {**settings, "seed": seed},
    )
