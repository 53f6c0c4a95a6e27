"""Labelled variants: do the damaging variants of your own VCF get lower deltas than the others?"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from eval.contract import Estimate, Reading, Result, Summary
from eval.metrics import estimate, summary_of
from eval.tasks.common.variants import VARIANT_COLUMNS, VariantTask, examples_on_reference
from eval.tasks.labelled_variants.build import build


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


TASK = VariantTask(
    name="labelled_variants",
    axis="your genome",
    measures="AUROC of damaging variants against controls, of a labelled VCF",
    columns=VARIANT_COLUMNS | {"label": int, "effect": str},
    build=build,
    examples=partial(
        examples_on_reference,
        reading=Reading("centered", 0, "both"),
        group="effect",
        only_snvs=False,
    ),
    summarise=_summarise,
)
