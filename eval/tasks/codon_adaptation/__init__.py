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
from eval.tables import Row
from eval.tasks.codon_adaptation.build import build
from eval.tasks.common.held_out import gene_examples

_LEAST_GENES = 4
_BLOCK = 64


def _examples(table: pa.Table, options: Options) -> list[Example]:
    """Return a question a gene.

    Raises:
        UserError: there are fewer than four genes.
    """
    examples = gene_examples(table, options)
    if len(examples) < _LEAST_GENES:
        raise UserError(f"{len(examples)} coding genes: a correlation needs {_LEAST_GENES}")
    return examples


def _run(model: Model, examples: Sequence[Example]) -> Iterator[Result]:
    """Yield the nats per base of each coding sequence, read by itself along its strand."""
    for block in in_blocks(examples, _BLOCK):
        rows: list[Row] = [example.data["row"] for example in block]
        sequences = [row.dna("cds") for row in rows]
        totals = model.log_likelihoods(sequences)
        for example, row, cds, total in zip(block, rows, sequences, totals, strict=True):
            nats, index = float(-total / len(cds)), float(row["index"])
            yield example.result(score=nats, index=index, gc=gc_share(cds))


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
    axis="your genome",
    measures="rank correlation of nats per base of held-out genes with codon adaptation",
    metric="rank_correlation",
    chance=0.0,
    citation="codon adaptation index of Sharp and Li 1987",
    columns={"gene_id": str, "cds": str, "index": float},
    build=build,
    examples=_examples,
    run=_run,
    summarise=_summarise,
)
