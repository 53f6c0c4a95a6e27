"""Synonymous codons: is a coding exon likelier than the same in the most frequent codons?"""

from eval.tasks.common import pairs
from eval.tasks.synonymous_codons.build import build

TASK = pairs.task(
    "synonymous_codons",
    build,
    "syn_*/test-*.parquet",
    {"Carbon-3B": 0.8889, "Carbon-8B": 0.9146, "GENERator-v2-3B": 0.8703, "Evo2-7B": 0.9159},
    "share of coding exons that are likelier than the same protein in the most frequent codons",
)
