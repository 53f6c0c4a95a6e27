"""Causal variants and their controls (TraitGym), from their list and the genome."""

from pathlib import Path
from typing import Any

from eval.contract import BuildReport
from eval.tasks.common.listings import Listed
from eval.tasks.common.windows import build_windows, listed_label

WINDOW_BP = 8192


def build(
    output: Path,
    *,
    table: Path,
    reference: Path,
    num_examples: int | None = None,
    seed: int = 0,
) -> BuildReport:
    """Write the listed variants and their windows of 8,192 bp.

    Args:
        output: Parquet to write.
        table: TSV, CSV, Parquet or xlsx with `chrom`, `pos`, `ref`, `alt`, `label` (1 for causal)
            and, if it is there, `consequence`.
        reference: FASTA of the list's assembly: GRCh38 for the published one.
        num_examples: most rows; all if None.
        seed: of the choice of those rows.

    Raises:
        UserError: the list is broken, or nothing is left.
        GenomeError: the list's REFs disagree with the FASTA.
    """
    return build_windows(
        output,
        table=table,
        reference=reference,
        needed=("label",),
        named=_named,
        window_bp=WINDOW_BP,
        num_examples=num_examples,
        seed=seed,
        settings={"task": "traitgym_mendelian"},
    )


def _named(row: Listed, where: str) -> dict[str, Any]:
    label = listed_label(row, where)
    return {
        "label": label,
        "class": "LOF" if label else "FUNC/INT",
        "consequence": row.get("consequence"),
    }
