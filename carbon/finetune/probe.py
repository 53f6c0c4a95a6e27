"""Linear probes on frozen states: one fit per layer, and the best of them."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from carbon.errors import UserError
from carbon.finetune.config import MethodConfig
from carbon.finetune.data import Examples
from carbon.finetune.linear import Linear, fit_linear
from carbon.finetune.network import Averager, Batch, OpenedModel, SequenceWindow, both_sides, pooled
from carbon.finetune.tasks import LabelTask
from carbon.inference.runner import Observed, decoder_with
from carbon.inference.score import blocks
from carbon.progress import track
from carbon.tokenizer import K

MOST_SIX_MERS = 10_000
"""Maximum 6-mers of a split, over both strands; beyond it a sample is drawn by the seed."""

_WINDOWS = 64  # windows per pass

Floats32 = NDArray[np.float32]


def six_mers_of(length_bp: int) -> int:
    """Return the 6-mers of a sequence, the tail included."""
    return -(-length_bp // K)


class SixMers(NamedTuple):
    """6-mers in the order of their examples.

    Attributes:
        vectors: (6-mers, width).
        labels: (6-mers, 6) of their bases, NaN where unknown, and after the end of a sequence.
        total: number of 6-mers before sampling.
    """

    vectors: Floats32
    labels: Floats32
    total: int


def read_six_mers(
    averager: Averager, examples: Examples, method: MethodConfig, seed: int
) -> SixMers:
    """Return 6-mers of each strand, at most `MOST_SIX_MERS`.

    Args:
        averager: gives one vector per 6-mer.
        examples: with a label for every base.
        method: strands to read, and the rule for long sequences.
        seed: seed of the sample.
    """
    tile = method.too_long == "tile"
    windows = list(averager.windows(examples.sequences, method.strands, tile=tile))
    sizes = [six_mers_of(len(window.bases)) for window in windows]
    drawn = _drawn(sizes, seed)
    read = [number for number, indices in enumerate(drawn) if len(indices)]
    vectors, labels = [], []
    blocks = [read[first : first + _WINDOWS] for first in range(0, len(read), _WINDOWS)]
    for block in track(blocks, "reading states", len(blocks)):
        for number, states in zip(block, averager.read([windows[n] for n in block]), strict=True):
            vectors.append(states[drawn[number]])
            labels.append(_labels_of(windows[number], examples)[drawn[number]])
    return SixMers(np.concatenate(vectors), np.concatenate(labels), sum(sizes))


def _drawn(sizes: list[int], seed: int) -> list[NDArray[np.int64]]:
    """Return the indices of the sampled 6-mers of each window, in order."""
    order = np.random.default_rng(seed).permutation(sum(sizes))
    sampled = np.sort(order[:MOST_SIX_MERS])
    ends = np.cumsum(sizes)
    by_window = np.split(sampled, np.searchsorted(sampled, ends[:-1]))
    return [rows - (end - size) for rows, end, size in zip(by_window, ends, sizes, strict=True)]


def _labels_of(window: SequenceWindow, examples: Examples) -> Floats32:
    first = int(examples.starts[window.sequence]) + window.start
    of_bases = examples.labels[first : first + len(window.bases), 0]
    padded = np.full(K * six_mers_of(len(of_bases)), np.nan, dtype=np.float32)
    padded[: len(of_bases)] = of_bases[::-1] if window.is_turned else of_bases
    return padded.reshape(-1, K)


_SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2)
"""Shares of the train split for the learning curve."""
_FEW = 10  # minimum known numbers of a fit


class LayerScore(NamedTuple):
    """The best linear probe of a layer.

    Attributes:
        layer: its states; None is all layers and the final norm.
        strength: C, or alpha for numbers.
        score: on the validation split; higher is better.
    """

    layer: int | None
    strength: float
    score: float


class SubsetScore(NamedTuple):
    """The score of a probe fitted to a share of the train split, at the best layer.

    Attributes:
        examples: number of examples, or of 6-mers for a label of every base.
        score: on the validation split.
    """

    examples: int
    score: float


class ProbeResult(NamedTuple):
    """The best probe, the scores of all layers, and the learning curve.

    `notes` has a sentence on sampled 6-mers.
    """

    linear: Linear
    best: LayerScore
    layers: tuple[LayerScore, ...]
    sizes: tuple[SubsetScore, ...]
    notes: tuple[str, ...]


class LayerStates(nn.Module):
    """The vectors of a batch after several layers, from one pass: (rows, layers x width).

    Each vector is computed when its layer is done, so that no other states stay in memory. For a
    label of every base a row is a 6-mer, and its vector has the states of both passes.
    """

    def __init__(self, backbone: Any, layers: Sequence[int | None]) -> None:
        """Select layers; None is all of them and the final norm, 0 the embeddings."""
        super().__init__()
        self.backbone, self.layers = backbone, tuple(layers)

    def forward(self, batch: Batch) -> Tensor:
        """Return vectors, layer after layer."""
        vectors: dict[int | None, Tensor] = {}
        vectors_from = pooled if batch.pairs is None else both_sides

        def observed(module: nn.Module, layer: int | None) -> nn.Module:
            def observe(states: Tensor) -> None:
                vectors[layer] = vectors_from(states, batch)

            return Observed(module, observe) if layer in self.layers else module

        layers = (observed(each, n) for n, each in enumerate(self.backbone.layers, start=1))
        decoder = decoder_with(
            self.backbone,
            embed_tokens=observed(self.backbone.embed_tokens, 0),
            layers=nn.ModuleList(layers),
            norm=observed(self.backbone.norm, None),
        )
        decoder(input_ids=batch.ids, use_cache=False)
        return torch.cat([vectors[layer] for layer in self.layers], dim=1)


def layers_of(opened: OpenedModel, layer: int | None) -> list[int | None]:
    """Return the layers to try: the requested one, or all."""
    num_layers = len(opened.backbone.layers)
    if layer is None:
        return [*range(1, num_layers), None]
    if not 0 <= layer <= num_layers:
        raise UserError(
            f"method.layer = {layer}: the model has {num_layers}; give 1 to {num_layers}"
        )
    return [layer]


def _read(
    opened: OpenedModel,
    layers: Sequence[int | None],
    examples: Examples,
    method: MethodConfig,
    seed: int,
) -> tuple[NDArray[np.float32], NDArray[np.float32], tuple[str, ...]]:
    """Return vectors, (rows, layers, width), labels, (rows, columns), and notes on sampling.

    A row is an example, or a 6-mer with a column for each of its bases.
    """
    if not examples.per_base:
        return vectors_of(opened, layers, examples.sequences, method), examples.labels, ()
    averager = six_mers_averager(opened, layers)
    vectors, labels, total = read_six_mers(averager, examples, method, seed)
    is_drawn = total > len(labels)
    notes = f"The probe was fitted to {len(labels):,} of {total:,} 6-mers, drawn by seed {seed}."
    return vectors.reshape(len(labels), len(layers), -1), labels, (notes,) * is_drawn


def six_mers_averager(opened: OpenedModel, layers: Sequence[int | None]) -> Averager:
    """Return an averager of each 6-mer's states in both passes, layer after layer."""
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
    opened: OpenedModel,
    layers: Sequence[int | None],
    sequences: Sequence[str],
    method: MethodConfig,
) -> NDArray[np.float32]:
    """Return (sequences, layers, width): means over strands and windows.

    A linear map of the mean is the mean of the map, so a probe fitted to these vectors gives the
    mean logits of both strands.
    """
    width = opened.backbone.config.hidden_size
    network = LayerStates(opened.backbone, layers)
    size = len(layers) * width
    averager = Averager(network, opened.backbone, opened.model.vocabulary, method.pool, size)

    def read() -> Iterator[NDArray[Any]]:
        for block in blocks(sequences):
            yield from averager.means(block, method.strands, tile=method.too_long == "tile")

    vectors = np.empty((len(sequences), len(layers), width), dtype=np.float32)
    for row, vector in zip(vectors, track(read(), "reading states", len(sequences)), strict=True):
        row[:] = vector.reshape(len(layers), width)
    return vectors


