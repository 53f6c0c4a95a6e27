"""BRCA2: are changes that break the protein in a cell less likely than harmless ones?"""

import pyarrow as pa

from eval.baselines import VARIANT_BASELINES
from eval.contract import Example, Options, Reading, Task
from eval.tasks.brca2.build import LABELS, WINDOW_BP, build
from eval.tasks.common.tables import Row, reader
from eval.tasks.common.variants import examples_in_windows, run, summary_by_auroc

COLUMNS: dict[str, type] = {
    "chrom": object,
    "pos": int,
    "ref": str,
    "alt": str,
    "class": str,
    "ref_seq": str,
    "var_seq": str,
}
READING = Reading("centered", WINDOW_BP, "forward")
_HUB_FILE = "brca2_vep.parquet"


def _examples(table: pa.Table, options: Options) -> list[Example]:
    return examples_in_windows(table, options, READING, "region", _label)


def _label(row: Row) -> int | None:
    return LABELS.get(row["class"])


TASK = Task(
    name="brca2",
    version="1",
    axis="variants",
    measures="AUROC of loss of function against function in BRCA2, windows of 8,192 bp in full",
    metric="auroc",
    chance=0.5,
    published={
        "Carbon-3B": 0.8463,
        "Carbon-8B": 0.8572,
        "GENERator-v2-3B": 0.8193,
        "Evo2-7B": 0.8352,
    },
    citation="Carbon technical report, tables 6 and 7",
    baselines=VARIANT_BASELINES,
    columns=COLUMNS,
    hub_id="HuggingFaceBio/brca2-vep",
    hub_file=_HUB_FILE,
    read=reader(COLUMNS, _HUB_FILE),
    build=build,
    examples=_examples,
    run=run,
    summarise=summary_by_auroc,
)
