"""Answers without a model, to stand beside every result: a table of what fits them."""

from collections.abc import Callable
from functools import partial

import numpy as np

from carbon.adapt.baselines import features
from carbon.adapt.baselines.linear import Linear, fit_linear
from carbon.adapt.examples import Examples
from carbon.adapt.question import Floats32, Question

Answer = Callable[[Examples], Floats32]
"""From any examples to predictions, (rows, num_outputs)."""
Fit = Callable[[Examples, Examples, Question, int], Answer]
"""From train and validation part, question and seed to an answer."""

MOST_ROWS = 30_000
"""Of more, a linear baseline learns from so many, drawn by the seed."""


def _constant(train: Examples, validation: Examples, question: Question, seed: int) -> Answer:
    """Say how frequent each class is, or the mean, whatever the sequence."""
    if question.of_kind.one_column:
        known = train.labels[~np.isnan(train.labels)].astype(int)
        shares = np.bincount(known, minlength=len(question.names)) / len(known)
        said = shares[-question.num_outputs :]
    else:
        said = np.nanmean(train.labels.astype(np.float64), axis=0)
    return lambda examples: np.tile(said.astype(np.float32), (len(examples.labels), 1))


def _linear(
    read: Callable[[Examples], Floats32],
    train: Examples,
    validation: Examples,
    question: Question,
    seed: int,
) -> Answer:
    some = _some(train, seed)
    linear: Linear = fit_linear(
        (read(some), some.labels), (read(validation), validation.labels), question
    ).linear
    return lambda examples: question.predictions(linear.logits(read(examples)))


def _some(examples: Examples, seed: int) -> Examples:
    """Return examples of at most `MOST_ROWS` rows."""
    if len(examples.labels) <= MOST_ROWS:
        return examples
    order = np.random.default_rng(seed).permutation(len(examples))
    sizes = np.diff(examples.starts)[order]
    return examples.taken(order[: max(1, int(np.searchsorted(np.cumsum(sizes), MOST_ROWS)))])


def _cnn(train: Examples, validation: Examples, question: Question, seed: int) -> Answer:
    from carbon.adapt.baselines.network import Size, answers, fit_network

    network = fit_network(train, validation, question, seed, Size())
    return lambda examples: answers(network, examples, question)


FITS: dict[str, Fit] = {
    "constant": _constant,
    "composition": partial(_linear, features.composition),
    "kmers": partial(_linear, features.kmers),
    "cnn": _cnn,
}
"""Of each of `BASELINES`."""
