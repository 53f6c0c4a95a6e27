"""BRCA2: are changes that break the protein in a cell less likely than harmless ones?"""

from functools import partial
from typing import Any

from eval.contract import Reading
from eval.tables import Row
from eval.tasks.common.listings import Listed
from eval.tasks.common.variants import VARIANT_COLUMNS, VariantTask, examples_in_windows
from eval.tasks.common.windows import WINDOW_BP, WINDOW_COLUMNS, window_builder

_LOSS, _FUNCTION = "LOF", "FUNC/INT"
_LABELS = {_LOSS: 1, _FUNCTION: 0}
# Classes of the table of Huang et al. 2025 and of earlier genes; variants of others have no label.
_CLASSES = {
    "P strong": _LOSS,
    "P moderate": _LOSS,
    "P supporting": _LOSS,
    "B strong": _FUNCTION,
    "B moderate": _FUNCTION,
    "B supporting": _FUNCTION,
    "LOF": _LOSS,
    "FUNC": _FUNCTION,
    "INT": _FUNCTION,
    "FUNC/INT": _FUNCTION,
}


def _named(row: Listed, where: str) -> dict[str, Any] | None:
    found = _CLASSES.get(str(row["class"] or "").strip())
    if found is None:
        return None
    score = row.get("score")
    return {"score": float(score) if score not in (None, "") else None, "class": found}


def _label(row: Row) -> int | None:
    return _LABELS.get(row["class"])


TASK = VariantTask(
    name="brca2",
    measures="AUROC of loss of function against function in BRCA2, windows of 8,192 bp in full",
    published={
        "Carbon-3B": 0.8463,
        "Carbon-8B": 0.8572,
        "GENERator-v2-3B": 0.8193,
        "Evo2-7B": 0.8352,
    },
    citation="Carbon technical report, tables 6 and 7",
    columns=VARIANT_COLUMNS | {"class": str} | WINDOW_COLUMNS,
    hub_id="HuggingFaceBio/brca2-vep",
    hub_file="brca2_vep.parquet",
    build=window_builder("brca2", "class", _named),
    examples=partial(
        examples_in_windows,
        reading=Reading("centered", WINDOW_BP, "forward"),
        group="region",
        label=_label,
    ),
)
