"""Codon adaptation: are genes with the codons of highly expressed genes more likely?"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from carbon.batching import in_blocks
from carbon.errors import UserError
from carbon.genome.alphabet import gc_share
from carbon.metrics import rank_correlation
from carbon.uncertainty import Statistic, bootstrap
from eval.contract import Estimate, Example, Floats, Model, Options, Result, Summary, Task
from eval.metrics import column_of, summary_of
from eval.tasks.codon_adaptation.build import build
from eval.tasks.common.tables import Row, check_dna, chosen_rows, reader

COLUMNS: dict[str, type] = {"gene_id": str, "cds": str, "index": float}
_LEAST_GENES = 4
_BLOCK = 64


def _examples(table: pa.Table, options: Options) -> list[Example]:
    """Return a question a gene.

    Raises:
        UserError: there are fewer than four genes.
    """
    rows = [Row(table, number) for number in chosen_rows(table.num_rows, options)]
    if len(rows) < _LEAST_GENES:
        raise UserError(f"{len(rows)} coding genes: a correlation needs {_LEAST_GENES}")
    return [Example(f"{row.number + 1}:{row['gene_id']}", "", {"row": row}) for row in rows]


def _run(model: Model, examples: Sequence[Example]) -> Iterator[Result]:
    """Yield the nats per base of each coding sequence, read by itself along its strand."""
    for block in in_blocks(examples, _BLOCK):
        rows: list[Row] = [example.data["row"] for example in block]
        sequences = [check_dna(row["cds"], f"{row.where} cds") for row in rows]
        totals = model.log_likelihoods(sequences)
        for example, row, cds, total in zip(block, rows, sequences, totals, strict=True):
            yield {
                "id": example.id,
                "group": example.group,
                "score": float(-total / len(cds)),
                "index": float(row["index"]),
                "gc": gc_share(cds),
            }


def _summarise(results: Sequence[Result]) -> Summary:
    nats, index, gc = (column_of(results, key) for key in ("score", "index", "gc"))
    summary = summary_of(results, "rank_correlation", groups=())
    summary.others.update(
        without_gc=bootstrap(_partial(nats, index, gc), len(nats)),
        with_gc=_spearman(nats, gc),
        gc_with_index=_spearman(gc, index),
    )
    summary.notes.append(
        "the correlation of nats per base with the codon adaptation index is negative where genes "
        "with the codons of highly expressed genes are more likely; `without_gc` removes the part "
        "that GC content explains"
    )
    return summary


def _spearman(one: Floats, other: Floats) -> Estimate:
    return bootstrap(lambda weights: rank_correlation(one, other, weights), len(one))


def _partial(one: Floats, other: Floats, removed: Floats) -> Statistic:
    """Return the rank correlation of two arrays without the part that a third explains."""

    def statistic(weights: Floats) -> float:
        both = rank_correlation(one, other, weights)
        first = rank_correlation(one, removed, weights)
        second = rank_correlation(other, removed, weights)
        rest = (1 - first**2) * (1 - second**2)
        return float((both - first * second) / np.sqrt(rest)) if rest > 0 else float("nan")

    return statistic


TASK = Task(
    name="codon_adaptation",
    version="1",
    axis="your genome",
    measures="rank correlation of nats per base of held-out genes with codon adaptation",
    metric="rank_correlation",
    chance=0.0,
    citation="codon adaptation index of Sharp and Li 1987",
    columns=COLUMNS,
    read=reader(COLUMNS, None),
    build=build,
    examples=_examples,
    run=_run,
    summarise=_summarise,
)
