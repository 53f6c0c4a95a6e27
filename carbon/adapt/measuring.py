"""Predictions and scores of examples, each process reading its share."""

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from carbon.adapt.config import WayConfig
from carbon.adapt.examples import Examples
from carbon.adapt.predictor import Adapted


class Measured(NamedTuple):
    """What a look at examples says.

    Attributes:
        score: by which a model is chosen; higher is better.
        loss: that it learns by.
    """

    score: float
    loss: float


def measured(adapted: Adapted, examples: Examples, way: WayConfig) -> Measured:
    """Measure predictions, over all processes, as `carbon predict` makes them."""
    question = adapted.question
    logits = logits_of(adapted, examples, way)
    score = question.score(question.predictions(logits), examples.labels)
    known = ~np.isnan(examples.labels).all(axis=1)  # a base that is not read has no logits
    targets = torch.from_numpy(question.targets(examples.labels[known]))
    loss = question.loss_of(torch.from_numpy(logits[known]), targets, alone=True)
    return Measured(score, float(loss))


def predictions_of(adapted: Adapted, examples: Examples, way: WayConfig) -> NDArray[np.float32]:
    """Return predictions of examples, (rows, outputs)."""
    return adapted.question.predictions(logits_of(adapted, examples, way))


def logits_of(adapted: Adapted, examples: Examples, way: WayConfig) -> NDArray[np.float64]:
    """Return logits of examples, (rows, outputs), on every process."""
    is_shared = dist.is_available() and dist.is_initialized()
    rank, number = (dist.get_rank(), dist.get_world_size()) if is_shared else (0, 1)
    was_training = adapted.network.training
    adapted.network.eval()
    mine = adapted.logits(
        examples.sequences[rank::number],
        way.strands,
        tile=way.too_long == "tile",
    )
    adapted.network.train(was_training)
    shares: list[Any] = [mine]
    if is_shared:
        shares = [None] * number
        dist.all_gather_object(shares, mine)
    width = adapted.question.num_outputs
    rows = [shares[n % number][n // number].reshape(-1, width) for n in range(len(examples))]
    return np.concatenate([np.zeros((0, width)), *rows])
