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
from carbon.genome import Variant
from eval.baselines import VARIANT_BASELINES
from eval.contract import BuildReport, Example, Model, Options, Reading, Result, Summary, Task
from eval.metrics import by_group, curves_of, estimate
from eval.tasks.common.building import drawn, write_dataset
from eval.tasks.common.listings import Listed, read_listing
from eval.tasks.common.references import AnyName
from eval.tasks.common.tables import check_columns, reader
from eval.tasks.common.variants import (
    SCORES,
    by_score,
    check_assembly,
    examples_on_reference,
    incomplete,
    scores_of,
)
from eval.tasks.common.windows import listed_label

COLUMNS: dict[str, type] = {
    "chrom": object,
    "pos": int,
    "ref": str,
    "alt": str,
    "label": int,
    "subset": str,
}
READING = Reading("centered", 0, "both")  # 8,192 bp, or what fits
LEAST_POSITIVES = 30
DEVELOPMENT = frozenset([*map(str, range(1, 23, 2)), "X"])
FINAL = frozenset([*map(str, range(2, 23, 2)), "Y"])
"""Chromosomes of development, and of the final test (`--final`)."""

PROBE = "probe"
_METRIC = "macro_average_precision"
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
    return Task(
        name=name,
        version="1",
        axis="variants",
        measures=measures,
        metric=_METRIC,
        chance=None,
        published=published or {},
        citation=citation,
        baselines=VARIANT_BASELINES,
        columns=COLUMNS,
        hub_id=hub_id,
        read=partial(_read, study=study),
        build=_builder(name, study),
        examples=partial(_examples, study=study),
        run=partial(run, score=score, features=features),
        summarise=partial(summarise, score=score),
        cluster="unit",
        divides_chromosomes=True,
    )


def _read(source: Path | str, study: str) -> pa.Table:
    table = reader(COLUMNS, None)(source)
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
    asked = [example for example in examples if example.data["skip"] is None]
    values, vectors = _values(model, asked), _vectors(model, asked)
    scored = {n: each for n, each in enumerate(values) if each is not None}
    read = list(scored)
    if any(vectors) and any(vectors[n] is None for n in read):
        raise UserError(f"{asked[0].group}: a variant has a score and no embedding")
    of_alleles = [vectors[n] for n in read] if vectors else []
    probe = _probe([asked[n] for n in read], of_alleles, features)
    found = {asked[n].id: (of, probe[i]) for i, (n, of) in enumerate(scored.items())}
    for example in examples:
        result = {"id": example.id, "group": example.group, **example.data["columns"]}
        if example.id not in found:
            yield {**result, "skipped": example.data["skip"] or "the model gives no score"}
            continue
        of_variant, of_probe = found[example.id]
        scores = scores_of(of_variant)
        probed = {} if of_probe is None else {PROBE: of_probe}
        label = example.data["label"]
        yield {**result, "label": label, **scores, **probed, "score": scores[score]}


def _values(model: Model, asked: Sequence[Example]) -> list[Mapping[str, float] | None]:
    return [
        values
        for block in in_blocks(asked, _BLOCK)
        for values in model.variant_values(*_question(block))
    ]


def _vectors(model: Model, asked: Sequence[Example]) -> list[Any]:
    """Return the vectors of both alleles of each variant, empty if the model has none."""
    found: list[Any] = []
    for block in in_blocks(asked, _BLOCK):
        vectors = model.allele_vectors(*_question(block))
        if vectors is None:
            return []
        found += vectors
    return found


def _question(block: Sequence[Example]) -> tuple[Any, list[Any], Reading]:
    first = block[0].data
    return first["reference"], [example.data["variant"] for example in block], first["reading"]


def _probe(
    examples: Sequence[Example], vectors: Sequence[Any], features: VariantInput
) -> list[float | None]:
    """Return the log odds of the probe of a class; None if the class is too small for one."""
    none: list[float | None] = [None] * len(examples)
    labels = np.array([example.data["label"] for example in examples], dtype=np.int64)
    chromosomes = [example.data["columns"]["chrom"] for example in examples]
    from carbon.finetune.nested import nested_probe, why_not_nested  # takes torch

    if not vectors or why_not_nested(labels, chromosomes):
        return none
    if min(labels.sum(), (1 - labels).sum()) < LEAST_POSITIVES:
        return none
    combined = _combined(vectors, features)
    return list(map(float, nested_probe(combined, labels, chromosomes).scores))


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
            f"the headline is by {score}, which was chosen beforehand; others are shown beside it",
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
    classes: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        classes[result["set"]].append(result)
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
            check_assembly(fasta, [_variant(row) for row in listed])
        rows = [_row(row, f"{table} variant {n}") for n, row in enumerate(listed, start=1)]
        kept = drawn(len(rows), num_examples, seed)
        dropped = Counter({"not_drawn": len(rows) - len(kept)})
        settings = {"task": task_name, "seed": seed}
        return write_dataset(output, [rows[n] for n in kept], dropped, (table, reference), settings)

    return build


def _variant(row: Listed) -> Variant:
    return Variant(row["chrom"], row["pos"] - 1, row["ref"], row["alt"])


def _row(row: Listed, where: str) -> dict[str, Any]:
    places = {name: row[name] for name in ("chrom", "pos", "ref", "alt")}
    more: dict[str, Any] = {n: row[n] for n in ("match_group", "mavedb_urn") if n in row}
    return {**places, "label": listed_label(row, where), "subset": str(row["subset"]), **more}
