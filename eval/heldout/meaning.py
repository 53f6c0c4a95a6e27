"""What a good number is: each measure beside knowing nothing, counting bases, and what is known."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from eval.tasks.sequence_recovery import TASK as RECOVERY

_UNIFORM_NATS = math.log(4)


def meaning_of(task: str, result: Mapping[str, Any]) -> str:
    """Return a sentence or two that say how good the result of a task of `heldout` is."""
    return _MEANINGS[task](result)


def _recovery(result: Mapping[str, Any]) -> str:
    best = result["markov"][result["best_markov_order"]]["value"]
    published = ", ".join(f"{name} {value:.3f}" for name, value in RECOVERY.published.items())
    return (
        f"sequence recovery {result['value']:.3f}: 0.25 is chance, and a Markov model of order "
        f"{result['best_markov_order']} that counts the bases of the training records reaches "
        f"{best:.3f} here. Published on sites of other genomes, so for orientation: {published} "
        f"({RECOVERY.citation})."
    )


def _likelihood(result: Mapping[str, Any]) -> str:
    values = [each["value"] for each in result["markov"]]
    order = min(range(len(values)), key=values.__getitem__)
    ahead = values[order] - result["value"]
    verdict = f"{abs(ahead):.4f} {'better' if ahead > 0 else 'worse'}"
    return (
        f"held-out nats per base {result['value']:.4f}, less is better: {_UNIFORM_NATS:.3f} is "
        f"knowing nothing (ln 4), counting single bases reaches {values[0]:.4f} here and the best "
        f"Markov model (order {order}) {values[order]:.4f}; this model is {verdict}. "
        "Most DNA is nearly random, so a hundredth of a nat is much. Nats depend on the genome, "
        "and the released models are published without any."
    )


def _variants(result: Mapping[str, Any]) -> str:
    return (
        f"variant AUROC {result['value']:.3f}: 0.5 is chance, 1 is faultless, and a Markov model "
        f"of order 6 reaches {result['markov_6']['value']:.3f} on these variants. Published AUROCs "
        "are of other variants: `python -m eval list` has them."
    )


_MEANINGS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "sequence_recovery": _recovery,
    "heldout_likelihood": _likelihood,
    "variant_auroc": _variants,
}
