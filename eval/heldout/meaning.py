"""What a good number is: each measure beside knowing nothing, counting bases, and what is known."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from carbon.reports.render import interval
from carbon.uncertainty import verdict
from eval.heldout.overlap import overlap_clause
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
        f"{best:.3f} here. {_beside_best(result['ahead_of_best_markov'], 3)} Published on "
        f"sites of other genomes, so for orientation: {published} "
        f"({RECOVERY.citation})."
    )


def _likelihood(result: Mapping[str, Any]) -> str:
    best = result["best_markov"].replace("_", " ")
    reached = baselines_of(result)[best]["value"]
    single = result["markov"][0]["value"]
    return (
        f"held-out nats per base {result['value']:.4f}, less is better: {_UNIFORM_NATS:.3f} is "
        f"knowing nothing (ln 4), counting single bases reaches {single:.4f} here and the best "
        f"Markov model ({best}) {reached:.4f}. {_beside_best(result['ahead_of_best'], 4)} Most "
        "DNA is nearly random, so a hundredth of a nat is much. Nats depend on the genome, "
        "and the released models are published without any."
    )


def _beside_best(ahead: Mapping[str, Any], digits: int) -> str:
    """Return whether the model is ahead of the best Markov model, by the interval of that."""
    text = partial(interval, digits=digits)
    return verdict("This model", "the best Markov model", ahead, text)


def baselines_of(result: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the Markov models of `heldout_likelihood` by the names that a reader sees."""
    orders = {f"order {k}": each for k, each in enumerate(result["markov"])}
    others = result.get("others", {}).items()
    return orders | {name.replace("_", " "): each for name, each in others}


def _variants(result: Mapping[str, Any]) -> str:
    return (
        f"variant AUROC {result['value']:.3f}: 0.5 is chance, 1 is faultless, and a Markov model "
        f"of order 6 reaches {result['markov_6']['value']:.3f} on these variants. Published AUROCs "
        "are of other variants: `python -m eval list` has them."
    )


def _frame(result: Mapping[str, Any]) -> str:
    return (
        f"reading frame of genes of more than {result['least_codons']} codons told right for "
        f"{result['value']:.3f} of {result['num_samples']}: 0.167 is chance, 1 is faultless, and a "
        f"Markov model of order 6 reaches {result['markov_6']['value']:.3f} by the same rule."
    )


def _adaptation(result: Mapping[str, Any]) -> str:
    return (
        f"rank correlation of nats per base with the codon adaptation index {result['value']:.3f} "
        f"over {result['num_samples']} genes, {result['without_gc']['value']:.3f} with GC content "
        "taken out: 0 is none, and a model that knows the codons of highly expressed genes has a "
        "negative one."
    )


def _consequences(result: Mapping[str, Any]) -> str:
    every = ", ".join(f"{kind} {each['value']:.3f}" for kind, each in result["by_kind"].items())
    return (
        f"AUROC of damage of known kind against controls of the same change: {every}; 0.5 is "
        "chance, 1 is faultless."
    )


def _overlap(result: Mapping[str, Any]) -> str:
    return (
        f"of the held-out sequence: {overlap_clause(dict(result))}. At copies of training sequence "
        "the other numbers measure memory as well as what was learned; 0 is best."
    )


_MEANINGS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "sequence_recovery": _recovery,
    "overlap_with_train": _overlap,
    "heldout_likelihood": _likelihood,
    "variant_auroc": _variants,
    "reading_frame": _frame,
    "codon_adaptation": _adaptation,
    "consequence_auroc": _consequences,
}
