"""Mendelian traits: are causal variants a greater surprise than matched controls?"""

from eval.tasks.common.matched import task

TASK = task(
    "mendelian_matched",
    "average precision of causal Mendelian variants against matched common variants, by "
    "consequence; mean over consequences with 30 positives",
    score="minus_delta",
    hub_id="bolinas-dna/evals_mendelian_traits",
    published={"Carbon-3B": 0.358},
    citation="Open-Athena, marin-dna, 2026",
)
