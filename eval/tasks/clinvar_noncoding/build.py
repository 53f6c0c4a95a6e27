"""The non-coding part of ClinVar, from its VCF and the genome; both classes of one size."""

from pathlib import Path

from eval.contract import BuildReport
from eval.tasks.common.clinvar import build_clinvar


def build(
    output: Path,
    *,
    vcf: Path,
    reference: Path,
    num_examples: int | None = None,
    seed: int = 0,
) -> BuildReport:
    """Write the labelled non-coding single-base changes of ClinVar, as `build_clinvar` says."""
    return build_clinvar(
        output,
        vcf=vcf,
        reference=reference,
        region="noncoding",
        num_examples=num_examples,
        seed=seed,
    )
