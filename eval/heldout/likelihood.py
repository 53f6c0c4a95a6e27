"""Held-out nats per base, through the chain, beside Markov models on the same bases."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from carbon.errors import CorpusError
from carbon.inference import Model, base_log_likelihoods
from carbon.inference.held_out import choose_numbers, measured_bases
from carbon.progress import track
from carbon.uncertainty import bootstrap, ratio_of, wilson
from eval.heldout.markov import MAX_ORDER, Markov
from eval.heldout.mixed_markov import Labelled, MixedMarkov
from eval.heldout.periodic import CodonPeriodic

MIXED_ORDER = 16

Owners = NDArray[np.int64]
"""The number of what each base of a record is drawn with, such as its gene: (bases,)."""


class Predictor(Protocol):
    """What says how likely every base is, given those before it."""

    def log_likelihoods(self, sequence: str) -> NDArray[np.float64]:
        """Return log p of every base, NaN where nothing can be said: (bases,)."""
        ...


Baselines = Mapping[str, Callable[[], Predictor]]
"""By name what makes each; one of them is in memory at a time."""


def markov_baselines(train: Sequence[str], states: Iterable[Labelled] | None = None) -> Baselines:
    """Return the Markov models of order 0 to 6, the mixed one, and the codon-periodic one.

    Args:
        train: sequences to count.
        states: training bases with their places in codons; without them none is codon-periodic.
    """
    found: dict[str, Callable[[], Predictor]] = {
        f"order_{order}": partial(Markov, order, train) for order in range(MAX_ORDER + 1)
    }
    found[f"mixed_{MIXED_ORDER}"] = partial(MixedMarkov, MIXED_ORDER, train)
    if states is not None:
        found["codon_periodic"] = partial(CodonPeriodic, MIXED_ORDER, states)
    return found


def heldout_likelihood(
    model: Model,
    train: Sequence[str],
    test: Sequence[str],
    most_bp: int,
    seed: int,
    *,
    owners: Sequence[Owners] | None = None,
    states: Iterable[Labelled] | None = None,
) -> dict[str, Any]:
    """Measure nats per base over held-out records, drawn in random order up to `most_bp`.

    Every model is measured on the same bases: those with six known bases before them.

    Args:
        model: what is measured.
        train: sequences that Markov models are fitted on.
        test: held-out records.
        most_bp: bases to measure on.
        seed: of the order of records.
        owners: of each record the gene of every base; intervals come from drawing genes. Without
            them from drawing whole records.
        states: training bases with their places in codons.
    """
    drawn = choose_numbers([len(record) for record in test], most_bp, seed)
    records = [test[number][:length_bp] for number, length_bp in drawn]
    counted = [measured_bases(record) for record in records]
    if not any(each.any() for each in counted):
        raise CorpusError("no base to measure: the held-out records are too short or all unknown")
    drawn_with = [
        np.full(length_bp, place) if owners is None else owners[number][:length_bp]
        for place, (number, length_bp) in enumerate(drawn)
    ]
    owner = np.concatenate([o[c] for o, c in zip(drawn_with, counted, strict=True)])
    _, block = np.unique(owner, return_inverse=True)

    def nats(values_of: Callable[[str], NDArray[Any]], name: str) -> NDArray[np.float64]:
        pairs = zip(track(records, f"held-out likelihood, {name}"), counted, strict=True)
        values = np.concatenate([values_of(record)[known] for record, known in pairs])
        return np.bincount(block, -values.astype(np.float64)).astype(np.float64)

    network = nats(lambda record: base_log_likelihoods(model.runner, [record])[0], "model")
    fitted = {}
    for name, make in markov_baselines(train, states).items():
        fitted[name] = nats(make().log_likelihoods, name)
    unit = "records" if owners is None else "genes"
    return {**_compared(network, fitted, np.bincount(block)), "resampled": unit, "seed": seed}


def _compared(
    network: NDArray[np.float64], fitted: Mapping[str, NDArray[np.float64]], bases: NDArray[Any]
) -> dict[str, Any]:
    """Compare sums of nats of what is drawn together, (blocks,)."""
    weights = bases.astype(np.float64)

    def per_base(totals: NDArray[np.float64]) -> dict[str, Any]:
        return bootstrap(ratio_of(totals, weights), len(weights))._asdict()

    best = min(fitted, key=lambda name: float(fitted[name].sum()))
    num_ahead = int((network < fitted[best]).sum())
    orders = [f"order_{k}" for k in range(MAX_ORDER + 1)]
    return {
        **per_base(network),
        "num_bases": int(bases.sum()),
        "markov": [per_base(fitted[name]) for name in orders],
        "others": {n: per_base(total) for n, total in fitted.items() if n not in orders},
        "ahead_of_order_6": per_base(fitted["order_6"] - network),
        "best_markov": best,
        "ahead_of_best": per_base(fitted[best] - network),
        "share_ahead_of_best": wilson(num_ahead, len(weights))._asdict(),
    }
