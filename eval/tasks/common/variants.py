"""Functions of tasks of variants: questions from rows, deltas in blocks, both labels.

The score of a variant is minus the delta, log-likelihood(REF) - log-likelihood(ALT): higher where
ALT is the greater surprise, so that what damages should be above what does not. Other scores of the
same pass stand next to it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from carbon.batching import in_blocks
from carbon.errors import UserError
from carbon.genome import Reference, Variant
from eval.baselines import VARIANT_BASELINES
from eval.contract import (
    Example,
    Model,
    Options,
    Reading,
    Result,
    Run,
    Summarise,
    Summary,
    Task,
)
from eval.metrics import by_score, estimate, summary_of
from eval.tables import Row
from eval.tasks.common.references import AnyName, Windows

VARIANT_COLUMNS: dict[str, type] = {"chrom": object, "pos": int, "ref": str, "alt": str}
"""Columns of a variant in a dataset; `pos` counts from 1."""

_BLOCK = 256
_MOST_DISAGREEING = 0.01  # of the REFs, where that is more than one; more is another assembly
_BASES = frozenset("ACGT")

Score = Callable[[Mapping[str, float]], float | None]

SCORES: dict[str, Score] = {
    "minus_delta": lambda values: -values["delta"],
    "abs_delta": lambda values: abs(values["delta"]),
    "jsd": lambda values: values.get("jsd"),
    "embedding_distance": lambda values: values.get("embedding_distance"),
}
"""Zero-shot scores from the values of `Model.variant_values`; higher is more likely positive."""


def scores_of(values: Mapping[str, float]) -> dict[str, float]:
    """Return the zero-shot scores that a variant has, by name."""
    scores = {name: of(values) for name, of in SCORES.items()}
    return {name: score for name, score in scores.items() if score is not None}


def with_scores(
    summary: Summary, results: Sequence[Result], metric: str, cluster: str | None = None
) -> Summary:
    """Return a summary by minus the delta with the headline's metric by the other scores too."""
    others = {
        f"{metric} by {name}": estimate(some, metric, cluster)
        for name in SCORES
        if name != "minus_delta" and (some := by_score(results, name))
    }
    return replace(
        summary,
        others=summary.others | others,
        notes=[
            *summary.notes,
            "the headline is by minus the delta, which was chosen beforehand",
            *incomplete(results, SCORES),
        ],
    )


def summary_by_auroc(results: Sequence[Result]) -> Summary:
    """Return AUROC by every score, and other metrics by minus the delta."""
    summary = summary_of(results, "auroc", others=("auprc_trapezoid", "average_precision"))
    return with_scores(summary, results, "auroc")


def incomplete(results: Sequence[Result], names: Iterable[str]) -> list[str]:
    """Return a sentence for each score that only some results have."""
    counts = {name: len(by_score(results, name)) for name in names}
    return [
        f"{name} is measured on the {count:,} of {len(results):,} variants that have it"
        for name, count in counts.items()
        if 0 < count < len(results)
    ]


def run_variants(model: Model, examples: Sequence[Example]) -> Iterator[Result]:
    """Yield one result an example, in order; a block of variants is asked for at a time."""
    for block in in_blocks(examples, _BLOCK):
        yield from results_of(block, scores_by_id(model, block), "minus_delta")


def scores_by_id(model: Model, block: Sequence[Example]) -> dict[str, dict[str, float]]:
    """Return the scores of the examples that a model scores, by id; equal variants are one."""
    asked = asked_of(block)
    if not asked:
        return {}
    reference, variants, reading = question_of(asked)
    different = list(dict.fromkeys(variants))
    values = model.variant_values(reference, different, reading)
    by_variant = dict(zip(different, values, strict=True))
    found = ((example.id, by_variant[v]) for example, v in zip(asked, variants, strict=True))
    return {name: scores_of(values) for name, values in found if values is not None}


def asked_of(examples: Sequence[Example]) -> list[Example]:
    """Return the examples that are not skipped."""
    return [example for example in examples if example.data["skip"] is None]


