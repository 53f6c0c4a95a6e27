"""Complex traits with matched controls: does the model react more to fine-mapped variants?"""

from eval.tasks.common.matched import task

TASK = task(
    "complex_matched",
    "average precision of fine-mapped variants of complex traits against matched controls, by "
    "consequence; mean over consequences with 30 positives",
    score="abs_delta",
    features="sum_and_distance",
    hub_id="bolinas-dna/evals_complex_traits",
    citation="Open-Athena, marin-dna, 2026",
)
