"""Consequences: are damaging changes of genes a greater surprise than matched harmless ones?

Each damaging SNV has controls of the same trinucleotide change, so that mutation types do not
separate the two.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from eval.contract import Reading, Result, Summary
from eval.metrics import estimate, grouped, has_both_labels, summary_of
from eval.tasks.common.variants import VARIANT_COLUMNS, VariantTask, examples_on_reference
from eval.tasks.consequences.build import build

_CLUSTER = "gene"


def _summarise(results: Sequence[Result]) -> Summary:
    summary = summary_of(
        results, "macro_auroc", cluster=_CLUSTER, others=("macro_average_precision",), groups=()
    )
    every = dict(sorted(grouped(results, "set").items()))
    # A sample may lack the damaging variants or the controls of a set.
    sets = {name: some for name, some in every.items() if has_both_labels(some)}
    notes = ["controls have the trinucleotide changes of the damaging variants"]
    if lacking := [name for name in every if name not in sets]:
        notes.append(f"without damaging variants or without controls: {', '.join(lacking)}")
    return replace(
        summary,
        curves={},  # of the sets together they would mix controls
        groups={
            "damage": {name: estimate(some, "auroc", _CLUSTER) for name, some in sets.items()},
            "damage against one control": {
                f"{name} against {control}": estimate(some, "auroc", _CLUSTER)
                for name, each in sets.items()
                for control, some in _by_control(each).items()
            },
            "average precision": {
                name: estimate(some, "average_precision", _CLUSTER) for name, some in sets.items()
            },
        },
        notes=notes,
    )


def _by_control(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Return the damaging variants of a set with each kind of controls."""
    controls = sorted({r["consequence"] for r in results if not r["label"]})
    return {
        control: [r for r in results if r["label"] or r["consequence"] == control]
        for control in controls
    }


TASK = VariantTask(
    name="consequences",
    axis="your genome",
    measures="AUROC of damaging against harmless SNVs of held-out genes, mean over consequences",
    metric="macro_auroc",
    columns=VARIANT_COLUMNS | {"label": int, "consequence": str, "set": str, "gene": str},
    build=build,
    examples=partial(
        examples_on_reference,
        reading=Reading("centered", 0, "both"),
        group="consequence",
        columns=("set", _CLUSTER, "consequence"),
    ),
    summarise=_summarise,
    cluster=_CLUSTER,
)