def question_of(asked: Sequence[Example]) -> tuple[Reference, list[Variant], Reading]:
    """Return reference, variants and reading of examples of one dataset."""
    first = asked[0].data
    return first["reference"], [example.data["variant"] for example in asked], first["reading"]


def results_of(
    examples: Sequence[Example], scores: Mapping[str, Mapping[str, float]], headline: str
) -> Iterator[Result]:
    """Yield one result an example, in order.

    Args:
        examples: of variants.
        scores: by id of an example; the others are skipped.
        headline: name of the score that becomes `score`.
    """
    for example in examples:
        columns, scored = example.data["columns"], scores.get(example.id)
        if scored is None:
            reason = example.data["skip"] or "the model gives no score"
            yield example.result(**columns, skipped=reason)
        else:
            label, score = example.data["label"], scored[headline]
            yield example.result(**columns, label=label, **scored, score=score)


def examples_on_reference(
    table: pa.Table,
    options: Options,
    reading: Reading,
    group: str,
    *,
    columns: Sequence[str] = (),
    only_snvs: bool = True,
    numbers: Sequence[int] | None = None,
) -> list[Example]:
    """Return questions about rows whose windows are cut from a reference.

    Args:
        table: with `chrom`, `pos` (1-based), `ref`, `alt` and `label`.
        options: with a reference.
        reading: of the task.
        group: the column of the groups, if the table has it.
        columns: further columns that results take over.
        only_snvs: whether other variants are skipped.
        numbers: rows to ask about; the options choose them if None.

    Raises:
        UserError: the reference is missing, a row is broken, or all labels are one.
        GenomeError: the reference is another assembly.
    """
    if options.reference is None:
        raise UserError("the rows name places of a genome: give its FASTA with --reference")
    reference = AnyName(options.reference)
    rows = options.rows_of(table) if numbers is None else [Row(table, n) for n in numbers]
    variants = [_variant_of(row) for row in rows]
    check_assembly(reference, variants)
    found = zip(rows, variants, map(row_label, rows), strict=True)
    return _examples(found, options, reference, reading, group, columns, only_snvs)


def examples_in_windows(
    table: pa.Table,
    options: Options,
    reading: Reading,
    group: str,
    label: Callable[[Row], int | None],
) -> list[Example]:
    """Return questions about rows that hold their windows, as `ref_seq` and `var_seq`.

    Args:
        table: with `chrom`, `pos`, `ref`, `alt`, `ref_seq`, `var_seq` and what `label` reads.
        options: of the run; its reference is not needed.
        reading: of the task.
        group: the column of the groups, if the table has it.
        label: of a row, 0 or 1; rows with None are skipped, and counted.

    Raises:
        UserError: a row is broken, all labels are one, or another protocol than the task's is asked
            for, whose windows the rows do not hold.
    """
    if options.protocol and options.protocol != reading.protocol:
        raise UserError(
            f"--protocol {options.protocol}: the rows hold windows for {reading.protocol}; leave "
            "this task out of a run by another protocol"
        )
    windows = Windows(table, "ref_seq")
    rows = options.rows_of(table)
    variants = [_variant_in_window(row, windows.names[row.number]) for row in rows]
    found = zip(rows, variants, map(label, rows), strict=True)
    return _examples(found, options, windows, reading, group)


def _examples(
    found: Iterable[tuple[Row, Variant, int | None]],
    options: Options,
    reference: Reference,
    reading: Reading,
    group: str,
    columns: Sequence[str] = (),
    only_snvs: bool = True,
) -> list[Example]:
    """Return questions about rows with their variants and labels, by place."""
    if options.protocol:
        reading = reading._replace(protocol=options.protocol, window_bp=0)
    window_bp = int(options.sizes.get("window_bp", reading.window_bp))
    examples = []
    for row, variant, label in found:
        name = f"{row['chrom']}:{row['pos']}:{row['ref']}>{row['alt']}"
        data: dict[str, Any] = {
            "variant": variant,
            "reference": reference,
            "columns": {"chrom": str(row["chrom"])} | {name: row[name] for name in columns},
            "label": label,
            "reading": reading._replace(window_bp=window_bp),
            "skip": "has no label" if label is None else _why_not(reference, variant, only_snvs),
            "row": row,
        }
        shown_group = str(row.get(group) or "")
        examples.append(Example(f"{row.number + 1}:{name}", shown_group, data, window_bp))
    labels = [example.data["label"] for example in examples if example.data["label"] is not None]
    if len(different := set(labels)) < 2:
        only = f"only label {different.pop()}" if different else "no label"
        raise UserError(
            f"{len(labels)} variants with {only}: both labels are needed; take more of them"
        )
    # Neighbouring variants share the bases before them.
    return sorted(examples, key=lambda example: _place(example.data["variant"]))


