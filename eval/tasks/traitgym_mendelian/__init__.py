"""TraitGym, Mendelian: are causal regulatory variants a greater surprise than matched controls?"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from eval.contract import Reading, Result, Summary
from eval.metrics import by_group, grouped, has_both_labels, summary_of
from eval.tasks.common.listings import Listed
from eval.tasks.common.variants import (
    VARIANT_COLUMNS,
    VariantTask,
    examples_in_windows,
    row_label,
    with_scores,
)
from eval.tasks.common.windows import (
    WINDOW_BP,
    WINDOW_COLUMNS,
    listed_label,
    window_builder,
)

_METRIC = "average_precision_by_chromosome"


def _summarise(results: Sequence[Result]) -> Summary:
    """Measure as the leaderboard does, and by consequence over all chromosomes."""
    summary = summary_of(
        results, _METRIC, cluster="chrom", others=("auroc", "average_precision"), groups=()
    )
    share = sum(result["label"] for result in results) / len(results)
    of_chromosome = grouped(results, "chrom")
    num_counted = sum(map(has_both_labels, of_chromosome.values()))
    summary = replace(
        summary,
        groups={"consequence": by_group(results, "group", "average_precision", "chrom")},
        notes=[
            f"{share:.3f} of the variants are causal: about what chance would get",
            f"{num_counted} of {len(of_chromosome)} chromosomes have both labels and count; the "
            "interval draws chromosomes whole, and says little where they are few",
        ],
    )
    return with_scores(summary, results, _METRIC, "chrom")


def _named(row: Listed, where: str) -> dict[str, Any]:
    label = listed_label(row, where)
    return {
        "label": label,
        "class": "LOF" if label else "FUNC/INT",
        "consequence": row.get("consequence"),
    }


TASK = VariantTask(
    name="traitgym_mendelian",
    measures="average precision of causal against matched variants, mean over chromosomes; "
    "chance is about the share of causal ones, 0.1 of the published",
    metric=_METRIC,
    chance=None,
    published={
        "Carbon-3B": 0.3365,
        "Carbon-8B": 0.3643,
        "GENERator-v2-3B": 0.2791,
        "Evo2-7B": 0.3778,
    },
    citation="Carbon technical report, tables 6 and 7",
    columns=VARIANT_COLUMNS | {"label": int} | WINDOW_COLUMNS,
    hub_id="HuggingFaceBio/traitgym",
    hub_file="mendelian_traits_vep.parquet",
    build=window_builder("traitgym_mendelian", "label", _named),
    examples=partial(
        examples_in_windows,
        reading=Reading("centered", WINDOW_BP, "both"),
        group="consequence",
        label=row_label,
    ),
    summarise=_summarise,
    cluster="chrom",
)
