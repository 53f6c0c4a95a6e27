"""Saturation mutagenesis of BRCA2 (Huang et al. 2025), from its table and the genome."""

from pathlib import Path
from typing import Any

from eval.contract import BuildReport
from eval.tasks.common.listings import Listed
from eval.tasks.common.windows import build_windows

WINDOW_BP = 8192
LOSS, FUNCTION = "LOF", "FUNC/INT"
LABELS = {LOSS: 1, FUNCTION: 0}
# The classes of the table, and of tables of earlier genes; others have no label.
_CLASSES = {
    "P strong": LOSS,
    "P moderate": LOSS,
    "P supporting": LOSS,
    "B strong": FUNCTION,
    "B moderate": FUNCTION,
    "B supporting": FUNCTION,
    "LOF": LOSS,
    "FUNC": FUNCTION,
    "INT": FUNCTION,
    "FUNC/INT": FUNCTION,
}


def build(
    output: Path,
    *,
    table: Path,
    reference: Path,
    num_examples: int | None = None,
    seed: int = 0,
) -> BuildReport:
    """Write the changes with a verdict, and their windows of 8,192 bp.

    Args:
        output: Parquet to write.
        table: the xlsx of the paper (Table S3), or a TSV, CSV or Parquet with `chrom`, `pos`,
            `ref`, `alt`, `class` and, if it is there, `score`.
        reference: FASTA of the table's assembly: GRCh37 (hg19) for the paper's.
        num_examples: most rows; all if None.
        seed: of the choice of those rows.

    Raises:
        UserError: the table is broken, or nothing is left.
        GenomeError: the table's REFs disagree with the FASTA.
    """
    return build_windows(
        output,
        table=table,
        reference=reference,
        needed=("class",),
        named=_named,
        window_bp=WINDOW_BP,
        num_examples=num_examples,
        seed=seed,
        settings={"task": "brca2"},
    )


def _named(row: Listed, where: str) -> dict[str, Any] | None:
    found = _CLASSES.get(str(row["class"] or "").strip())
    if found is None:
        return None
    score = row.get("score")
    return {"score": float(score) if score not in (None, "") else None, "class": found}
