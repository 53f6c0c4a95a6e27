"""How far percentiles move when a model computes in bfloat16 and its background is of float32.

Rounding moves each delta a little, and not to one side, so the quantiles of both are the same but
for noise. What matters is how far it moves the percentile of one variant, which is measured here.
"""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from carbon.genome import Reference
from carbon.inference.background.draw import Drawn
from carbon.inference.background.identity import weights_sha256
from carbon.inference.background.quantiles import Background
from carbon.inference.reading import Reader
from carbon.inference.variants.method import Method
from carbon.inference.variants.scores import score_variants
from carbon.model import LoadedModel

ROUNDED = "bfloat16"
_VARIANTS = 320  # evenly over what was drawn, and so over the kinds
_SHARE = 0.95


def with_tolerance(
    background: Background,
    reader: Reader,
    reference: Reference,
    method: Method,
    drawn: Sequence[Drawn],
    deltas: Sequence[float | None],
) -> Background:
    """Return a float32 background with its tolerance for bfloat16; another one as it is.

    Args:
        background: of these variants and deltas.
        reader: of the model that scored them.
        reference: of the variants.
        method: how they were scored.
        drawn: the variants.
        deltas: of each in nats, None where it has no score.
    """
    if reader.dtype != "float32":
        return background
    rounded = _rounded(reader)
    step = -(-len(drawn) // _VARIANTS)
    scores = score_variants(rounded, reference, (each.variant for each in drawn[::step]), method)
    moved = []
    for each, delta, score in zip(drawn[::step], deltas[::step], scores, strict=True):
        kind = next((k for k in each.path if "quantiles" in background.table[k]), None)
        if kind and delta is not None and score.delta is not None:
            points = [background.percentile_in(kind, value) for value in (delta, score.delta)]
            moved.append((abs(score.delta - delta), abs(points[1] - points[0])))
    if not moved:
        return background
    of_delta, of_percentile = np.quantile(np.array(moved), _SHARE, axis=0)
    return background.with_tolerance(
        ROUNDED,
        {
            "weights_sha256": weights_sha256(rounded),
            "variants": len(moved),
            "delta": float(f"{of_delta:.2g}"),
            "percentile": float(f"{of_percentile:.2g}"),
        },
    )


def _rounded(reader: Reader) -> Reader:
    """Return a reader of the same network with rounded weights; positions stay in float32."""
    network: Any = copy.deepcopy(reader.network)
    for weight in network.parameters():
        weight.data = weight.data.to(getattr(torch, ROUNDED))
    return Reader(LoadedModel(network, reader.vocabulary), reader.batch_tokens)
