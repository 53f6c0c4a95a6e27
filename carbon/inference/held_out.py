"""Measure likelihood and sequence recovery on held-out records.

Sequence recovery is the share of the next 30 bases that a greedy continuation gets right. The
protocol follows section 6.2 of the Carbon technical report: up to 6,144 bp of context, five tokens,
share of 30 bases.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from carbon.inference.options import Mode
from carbon.progress import progress

if TYPE_CHECKING:
    from carbon.inference.model import Model

TARGET_BP = 30
MOST_PROMPT_BP = 6144
LEAST_PROMPT_BP = 120
MARKOV_ORDER = 6
_SITES_PER_BATCH = 64
_KNOWN = np.frombuffer(b"ACGTacgt", dtype=np.uint8)

Site = tuple[str, str]
"""A prompt, and the bases that follow it."""


def choose_records(records: Sequence[str], most_bp: int, seed: int) -> list[str]:
    """Draw records in random order, up to `most_bp` bases in all; the last record is cut."""
    drawn = choose_numbers([len(record) for record in records], most_bp, seed)
    return [records[number][:length_bp] for number, length_bp in drawn]


def choose_numbers(lengths_bp: Sequence[int], most_bp: int, seed: int) -> list[tuple[int, int]]:
    """Return the number and the used length of each record that `choose_records` draws."""
    chosen: list[tuple[int, int]] = []
    left_bp = most_bp
    for number in np.random.default_rng(seed).permutation(len(lengths_bp)):
        if left_bp <= 0:
            break
        chosen.append((int(number), min(lengths_bp[number], left_bp)))
        left_bp -= lengths_bp[number]
    return chosen


def measured_bases(record: str) -> NDArray[np.bool_]:
    """Return which bases likelihoods are compared on: known, with six known bases before, (bases,).

    Markov models up to order 6 predict exactly these bases.
    """
    known = np.isin(np.frombuffer(record.encode("ascii"), dtype=np.uint8), _KNOWN)
    runs = np.convolve(known, np.ones(MARKOV_ORDER + 1, dtype=int))[: len(known)]
    is_measured: NDArray[np.bool_] = runs == MARKOV_ORDER + 1
    return is_measured


def choose_sites(
    records: Sequence[str], num_sites: int, most_prompt_bp: int, seed: int
) -> list[Site]:
    """Draw sites from records, in proportion to the number of possible sites in each.

    The prompt is the record up to the site, cut on the left to a multiple of 120 bp, so that
    prompts share a few lengths.
    """
    random = np.random.default_rng(seed)
    places = np.array([max(0, len(r) - TARGET_BP - LEAST_PROMPT_BP + 1) for r in records])
    ends = np.cumsum(places)
    sites: list[Site] = []
    total = int(ends[-1]) if len(ends) else 0
    # More than needed, because sites with unknown bases are skipped.
    for number in random.choice(total, min(total, 4 * num_sites), replace=False) if total else ():
        which = int(np.searchsorted(ends, number, side="right"))
        at = LEAST_PROMPT_BP + int(number - (ends[which] - places[which]))
        prompt_bp = min(at, most_prompt_bp) // LEAST_PROMPT_BP * LEAST_PROMPT_BP
        target = records[which][at : at + TARGET_BP].upper()
        if set(target) <= set("ACGT"):
            sites.append((records[which][at - prompt_bp : at].upper(), target))
        if len(sites) == num_sites:
            break
    return sites


def recovered_shares(
    model: "Model", sites: Sequence[Site], mode: Mode, seed: int
) -> NDArray[np.float64]:
    """Return the share of each site's bases that a greedy continuation gets right, (sites,)."""
    shares: list[float] = []
    by_length = sorted(range(len(sites)), key=lambda n: len(sites[n][0]))
    with progress(f"sequence recovery ({mode})", len(sites)) as advance:
        for at in range(0, len(sites), _SITES_PER_BATCH):
            block = [sites[n] for n in by_length[at : at + _SITES_PER_BATCH]]
            prompts = [prompt for prompt, _ in block]
            texts = model.generate(prompts, TARGET_BP, temperature=0, seed=seed, mode=mode)
            shares += [equal_share(t, target) for t, (_, target) in zip(texts, block, strict=True)]
            advance(len(block))
    result = np.empty(len(sites))
    result[by_length] = shares
    return result


def equal_share(text: str, target: str) -> float:
    """Return the share of positions at which two texts of equal length agree."""
    return sum(a == b for a, b in zip(text, target, strict=True)) / len(target)
