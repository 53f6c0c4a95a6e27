"""Triplet expansion: is a coding exon likelier than the same with ten CAG in it?"""

from eval.tasks.common import pairs
from eval.tasks.triplet_expansion.build import build

TASK = pairs.task(
    "triplet_expansion",
    build,
    "motif_human/test-*.parquet",
    {"Carbon-3B": 0.8520, "Carbon-8B": 0.8905, "GENERator-v2-3B": 0.8306, "Evo2-7B": 0.8843},
    "share of coding exons that are likelier than the same with 30 bases turned into ten CAG",
)
