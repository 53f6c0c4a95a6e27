"""Held-out nats per base, through the chain, beside Markov models on the same bases."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carbon.console import track
from carbon.errors import CorpusError
from carbon.inference import Carbon, base_log_likelihoods
from carbon.inference.held_out import choose_records, measured_bases
from eval.markov import MAX_ORDER, Markov
from eval.uncertainty import ratio


def heldout_likelihood(
    model: Carbon, train: Sequence[str], test: Sequence[str], most_bp: int, seed: int
) -> dict[str, Any]:
    """Measure nats per base over held-out records, drawn in random order up to `most_bp`.

    Every model is measured on the same bases: those with six known bases before them. Intervals
    come from drawing whole records.
    """
    chosen = choose_records(test, most_bp, seed)
    markov = [Markov(order, train) for order in range(MAX_ORDER + 1)]
    rows = []
    for record in track(chosen, "held-out likelihood"):
        tables = [m.log_likelihoods(record) for m in markov]
        counted = measured_bases(record)
        (network,) = base_log_likelihoods(model.reader, [record])
        likelihoods: list[NDArray[Any]] = [network, *tables]
        sums = [-values[counted].sum(dtype=np.float64) for values in likelihoods]
        rows.append([*sums, counted.sum()])
    if not any(row[-1] for row in rows):
        raise CorpusError("no base to measure: the held-out records are too short or all unknown")
    totals = np.array(rows, dtype=np.float64)
    bases = totals[:, -1]
    ahead = totals[:, 1 + MAX_ORDER] - totals[:, 0]
    return {
        **ratio(totals[:, 0], bases)._asdict(),
        "num_bases": int(bases.sum()),
        "markov": [ratio(totals[:, 1 + k], bases)._asdict() for k in range(MAX_ORDER + 1)],
        "ahead_of_order_6": ratio(ahead, bases)._asdict(),
        "seed": seed,
    }
