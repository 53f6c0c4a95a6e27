"""The variants of a list, with their labels and consequences."""

from pathlib import Path

from eval.contract import BuildReport
from eval.tasks.common.matched import build_matched


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
        table: TSV, CSV, Parquet or xlsx with `chrom`, `pos` (1-based), `ref`, `alt`, `label` (1 for
            positives), `subset` (consequence) and `mavedb_urn` (study).
        reference: FASTA of the list's assembly: GRCh38 for the published one.
        num_examples: most rows; all if None.
        seed: of the choice of those rows.

    Raises:
        UserError: the list is broken, or nothing is left.
        GenomeError: the list's REFs disagree with the FASTA.
    """
    return build_matched(
        output, "saturation_editing", table, reference, num_examples, seed, "mavedb_urn"
    )
