"""Labelled variants: do the damaging variants of your own VCF get lower deltas than the others?"""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from eval.baselines import VARIANT_BASELINES
from eval.contract import Estimate, Example, Options, Reading, Result, Summary, Task
from eval.metrics import estimate, summary_of
from eval.tasks.common.tables import reader
from eval.tasks.common.variants import examples_on_reference, run
from eval.tasks.labelled_variants.build import build

COLUMNS: dict[str, type] = {
    "chrom": object,
    "pos": int,
    "ref": str,
    "alt": str,
    "label": int,
    "effect": str,
}
READING = Reading("centered", 0, "both")


def _examples(table: pa.Table, options: Options) -> list[Example]:
    return examples_on_reference(table, options, READING, "effect", only_snvs=False)


def _summarise(results: Sequence[Result]) -> Summary:
    summary = summary_of(results, "auroc", others=("average_precision",), groups=())
    tables = {"damaging": _against(results, 1), "control": _against(results, 0)}
    return replace(summary, groups={name: each for name, each in tables.items() if len(each) > 1})


def _against(results: Sequence[Result], label: int) -> dict[str, Estimate]:
    """Return AUROC of each effect among variants of a label, against all of the other label."""
    effects = sorted({result["group"] for result in results if result["label"] == label})
    return {
        effect: estimate(
            [r for r in results if r["label"] != label or r["group"] == effect], "auroc"
        )
        for effect in effects
    }


TASK = Task(
    name="labelled_variants",
    version="1",
    axis="your genome",
    measures="AUROC of damaging variants against controls, of a labelled VCF",
    metric="auroc",
    chance=0.5,
    citation="described in the task's README",
    baselines=VARIANT_BASELINES,
    columns=COLUMNS,
    read=reader(COLUMNS, None),
    build=build,
    examples=_examples,
    run=run,
    summarise=_summarise,
)
