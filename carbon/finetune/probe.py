"""What a probe of every base learns from: 6-mers, drawn where there are many, and their labels."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from carbon.errors import UserError
from carbon.finetune.batches import Batch
from carbon.finetune.config import WayConfig
from carbon.finetune.data import Examples
from carbon.finetune.linear import Linear, fit_linear
from carbon.finetune.network import Averager, OpenedModel, Window, both_sides, pooled
from carbon.finetune.tasks import Question
from carbon.inference.runner import Observed, decoder_with
from carbon.inference.score import blocks
from carbon.progress import track
from carbon.tokenizer import K

MOST_SIX_MERS = 10_000
"""Of a part, as they are read on either strand; of more so many are drawn by the seed."""

_WINDOWS = 64  # read together; of those that are not drawn nothing is kept

Floats32 = NDArray[np.float32]


def six_mers_of(length_bp: int) -> int:
    """Return the 6-mers of a sequence, the tail included."""
    return -(-length_bp // K)


class SixMers(NamedTuple):
    """6-mers in the order of their examples.

    Attributes:
        vectors: (6-mers, width).
        labels: (6-mers, 6) of their bases, NaN where unknown, and behind the end of a sequence.
        total: that there are, of which these were drawn.
    """

    vectors: Floats32
    labels: Floats32
    total: int


def read_six_mers(averager: Averager, examples: Examples, way: WayConfig, seed: int) -> SixMers:
    """Return 6-mers as each strand reads them, at most `MOST_SIX_MERS`.

    Args:
        averager: gives a vector a 6-mer.
        examples: with a label of every base.
        way: strands that are read, each 6-mer of them a row, and what is done with long sequences.
        seed: of the draw.
    """
    tile = way.too_long == "tile"
    windows = list(averager.windows(examples.sequences, way.strands, tile=tile))
    sizes = [six_mers_of(len(window.bases)) for window in windows]
    kept = _drawn(sizes, seed)
    read = [number for number, which in enumerate(kept) if len(which)]
    vectors, labels = [], []
    blocks = [read[first : first + _WINDOWS] for first in range(0, len(read), _WINDOWS)]
    for block in track(blocks, "reading states", len(blocks)):
        for number, found in zip(block, averager.read([windows[n] for n in block]), strict=True):
            vectors.append(found[kept[number]])
            labels.append(_labels_of(windows[number], examples)[kept[number]])
    return SixMers(np.concatenate(vectors), np.concatenate(labels), sum(sizes))


def _drawn(sizes: list[int], seed: int) -> list[NDArray[np.int64]]:
    """Return which 6-mers of each window are kept, in their order."""
    order = np.random.default_rng(seed).permutation(sum(sizes))
    which = np.sort(order[:MOST_SIX_MERS])
    ends = np.cumsum(sizes)
    parts = np.split(which, np.searchsorted(which, ends[:-1]))
    return [part - (end - size) for part, end, size in zip(parts, ends, sizes, strict=True)]


def _labels_of(window: Window, examples: Examples) -> Floats32:
    first = int(examples.starts[window.sequence]) + window.start
    of_bases = examples.labels[first : first + len(window.bases), 0]
    whole = np.full(K * six_mers_of(len(of_bases)), np.nan, dtype=np.float32)
    whole[: len(of_bases)] = of_bases[::-1] if window.is_turned else of_bases
    return whole.reshape(-1, K)


_SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2)
"""Of the train part, whose scores tell what more examples would be worth."""
_FEW = 10  # known numbers, below which nothing is fitted


class Trial(NamedTuple):
    """The best linear answer of a layer; higher scores are better.

    Attributes:
        layer: whose states it is from; all layers and the last norm if None.
        strength: C, or alpha of numbers.
        score: on the validation part.
    """

    layer: int | None
    strength: float
    score: float


class Size(NamedTuple):
    """What so many examples of the train part are enough for, at the best layer.

    Attributes:
        examples: learned from; of a label of every base 6-mers.
        score: on the validation part.
    """

    examples: int
    score: float


class Probed(NamedTuple):
    """The best linear answer, all that were tried, and what fewer examples would have given.

    `told` has a sentence on what was drawn.
    """

    linear: Linear
    best: Trial
    trials: tuple[Trial, ...]
    sizes: tuple[Size, ...]
    told: tuple[str, ...]


class LayerStates(nn.Module):
    """The vectors of a batch behind some layers, from one pass: (rows, layers x width).

    A vector is made as soon as its layer is done, so that no other states are kept. Where every
    base has a label a row is a 6-mer, and its vector the states of both passes.
    """

    def __init__(self, backbone: Any, layers: Sequence[int | None]) -> None:
        """Read these layers; None is all of them and the last norm, 0 the embeddings."""
        super().__init__()
        self.backbone, self.layers = backbone, tuple(layers)

    def forward(self, batch: Batch) -> Tensor:
        """Return vectors, layer after layer."""
        found: dict[int | None, Tensor] = {}
        vectors_from = pooled if batch.pairs is None else both_sides

        def observed(module: nn.Module, layer: int | None) -> nn.Module:
            def observe(states: Tensor) -> None:
                found[layer] = vectors_from(states[0], batch)

            return Observed(module, observe) if layer in self.layers else module

        layers = (observed(each, n) for n, each in enumerate(self.backbone.layers, start=1))
        decoder = decoder_with(
            self.backbone,
            embed_tokens=observed(self.backbone.embed_tokens, 0),
            layers=nn.ModuleList(layers),
            norm=observed(self.backbone.norm, None),
        )
        decoder(
            input_ids=batch.ids[None],
            position_ids=batch.positions[None],
            layout=batch.layout,
            use_cache=False,
        )
        return torch.cat([found[layer] for layer in self.layers], dim=1)


def layers_of(opened: OpenedModel, layer: int | None) -> list[int | None]:
    """Return the layers to try: the one that is asked for, or all."""
    num_layers = len(opened.backbone.layers)
    if layer is None:
        return [*range(1, num_layers), None]
    if not 0 <= layer <= num_layers:
        raise UserError(f"way.layer = {layer}: the model has {num_layers}; give 1 to {num_layers}")
    return [layer]


def _read(
    opened: OpenedModel,
    layers: Sequence[int | None],
    examples: Examples,
    way: WayConfig,
    seed: int,
) -> tuple[NDArray[np.float32], NDArray[np.float32], tuple[str, ...]]:
    """Return vectors, (rows, layers, width), labels, (rows, columns), and what was drawn.

    A row is an example, or a 6-mer whose bases have a column each.
    """
    if not examples.per_base:
        return vectors_of(opened, layers, examples.sequences, way), examples.labels, ()
    averager = six_mers_averager(opened, layers)
    vectors, labels, total = read_six_mers(averager, examples, way, seed)
    is_drawn = total > len(labels)
    told = f"The probe learned from {len(labels):,} of {total:,} 6-mers, drawn by seed {seed}."
    return vectors.reshape(len(labels), len(layers), -1), labels, (told,) * is_drawn


def six_mers_averager(opened: OpenedModel, layers: Sequence[int | None]) -> Averager:
    """Return what reads of each 6-mer its states in either pass, layer after layer."""
    width = len(layers) * 2 * opened.backbone.config.hidden_size
    return Averager(
        LayerStates(opened.backbone, layers),
        opened.backbone,
        opened.model.vocabulary,
        "mean",
        width,
        per_base=True,
        size_of=six_mers_of,
    )


def vectors_of(
    opened: OpenedModel, layers: Sequence[int | None], sequences: Sequence[str], way: WayConfig
) -> NDArray[np.float32]:
    """Return (sequences, layers, width): means over strands and windows.

    A linear map of the mean is the mean of the map, so that what is fitted to these gives the mean
    of the logits of both strands.
    """
    width = opened.backbone.config.hidden_size
    network = LayerStates(opened.backbone, layers)
    size = len(layers) * width
    averager = Averager(network, opened.backbone, opened.model.vocabulary, way.pool, size)

    def read() -> Iterator[NDArray[Any]]:
        for block in blocks(sequences):
            yield from averager.means(block, way.strands, tile=way.too_long == "tile")

    found = np.empty((len(sequences), len(layers), width), dtype=np.float32)
    for row, vector in zip(found, track(read(), "reading states", len(sequences)), strict=True):
        row[:] = vector.reshape(len(layers), width)
    return found


def probe(
    opened: OpenedModel,
    question: Question,
    train: Examples,
    validation: Examples,
    way: WayConfig,
    seed: int = 0,
) -> Probed:
    """Fit a linear answer for each layer; return the one with the best score.

    Of equals the first, which is of the lowest layer. Of a label of every base the answer has six
    maps, one for each base of a 6-mer.

    Args:
        opened: the model.
        question: what is asked.
        train: learned from.
        validation: strength and layer are chosen by it.
        way: what is read.
        seed: of the 6-mers that are drawn where every base has a label.

    Raises:
        UserError: no score is defined.
    """
    layers = layers_of(opened, way.layer)
    opened.backbone.train(False)
    learned, labels, told = _read(opened, layers, train, way, seed)
    chosen_by, validated, _ = _read(opened, layers, validation, way, seed)
    answers: dict[Trial, Linear] = {}
    for number, layer in enumerate(layers):
        found = fit_linear(
            (learned[:, number], labels), (chosen_by[:, number], validated), question
        )
        answers[Trial(layer, found.strength, found.score)] = found.linear
    trials = [trial for trial in answers if np.isfinite(trial.score)]
    if not trials:
        raise UserError("the validation part has no score; are its labels all alike?")
    best = max(trials, key=lambda trial: trial.score)
    number = layers.index(best.layer)
    parts = (learned[:, number], labels), (chosen_by[:, number], validated)
    sizes = *_by_size(*parts, question), Size(len(labels), best.score)
    return Probed(answers[best], best, tuple(answers), sizes, told)


Part = tuple[NDArray[np.float32], NDArray[np.float32]]


def _by_size(train: Part, validation: Part, question: Question) -> Iterator[Size]:
    """Yield the scores of shares of the train part, smallest first; each holds those before it.

    A share in which a class or a value is missing has none.
    """
    order = np.random.default_rng(0).permutation(len(train[1]))
    for share in _SHARES:
        some = order[: round(share * len(order))]
        if _is_enough(train[1][some], train[1], question):
            found = fit_linear((train[0][some], train[1][some]), validation, question)
            if np.isfinite(found.score):
                yield Size(len(some), found.score)


def _is_enough(some: NDArray[np.float32], of: NDArray[np.float32], question: Question) -> bool:
    """Tell whether a share of labels has every value of each column, or a few of each number."""
    for column, whole in zip(some.T, of.T, strict=True):
        known = column[~np.isnan(column)]
        if question.of_kind.is_number:
            if len(known) < _FEW:
                return False
        elif len(np.unique(known)) < len(np.unique(whole[~np.isnan(whole)])):
            return False
    return True
