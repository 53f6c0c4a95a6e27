"""How far percentiles move when a model computes in bfloat16 and its background is of float32.

Rounding moves each delta a little, and not to one side, so the quantiles of both are the same but
for noise. What matters is how far it moves the percentile of one variant, which is measured here.
"""

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from carbon.inference.background.draw import Drawn
from carbon.inference.background.quantiles import Background

if TYPE_CHECKING:
    from carbon.inference.reading.reader import Reader

T = TypeVar("T")

ROUNDED = "bfloat16"
_VARIANTS = 320  # evenly over what was drawn, and so over the kinds
_SHARE = 0.95


class RoundedDeltas(NamedTuple):
    """Deltas of some variants, computed with rounded weights.

    Attributes:
        weights_sha256: of the rounded weights.
        deltas: in nats, None where a variant has no score.
    """

    weights_sha256: str
    deltas: list[float | None]


def rounded_reader(reader: "Reader") -> "Reader":
    """Return a reader of the same network with rounded weights; positions stay in float32."""
    from carbon.inference.reading.reader import Reader  # and torch with it
    from carbon.model import LoadedModel

    network: Any = copy.deepcopy(reader.network)
    for weight in network.parameters():
        weight.data = weight.data.bfloat16()
    return Reader(LoadedModel(network, reader.vocabulary), reader.batch_tokens)


def chosen(drawn: Sequence[T]) -> Sequence[T]:
    """Return the variants, or deltas, of which the tolerance is measured: evenly over all."""
    return drawn[:: max(1, -(-len(drawn) // _VARIANTS))]


def with_tolerance(
    background: Background,
    drawn: Sequence[Drawn],
    deltas: Sequence[float | None],
    rounded: RoundedDeltas | None,
) -> Background:
    """Return a background with its tolerance for bfloat16.

    Args:
        background: of these variants and deltas.
        drawn: the variants.
        deltas: of each in nats, None where it has no score.
        rounded: of the chosen ones; None if the background is not of float32.
    """
    if rounded is None:
        return background
    moved = []
    both = zip(chosen(drawn), chosen(deltas), rounded.deltas, strict=True)
    for each, delta, rounded_delta in both:
        kind = next((k for k in each.path if "quantiles" in background.table[k]), None)
        if kind and delta is not None and rounded_delta is not None:
            points = [background.percentile_in(kind, value) for value in (delta, rounded_delta)]
            moved.append((abs(rounded_delta - delta), abs(points[1] - points[0])))
    if not moved:
        return background
    of_delta, of_percentile = np.quantile(np.array(moved), _SHARE, axis=0)
    return background.with_tolerance(
        ROUNDED,
        {
            "weights_sha256": rounded.weights_sha256,
            "variants": len(moved),
            "delta": float(f"{of_delta:.2g}"),
            "percentile": float(f"{of_percentile:.2g}"),
        },
    )
