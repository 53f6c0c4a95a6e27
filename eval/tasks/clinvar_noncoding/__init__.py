"""ClinVar, non-coding: are pathogenic changes outside of CDS less likely than benign ones?"""

from eval.tasks.common import clinvar

TASK = clinvar.task(
    "noncoding",
    "non_coding/clinvar_non_coding.parquet",
    {"Carbon-3B": 0.9114, "Carbon-8B": 0.9163, "GENERator-v2-3B": 0.9013, "Evo2-7B": 0.8979},
    "AUROC of pathogenic against benign non-coding SNVs, REF against ALT behind 24 kbp",
)
