"""Held-out likelihood: nats per base of the records that a corpus held out."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from carbon.inference.held_out import measured_bases
from carbon.uncertainty import bootstrap, ratio_of
from eval.contract import Estimate, Example, Floats, Model, Options, Result, Summary, Task
from eval.metrics import column_of, summary_of
from eval.tables import Row
from eval.tasks.heldout_likelihood.build import build
from eval.tasks.heldout_likelihood.overlap import overlap_clause

_CLUSTER = "gene"
_KMERS = ("kmers", "shared_kmers")


def _examples(table: pa.Table, options: Options) -> list[Example]:
    """Return a question for each stretch of a record that belongs to one gene, or for the record.

    The stretches of a record are read together, because a base depends on all bases before it.
    """
    return [example for row in options.rows_of(table) for example in _of_record(row)]


def _of_record(row: Row) -> Iterator[Example]:
    genes = row.get("genes") or [f"record {row.number + 1:08d}"]
    ends = row.get("gene_ends") or [len(row["sequence"])]
    start = 0
    for number, (gene, end) in enumerate(zip(genes, ends, strict=True), start=1):
        data = {"row": row, "start": start, "end": end, "gene": gene}
        yield Example(f"{row.number + 1}.{number}", "", data, together=f"record {row.number}")
        start = end


def _run(model: Model, examples: Sequence[Example]) -> Iterator[Result]:
    """Yield the nats of each stretch, over bases with six known bases before them."""
    for _, run in groupby(examples, lambda example: example.together):
        stretches = list(run)
        row: Row = stretches[0].data["row"]
        sequence = row.dna("sequence")
        values, counted = model.base_log_likelihoods([sequence])[0], measured_bases(sequence)
        conserved = _is_conserved(row, len(sequence))
        kmers = {name: row.get(name) or 0 for name in _KMERS}
        for example in stretches:
            result = _result(example, values, counted, conserved)
            if "skipped" not in result:  # the first that is measured counts them for the record
                result, kmers = result | kmers, dict.fromkeys(_KMERS, 0)
            yield result


def _is_conserved(row: Row, length_bp: int) -> NDArray[np.bool_] | None:
    """Return which bases are conserved; None if the dataset does not say."""
    if not row.get("conserved_by"):
        return None
    found = np.zeros(length_bp, dtype=bool)
    for start, end in row["conserved"]:
        found[start:end] = True
    return found


def _result(example: Example, values: Any, counted: Any, conserved: Any) -> Result:
    here = slice(example.data["start"], example.data["end"])
    found = example.result(gene=example.data["gene"])
    nats = -values[here][counted[here]]
    if not len(nats):
        return {**found, "skipped": "no base has six known bases before it"}
    total = float(np.bincount(np.zeros(len(nats), dtype=int), nats)[0])
    found |= {"score": total / len(nats), "nats": total, "bases": len(nats)}
    if conserved is not None:
        inside = conserved[here][counted[here]]
        found |= {"conserved_by": example.data["row"]["conserved_by"]}
        found |= {"conserved_nats": float(nats[inside].sum()), "conserved_bases": int(inside.sum())}
    return found


def _summarise(results: Sequence[Result]) -> Summary:
    kmers, shared = (sum(result[key] for result in results) for key in _KMERS)
    bases = sum(result["bases"] for result in results)
    clusters = len({result[_CLUSTER] for result in results})
    gap, by = _gap(results)
    return replace(
        summary_of(results, "nats_per_base", cluster=_CLUSTER, groups=()),
        others=gap,
        notes=[
            f"{bases:,} bases; intervals draw {clusters:,} genes or records. Most DNA is nearly "
            "random, so a hundredth of a nat is much; nats of two genomes are not compared",
            f"{overlap_clause(shared, kmers)}; at copies of training sequence the numbers measure "
            "memory as well as learning",
            *by,
        ],
    )


def _gap(results: Sequence[Result]) -> tuple[dict[str, Estimate], list[str]]:
    """Return the mean log-likelihood of conserved bases minus that of others, and a note."""
    marked = [result for result in results if "conserved_by" in result]
    if not marked:
        return {}, []
    inside, bases = (column_of(marked, name) for name in ("conserved_bases", "bases"))
    if not 0 < inside.sum() < bases.sum():
        counts = f"{int(inside.sum()):,} of {int(bases.sum()):,} bases are conserved"
        return {}, [f"no ll_gap: {counts} ({marked[0]['conserved_by']})"]
    nats_inside, nats = (column_of(marked, name) for name in ("conserved_nats", "nats"))
    of_others, of_inside = (
        ratio_of(nats - nats_inside, bases - inside),
        ratio_of(nats_inside, inside),
    )

    def gap(weights: Floats) -> float:
        both = (weights @ inside, weights @ (bases - inside))
        return of_others(weights) - of_inside(weights) if all(both) else float("nan")

    units = [result[_CLUSTER] for result in marked]
    found = bootstrap(gap, len(marked), clusters=units)
    note = (
        f"ll_gap: mean log-likelihood of {int(inside.sum()):,} conserved bases "
        f"({marked[0]['conserved_by']}) minus that of {int((bases - inside).sum()):,} others, in "
        "nats; it rises as a model learns what selection keeps"
    )
    return {"ll_gap": found}, [note]


TASK = Task(
    name="heldout_likelihood",
    axis="your genome",
    measures="nats per base of held-out records; equal odds of all four bases have ln 4 = 1.386",
    metric="nats_per_base",
    chance=float(np.log(4)),
    citation="conditional likelihood of every base given the bases before it",
    columns={"sequence": str},
    build=build,
    examples=_examples,
    run=_run,
    summarise=_summarise,
    cluster=_CLUSTER,
)