def probe(
    opened: OpenedModel,
    task: LabelTask,
    train: Examples,
    validation: Examples,
    method: MethodConfig,
    seed: int = 0,
) -> ProbeResult:
    """Fit a linear probe to each layer and return the one with the best validation score.

    The lowest layer wins ties. For a label of every base the probe has six maps, one for each base
    of a 6-mer.

    Args:
        opened: the model.
        task: the fitted task.
        train: examples to fit.
        validation: examples that select strength and layer.
        method: pool, layer, strands and the rule for long sequences.
        seed: seed of the 6-mer sample for a label of every base.

    Raises:
        UserError: no score is defined.
    """
    layers = layers_of(opened, method.layer)
    opened.backbone.train(False)
    vectors, labels, notes = _read(opened, layers, train, method, seed)
    validation_vectors, validation_labels, _ = _read(opened, layers, validation, method, seed)
    probes: dict[LayerScore, Linear] = {}
    for number, layer in enumerate(layers):
        fit = fit_linear(
            (vectors[:, number], labels), (validation_vectors[:, number], validation_labels), task
        )
        probes[LayerScore(layer, fit.strength, fit.score)] = fit.linear
    scored = [layer for layer in probes if np.isfinite(layer.score)]
    if not scored:
        raise UserError("the validation split has no score; are its labels all equal?")
    best = max(scored, key=lambda layer: layer.score)
    number = layers.index(best.layer)
    train_data = vectors[:, number], labels
    validation_data = validation_vectors[:, number], validation_labels
    sizes = *_by_size(train_data, validation_data, task), SubsetScore(len(labels), best.score)
    return ProbeResult(probes[best], best, tuple(probes), sizes, notes)


FeaturesAndLabels = tuple[NDArray[np.float32], NDArray[np.float32]]


def _by_size(
    train: FeaturesAndLabels, validation: FeaturesAndLabels, task: LabelTask
) -> Iterator[SubsetScore]:
    """Yield the scores of nested shares of the train split, smallest first.

    A share without every class or value has no score.
    """
    order = np.random.default_rng(0).permutation(len(train[1]))
    for share in _SHARES:
        rows = order[: round(share * len(order))]
        if _is_enough(train[1][rows], train[1], task):
            fit = fit_linear((train[0][rows], train[1][rows]), validation, task)
            if np.isfinite(fit.score):
                yield SubsetScore(len(rows), fit.score)


def _is_enough(share: NDArray[np.float32], whole: NDArray[np.float32], task: LabelTask) -> bool:
    """Return whether a share has every value of each column, or enough numbers."""
    for column, all_labels in zip(share.T, whole.T, strict=True):
        known = column[~np.isnan(column)]
        if task.task_type.is_number:
            if len(known) < _FEW:
                return False
        elif len(np.unique(known)) < len(np.unique(all_labels[~np.isnan(all_labels)])):
            return False
    return True
