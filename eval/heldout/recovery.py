"""Sequence recovery, beside Markov models at the same sites of what was held out from training."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carbon.errors import CorpusError
from carbon.inference import Model
from carbon.inference.held_out import (
    LEAST_PROMPT_BP,
    MOST_PROMPT_BP,
    TARGET_BP,
    Site,
    choose_sites,
    equal_share,
    recovered_shares,
)
from carbon.uncertainty import mean
from eval.heldout.markov import MAX_ORDER, Markov


def sequence_recovery(
    model: Model, train: Sequence[str], test: Sequence[str], num_sites: int, seed: int
) -> dict[str, Any]:
    """Measure a model and the Markov models of order 0 to 6 at the same sites."""
    fits_bp = model.context_bp - TARGET_BP
    sites = choose_sites(test, num_sites, min(MOST_PROMPT_BP, fits_bp), seed)
    if not sites:
        least_bp = LEAST_PROMPT_BP + TARGET_BP
        raise CorpusError(f"no site to recover: no held-out record has {least_bp} known bases")
    network = {mode: recovered_shares(model, sites, mode, seed) for mode in ("token", "base")}
    markov = [_of_markov(Markov(order, train), sites) for order in range(MAX_ORDER + 1)]
    best = max(range(len(markov)), key=lambda order: markov[order].mean())
    ahead = network["token"] - markov[best]
    return {
        **mean(network["token"])._asdict(),
        "mode": "token",
        "base_mode": mean(network["base"])._asdict(),
        "markov": [mean(values)._asdict() for values in markov],
        "best_markov_order": best,
        "ahead_of_best_markov": mean(ahead)._asdict(),
        "target_bp": TARGET_BP,
        "most_prompt_bp": min(MOST_PROMPT_BP, fits_bp) // LEAST_PROMPT_BP * LEAST_PROMPT_BP,
        "seed": seed,
    }


def _of_markov(markov: Markov, sites: list[Site]) -> NDArray[np.float64]:
    return np.array(
        [equal_share(markov.continuation(prompt, TARGET_BP), target) for prompt, target in sites]
    )
