"""TraitGym, Mendelian: are causal regulatory variants a greater surprise than matched controls?"""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from eval.baselines import VARIANT_BASELINES
from eval.contract import Example, Options, Reading, Result, Summary, Task
from eval.metrics import by_group, summary_of
from eval.tasks.common.tables import reader
from eval.tasks.common.variants import examples_in_windows, row_label, run, with_scores
from eval.tasks.traitgym_mendelian.build import WINDOW_BP, build

COLUMNS: dict[str, type] = {
    "chrom": object,
    "pos": int,
    "ref": str,
    "alt": str,
    "label": int,
    "ref_seq": str,
    "var_seq": str,
}
READING = Reading("centered", WINDOW_BP, "both")
_HUB_FILE = "mendelian_traits_vep.parquet"
_METRIC = "average_precision_by_chromosome"


def _examples(table: pa.Table, options: Options) -> list[Example]:
    return examples_in_windows(table, options, READING, "consequence", row_label)


def _summarise(results: Sequence[Result]) -> Summary:
    """Measure as the leaderboard does, and by consequence over all chromosomes."""
    summary = summary_of(
        results, _METRIC, cluster="chrom", others=("auroc", "average_precision"), groups=()
    )
    share = sum(result["label"] for result in results) / len(results)
    labels_of: dict[str, set[int]] = {}
    for result in results:
        labels_of.setdefault(result["chrom"], set()).add(result["label"])
    num_counted = sum(len(labels) == 2 for labels in labels_of.values())
    summary = replace(
        summary,
        groups={"consequence": by_group(results, "group", "average_precision", "chrom")},
        notes=[
            f"{share:.3f} of the variants are causal: about what chance would get",
            f"{num_counted} of {len(labels_of)} chromosomes have both labels and count; the "
            "interval draws chromosomes whole, and says little where they are few",
        ],
    )
    return with_scores(summary, results, _METRIC, "chrom")


TASK = Task(
    name="traitgym_mendelian",
    version="1",
    axis="variants",
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
    baselines=VARIANT_BASELINES,
    columns=COLUMNS,
    hub_id="HuggingFaceBio/traitgym",
    hub_file=_HUB_FILE,
    read=reader(COLUMNS, _HUB_FILE),
    build=build,
    examples=_examples,
    run=run,
    summarise=_summarise,
    cluster="chrom",
)
