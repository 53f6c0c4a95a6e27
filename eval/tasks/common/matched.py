"""Labelled variants by consequence, with matched controls: scores and probes side by side.

A class counts with at least 30 positives. The headline is the mean of the classes' average
precision (macro average) by the score that the task chose beforehand; intervals draw groups of
matched variants whole. All variants of a class are answered together, because a linear probe on
both alleles' embeddings is fitted to each class by nested leave-one-chromosome-out.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from carbon.batching import in_blocks
from carbon.errors import UserError
from carbon.finetune.config import VariantInput
from carbon.progress import say
from eval.contract import BuildReport, Example, Model, Options, Reading, Result, Summary, Task
from eval.metrics import LEAST_POSITIVES, by_group, by_score, curves_of, estimate, grouped
from eval.tables import check_columns, read_table
from eval.tasks.common.building import write_drawn
from eval.tasks.common.listings import Listed, read_listing
from eval.tasks.common.references import AnyName
from eval.tasks.common.variants import (
    SCORES,
    VARIANT_COLUMNS,
    VariantTask,
    asked_of,
    check_assembly,
    examples_on_reference,
    incomplete,
    question_of,
    results_of,
    scores_by_id,
)
from eval.tasks.common.windows import listed_label, listed_variant

COLUMNS = VARIANT_COLUMNS | {"label": int, "subset": str}
READING = Reading("centered", 0, "both")  # 8,192 bp, or what fits
DEVELOPMENT = frozenset([*map(str, range(1, 23, 2)), "X"])
FINAL = frozenset([*map(str, range(2, 23, 2)), "Y"])
"""Chromosomes of development, and of the final test (`--final`)."""

PROBE = "probe"
_METRIC = "macro_average_precision_of_large_sets"
_BLOCK = 256


def task(
    name: str,
    measures: str,
    *,
    score: str,
    features: VariantInput = "ref_and_difference",
    hub_id: str,
    study: str = "",
    published: Mapping[str, float] | None = None,
    citation: str,
) -> Task:
    """Return a task of this kind.

    Args:
        name: of its folder.
        measures: one sentence.
        score: key of `SCORES` that the headline uses, chosen beforehand.
        features: of both alleles that the probe reads, key of `COMBINED`.
        hub_id: the published dataset.
        study: column whose values are measured apart, since their labels are not comparable.
        published: model to published value.
        citation: of the published values, or of the protocol.
    """
    return VariantTask(
        name=name,
        measures=measures,
        metric=_METRIC,
        chance=None,
        published=published or {},
        citation=citation,
        columns=COLUMNS,
        hub_id=hub_id,
        reads=partial(_read, study=study),
        build=_builder(name, study),
        examples=partial(_examples, study=study),
        run=partial(run, score=score, features=features),
        summarise=partial(summarise, score=score),
        cluster="unit",
        divides_chromosomes=True,
    )


def _read(source: Path | str, study: str) -> pa.Table:
    table = read_table(source, COLUMNS)
    if study:
        check_columns(table, {study: str}, str(source))
    return table


def _examples(table: pa.Table, options: Options, study: str) -> list[Example]:
    """Return a question for each variant on the chromosomes of the run, class by class.

    Raises:
        UserError: no class has enough positives and controls.
    """
    table = _on_chromosomes(table, FINAL if options.final else DEVELOPMENT)
    numbers = _drawn_rows(table, options)
    extra = [name for name in ("match_group", study) if name and name in table.column_names]
    examples = [
        _in_class(example, study)
        for example in examples_on_reference(
            table, options, READING, "subset", columns=extra, numbers=numbers
        )
    ]
    positives = Counter(
        example.data["columns"]["set"]
        for example in examples
        if example.data["label"] and example.data["skip"] is None
    )
    if not any(count >= LEAST_POSITIVES for count in positives.values()):
        largest = max(positives.values(), default=0)
        raise UserError(
            f"no class has {LEAST_POSITIVES} positives, the largest has {largest}; take more rows"
        )
    return sorted(examples, key=lambda example: example.group)


def _on_chromosomes(table: pa.Table, chromosomes: frozenset[str]) -> pa.Table:
    names = [str(name).removeprefix("chr") for name in table["chrom"].to_pylist()]
    kept = table.filter(pa.array([name in chromosomes for name in names]))
    others = Counter(name for name in names if name not in DEVELOPMENT | FINAL)
    if others:
        shown = ", ".join(f"{name} ({count:,})" for name, count in others.most_common(3))
        say(f"{others.total():,} variants are on no chromosome of either set, as on {shown}")
    if not kept.num_rows:
        shown = ", ".join(sorted(chromosomes))
        raise UserError(f"has no variant on the chromosomes {shown}; see --final")
    return kept


def _drawn_rows(table: pa.Table, options: Options) -> list[int]:
    """Return the rows, ascending, of as many random units as the options allow."""
    if options.max_samples is None or options.max_samples >= table.num_rows:
        return list(range(table.num_rows))
    members: dict[str, list[int]] = defaultdict(list)
    matched = table["match_group"].to_pylist() if "match_group" in table.column_names else ()
    for row, subset in enumerate(table["subset"].to_pylist()):
        members[_unit(subset, matched[row] if matched else None, f"row {row}")].append(row)
    units = list(members.values())
    order = np.random.default_rng(options.seed).permutation(len(units))
    sizes = np.cumsum([len(units[n]) for n in order])
    num_units = int(np.searchsorted(sizes, options.max_samples, side="right"))
    return sorted(row for n in order[:num_units] for row in units[n])


def _unit(subset: str, matched: Any, alone: str) -> str:
    """Return the unit that is drawn whole: a matched group, or a variant alone."""
    return alone if matched in (None, "") else f"{subset} {matched}"


def _in_class(example: Example, study: str) -> Example:
    """Return an example that its class is answered with; `unit` is drawn whole by the bootstrap."""
    columns = example.data["columns"]
    name = f"{example.group}, {columns[study]}" if study else example.group
    unit = _unit(example.group, columns.get("match_group"), example.id)
    data = {**example.data, "columns": {**columns, "unit": unit, "set": name}}
    return replace(example, data=data, together=example.group)


def run(
    model: Model, examples: Sequence[Example], score: str, features: VariantInput
) -> Iterator[Result]:
    """Yield one result a variant, in order, with every score and the probe of its class."""
    for _, of_class in groupby(examples, lambda example: example.group):
        yield from _of_class(model, list(of_class), score, features)


def _of_class(
    model: Model, examples: Sequence[Example], score: str, features: VariantInput
) -> Iterator[Result]:
    scores: dict[str, dict[str, float]] = {}
    vectors: dict[str, Any] = {}
    for block in in_blocks(asked_of(examples), _BLOCK):
        scores |= scores_by_id(model, block)
        vectors |= _vectors_by_id(model, block)
    scored = [example for example in examples if example.id in scores]
    for name, log_odds in _probe(scored, vectors, features).items():
        scores[name][PROBE] = log_odds
    yield from results_of(examples, scores, score)


def _vectors_by_id(model: Model, block: Sequence[Example]) -> dict[str, Any]:
    """Return the vectors of both alleles of each variant that has some, by id."""
    vectors = model.allele_vectors(*question_of(block)) or [None] * len(block)
    return {
        example.id: of_alleles
        for example, of_alleles in zip(block, vectors, strict=True)
        if of_alleles is not None
    }


def _probe(
    examples: Sequence[Example], vectors: Mapping[str, Any], features: VariantInput
) -> dict[str, float]:
    """Return the log odds of the probe of a class by id; empty if the class is too small for one.

    Raises:
        UserError: a variant has a score and no embedding.
    """
    if vectors and any(example.id not in vectors for example in examples):
        raise UserError(f"{examples[0].group}: a variant has a score and no embedding")
    labels = np.array([example.data["label"] for example in examples], dtype=np.int64)
    chromosomes = [example.data["columns"]["chrom"] for example in examples]
    from carbon.finetune.nested import nested_probe, why_not_nested  # takes torch

    if not vectors or why_not_nested(labels, chromosomes):
        return {}
    if min(labels.sum(), (1 - labels).sum()) < LEAST_POSITIVES:
        return {}
    combined = _combined([vectors[example.id] for example in examples], features)
    log_odds = nested_probe(combined, labels, chromosomes).scores
    return dict(zip((example.id for example in examples), map(float, log_odds), strict=True))


def _combined(vectors: Sequence[Any], features: VariantInput) -> NDArray[np.float32]:
    """Return the features of both alleles, (variants, 2 x width)."""
    import torch

    from carbon.finetune.network import COMBINED

    ref, alt = (torch.from_numpy(np.stack(of_allele)) for of_allele in zip(*vectors, strict=True))
    found: NDArray[np.float32] = COMBINED[features](ref, alt).numpy()
    return found


def summarise(results: Sequence[Result], score: str) -> Summary:
    """Measure every score on the classes with enough positives.

    Raises:
        UserError: no class has enough positives and controls.
    """
    counted, left_out = _counted(results)
    if not counted:
        raise UserError(f"no class has {LEAST_POSITIVES} positives and a control; take more rows")
    names = [name for name in (*SCORES, PROBE) if any(name in result for result in counted)]
    if not names:  # values of a column of the dataset
        names, score = ["score"], "score"
    scored = {name: by_score(counted, name) for name in names}
    estimates = {name: estimate(some, _METRIC, "unit") for name, some in scored.items()}
    probed = by_score([result for result in counted if PROBE in result], score)
    if 0 < len(probed) < len(counted):
        estimates[f"{score}, classes with a probe"] = estimate(probed, _METRIC, "unit")
    tables = {
        f"average precision by {name}": by_group(some, "set", "average_precision", "unit")
        for name, some in scored.items()
    }
    return Summary(
        value=estimates[score],
        others={name: value for name, value in estimates.items() if name != score},
        groups=tables,
        curves=curves_of(counted),
        notes=[
            *_choice_of(score, names),
            f"{len({r['set'] for r in counted})} classes count, with {LEAST_POSITIVES} positives "
            "at least; intervals draw groups of matched variants whole",
            *(
                f"{name} is left out: {positives} positives of {number}"
                for name, (positives, number) in sorted(left_out.items())
            ),
            *incomplete(counted, SCORES),
            *_without_probe(counted, names),
        ],
    )


def _counted(results: Sequence[Result]) -> tuple[list[Result], dict[str, tuple[int, int]]]:
    """Return the results of classes that count, and positives and size of the others."""
    classes = grouped(results, "set")
    positives = {name: sum(r["label"] for r in some) for name, some in classes.items()}
    counts = {
        name: positives[name] >= LEAST_POSITIVES and positives[name] < len(some)
        for name, some in classes.items()
    }
    counted = [result for result in results if counts[result["set"]]]
    left_out = {
        name: (positives[name], len(some)) for name, some in classes.items() if not counts[name]
    }
    return counted, left_out


def _choice_of(score: str, names: Sequence[str]) -> list[str]:
    chosen = f"the headline is by {score}, which was chosen beforehand; others are shown beside it"
    return [chosen] if len(names) > 1 else []


def _without_probe(results: Sequence[Result], names: Sequence[str]) -> list[str]:
    without = sorted({r["set"] for r in results if PROBE not in r}) if PROBE in names else []
    return [f"no probe, too few chromosomes or controls: {', '.join(without)}"] if without else []


def _builder(task_name: str, study: str) -> Callable[..., BuildReport]:
    """Return the builder of a task, whose lists also need the column `study` if it has one."""

    def build(
        output: Path,
        *,
        table: Path,
        reference: Path,
        num_examples: int | None = None,
        seed: int = 0,
    ) -> BuildReport:
        """Write listed variants and their labels; their REFs must be in the reference.

        Args:
            output: Parquet to write.
            table: TSV, CSV, Parquet or xlsx with `chrom`, `pos` (1-based), `ref`, `alt`, `label` (1
                for positives) and `subset` (consequence), for saturation_editing `mavedb_urn`
                (study), and, if it is there, `match_group`.
            reference: FASTA of the list's assembly: GRCh38 for the published one.
            num_examples: most rows; all if None.
            seed: of the choice of those rows.

        Raises:
            UserError: the list is broken, or nothing is left.
            GenomeError: the list's REFs disagree with the FASTA.
        """
        listed = read_listing(table, (*COLUMNS, *([study] if study else [])))
        with AnyName(reference) as fasta:
            check_assembly(fasta, [listed_variant(row) for row in listed])
        rows = [_row(row, f"{table} variant {n}") for n, row in enumerate(listed, start=1)]
        settings, inputs = {"task": task_name, "seed": seed}, (table, reference)
        return write_drawn(output, rows, num_examples, seed, Counter(), inputs, settings)

    return build


def _row(row: Listed, where: str) -> dict[str, Any]:
    if row["subset"] in (None, ""):
        raise UserError(f"{where}: has no subset; name its consequence, or take the row out")
    places = {name: row[name] for name in VARIANT_COLUMNS}
    more: dict[str, Any] = {n: row[n] for n in ("match_group", "mavedb_urn") if n in row}
    return {**places, "label": listed_label(row, where), "subset": str(row["subset"]), **more}
