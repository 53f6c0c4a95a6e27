"""ClinVar, coding: are pathogenic changes of proteins a greater surprise than benign ones?"""

from eval.tasks.common import clinvar

TASK = clinvar.task(
    "coding",
    "coding/clinvar_coding.parquet",
    {"Carbon-3B": 0.9289, "Carbon-8B": 0.9311, "GENERator-v2-3B": 0.9155, "Evo2-7B": 0.9333},
    "AUROC of pathogenic against benign coding SNVs, REF against ALT behind 24 kbp",
)
