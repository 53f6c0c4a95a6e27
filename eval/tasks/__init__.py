"""The tasks, each a folder: protocol and figures in its README, `TASK`, and a builder.

A new task is a folder with a `TASK` and a name in this list.
"""

from eval.contract import Task
from eval.tasks import (
    brca2,
    clinvar_coding,
    clinvar_noncoding,
    genomic_niah,
    sequence_recovery,
    synonymous_codons,
    traitgym_mendelian,
    triplet_expansion,
)

TASKS: dict[str, Task] = {
    module.TASK.name: module.TASK
    for module in (
        sequence_recovery,
        clinvar_coding,
        clinvar_noncoding,
        brca2,
        traitgym_mendelian,
        triplet_expansion,
        synonymous_codons,
        genomic_niah,
    )
}