def _place(variant: Variant) -> tuple[str, int]:
    return variant.contig, variant.position


def row_label(row: Row) -> int:
    """Return the label of a row, 0 or 1.

    Raises:
        UserError: it is something else.
    """
    label = int(row["label"])
    if label not in (0, 1):
        raise UserError(f"{row.where}: label {label}; it must be 0 or 1")
    return label


def _variant_of(row: Row) -> Variant:
    position = int(row["pos"]) - 1
    if position < 0:
        raise UserError(f"{row.where}: pos is {row['pos']}; places are counted from 1")
    return Variant(str(row["chrom"]), position, row["ref"].upper(), row["alt"].upper())


def _variant_in_window(row: Row, contig: str) -> Variant:
    """Return the variant at its place in the row's window, where the two windows differ.

    Raises:
        UserError: the windows do not differ in one base, or in others than `ref` and `alt`.
    """
    windows = [np.frombuffer(row[name].upper().encode(), np.uint8) for name in _WINDOWS]
    if len(windows[0]) != len(windows[1]):
        raise UserError(f"{row.where}: ref_seq and var_seq are not of one length")
    places = np.flatnonzero(windows[0] != windows[1])
    if len(places) != 1:
        raise UserError(
            f"{row.where}: ref_seq and var_seq differ in {len(places)} places, it must be one"
        )
    ref, alt = (chr(window[places[0]]) for window in windows)
    if (ref, alt) != (row["ref"].upper(), row["alt"].upper()):
        raise UserError(
            f"{row.where}: is {row['ref']}>{row['alt']}, but ref_seq and var_seq have {ref}>{alt}"
        )
    return Variant(contig, int(places[0]), ref, alt)


_WINDOWS = ("ref_seq", "var_seq")


def check_assembly(reference: Reference, variants: Sequence[Variant]) -> None:
    """Raise GenomeError where too many REFs are not in the reference for it to be theirs."""
    check_share(reference, [v for v in variants if _disagrees(reference, v)], len(variants))


def check_share(reference: Reference, disagreeing: Sequence[Variant], looked_at: int) -> None:
    """Raise GenomeError if too large a share of variants disagrees."""
    if len(disagreeing) > max(1, _MOST_DISAGREEING * looked_at):
        # The first one reports the base of the reference.
        first = disagreeing[0]
        where = f"{len(disagreeing)} of {looked_at} variants disagree, as {first.to_text()}"
        reference.check_ref(first.contig, first.position, first.ref, where)


def _disagrees(reference: Reference, variant: Variant) -> bool:
    found = reference.disagreement(variant.contig, variant.position, variant.ref)
    return found is not None and found.is_contradiction


def _why_not(reference: Reference, variant: Variant, only_snvs: bool) -> str | None:
    if only_snvs and not is_snv(variant.ref, variant.alt):
        return "is not a single-base change"
    return "REF is not in the reference" if _disagrees(reference, variant) else None


def is_snv(ref: str, alt: str) -> bool:
    """Return whether one known base becomes another."""
    return ref != alt and ref.upper() in _BASES and alt.upper() in _BASES


@dataclass(frozen=True, kw_only=True)
class VariantTask(Task):
    """A task of labelled variants: AUROC of the scores of a model, unless it says otherwise."""

    axis: str = "variants"
    metric: str = "auroc"
    chance: float | None = 0.5
    run: Run = run_variants
    summarise: Summarise = summary_by_auroc
    baselines: Mapping[str, Callable[[], Model]] = field(default_factory=lambda: VARIANT_BASELINES)
