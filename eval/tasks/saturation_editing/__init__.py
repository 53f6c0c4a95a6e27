"""Saturation genome editing: are variants that damage a gene in the assay a greater surprise?"""

from eval.tasks.common.matched import task

TASK = task(
    "saturation_editing",
    "average precision of variants that damage a gene in saturation genome editing, by study and "
    "consequence; mean over those with 30 positives",
    score="minus_delta",
    hub_id="bolinas-dna/evals_sge",
    study="mavedb_urn",
    citation="Open-Athena, marin-dna, 2026",
)
