"""Sequence recovery: how many of the next 30 bases does a greedy continuation get right?

The protocol is that of the Carbon technical report (section 6.2): up to 6,144 bp of context, five
tokens, greedy, share of 30 bases. Sites come from records that were held out from training.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from carbon.console import progress
from carbon.errors import CorpusError
from carbon.inference import Carbon
from eval.markov import MAX_ORDER, Markov
from eval.uncertainty import bootstrap, mean

TARGET_BP = 30
_LEAST_PROMPT_BP = 120
_SITES_AT_ONCE = 64

Site = tuple[str, str]  # prompt, target


def choose_sites(
    records: Sequence[str], num_sites: int, most_prompt_bp: int, seed: int
) -> list[Site]:
    """Draw sites from records, in proportion to the places they offer.

    A prompt is the record up to the site, cut on the left to whole steps of 120 bp, so that prompts
    share a few lengths.
    """
    random = np.random.default_rng(seed)
    places = np.array([max(0, len(r) - TARGET_BP - _LEAST_PROMPT_BP + 1) for r in records])
    ends = np.cumsum(places)
    sites: list[Site] = []
    total = int(ends[-1]) if len(ends) else 0
    # Some more than are wanted, for those that fall on unknown bases.
    for number in random.choice(total, min(total, 4 * num_sites), replace=False) if total else ():
        which = int(np.searchsorted(ends, number, side="right"))
        at = _LEAST_PROMPT_BP + int(number - (ends[which] - places[which]))
        prompt_bp = min(at, most_prompt_bp) // _LEAST_PROMPT_BP * _LEAST_PROMPT_BP
        target = records[which][at : at + TARGET_BP].upper()
        if set(target) <= set("ACGT"):
            sites.append((records[which][at - prompt_bp : at].upper(), target))
        if len(sites) == num_sites:
            break
    return sites


def sequence_recovery(
    model: Carbon, train: Sequence[str], test: Sequence[str], num_sites: int, seed: int
) -> dict[str, Any]:
    """Measure a model and the Markov models of order 0 to 6 at the same sites."""
    fits_bp = model.context_bp - TARGET_BP
    sites = choose_sites(test, num_sites, min(6144, fits_bp), seed)
    if not sites:
        least_bp = _LEAST_PROMPT_BP + TARGET_BP
        raise CorpusError(f"no site to recover: no held-out record has {least_bp} known bases")
    network = {mode: _of_model(model, sites, mode, seed) for mode in ("token", "base")}
    markov = [_of_markov(Markov(order, train), sites) for order in range(MAX_ORDER + 1)]
    best = max(range(len(markov)), key=lambda order: markov[order].mean())
    ahead = network["token"] - markov[best]
    return {
        **mean(network["token"])._asdict(),
        "mode": "token",
        "base_mode": mean(network["base"])._asdict(),
        "markov": [mean(values)._asdict() for values in markov],
        "best_markov_order": best,
        "ahead_of_best_markov": bootstrap(lambda i: float(ahead[i].mean()), len(ahead))._asdict(),
        "target_bp": TARGET_BP,
        "most_prompt_bp": min(6144, fits_bp) // _LEAST_PROMPT_BP * _LEAST_PROMPT_BP,
        "seed": seed,
    }


def _of_model(
    model: Carbon, sites: list[Site], mode: Literal["token", "base"], seed: int
) -> NDArray[np.float64]:
    shares: list[float] = []
    by_length = sorted(range(len(sites)), key=lambda n: len(sites[n][0]))
    with progress(f"sequence recovery ({mode})", len(sites)) as advance:
        for at in range(0, len(sites), _SITES_AT_ONCE):
            block = [sites[n] for n in by_length[at : at + _SITES_AT_ONCE]]
            prompts = [prompt for prompt, _ in block]
            texts = model.generate(prompts, TARGET_BP, temperature=0, seed=seed, mode=mode)
            shares += [_share(t, target) for t, (_, target) in zip(texts, block, strict=True)]
            advance(len(block))
    result = np.empty(len(sites))
    result[by_length] = shares
    return result


def _of_markov(markov: Markov, sites: list[Site]) -> NDArray[np.float64]:
    return np.array(
        [_share(markov.continuation(prompt, TARGET_BP), target) for prompt, target in sites]
    )


def _share(text: str, target: str) -> float:
    return sum(a == b for a, b in zip(text, target, strict=True)) / len(target)
