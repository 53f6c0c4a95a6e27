"""Linear predictors, and probes on frozen states: a fit for each layer, and the best of them."""

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from carbon.errors import UserError
from carbon.finetune.config import MethodConfig, VariantInput
from carbon.finetune.network import (
    Averager,
    Batch,
    OpenedModel,
    SequenceWindow,
    both_sides,
    num_alleles,
    vectors_of_rows,
)
from carbon.finetune.split import Examples, Input, input_bp
from carbon.finetune.tasks import LabelTask
from carbon.inference.runner import Observed, decoder_with
from carbon.inference.score import blocks
from carbon.progress import track

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

LOGISTIC_C = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Inverse regularisation strengths of scikit-learn, in rising order."""
RIDGE_ALPHA = tuple(float(10.0**power) for power in range(5, -3, -1))
_MOST_STEPS = 300
_SURE = 20.0  # logit of a class that is certain


class Linear(NamedTuple):
    """A linear map from features to logits.

    Attributes:
        weights: (outputs, features).
        bias: (outputs,).
    """

    weights: Floats
    bias: Floats

    def logits(self, features: NDArray[Any]) -> Floats:
        """Return logits, (rows, outputs), of features, (rows, features)."""
        logits: Floats = features @ self.weights.T + self.bias
        return logits


class LinearFit(NamedTuple):
    """The best fit.

    Attributes:
        linear: the predictor.
        strength: C, or alpha for numbers.
        score: its score on the validation split.
    """

    linear: Linear
    strength: float
    score: float


def fit_linear(
    train: tuple[Floats32, Floats32],
    validation: tuple[Floats32, Floats32],
    task: LabelTask,
) -> LinearFit:
    """Fit with each strength and return the fit with the best validation score.

    Args:
        train: features (rows, features), and labels (rows, columns) in the unit of the file. For a
            label of every base a row may hold several bases, each in its own column with its own
            map; outputs are ordered by base.
        validation: likewise.
        task: its transforms and class weights apply.

    Raises:
        UserError: scikit-learn is not installed.
    """
    _check_installed()
    mean, sd = train[0].mean(axis=0, dtype=np.float64), train[0].std(axis=0, dtype=np.float64)
    sd[sd == 0] = 1.0
    scaled = ((train[0] - mean) / sd).astype(np.float32)
    fits = _ridges if task.task_type.is_number else _logistics
    best: LinearFit | None = None
    for strength, linear in fits(scaled, train[1], task):
        weights = linear.weights / sd
        folded = Linear(weights, linear.bias - weights @ mean)
        logits = folded.logits(validation[0]).reshape(-1, task.num_outputs)
        labels = validation[1].reshape(-1, task.num_columns)
        score = task.score(task.unsaturated(logits), labels)
        if best is None or score > best.score or np.isnan(best.score):
            best = LinearFit(folded, strength, score)
    assert best is not None
    return best


def _check_installed() -> None:
    if find_spec("sklearn") is None:
        raise UserError(
            "scikit-learn is not installed: pip install scikit-learn, or baselines = []"
        )


def _logistics(
    features: Floats32, labels: Floats32, task: LabelTask
) -> Iterator[tuple[float, Linear]]:
    is_one_of = task.task_type.one_column
    num_logits = task.num_outputs if is_one_of else 1
    models = [_Logistic(features, column, num_logits) for column in labels.T]
    for strength in LOGISTIC_C:
        fits = [model.fit(strength, _class_weights(task, i)) for i, model in enumerate(models)]
        weights, bias = (np.concatenate(arrays) for arrays in zip(*fits, strict=True))
        yield strength, Linear(weights, bias)


def _class_weights(task: LabelTask, column: int) -> dict[float, float] | None:
    """Return the weight of each value of a label column."""
    weights = task.class_weights
    if not weights:
        return None
    if task.task_type.one_column:
        return {float(i): weight for i, weight in enumerate(weights)}
    return {0.0: 1.0, 1.0: weights[column]}


class _Logistic:
    """Logistic regression of one column, each fit starting from the previous one.

    It has one logit, for the label 1, or one for each class, whose indices are the labels.
    """

    def __init__(self, features: Floats32, labels: Floats32, num_logits: int) -> None:
        known = ~np.isnan(labels)
        self._num_logits = num_logits
        self._labels = labels[known]
        self._features = features if known.all() else features[known]
        self._model: Any = None

    def fit(self, c: float, class_weights: dict[float, float] | None) -> tuple[Floats, Floats]:
        """Return weights, (outputs, features), and bias, (outputs,)."""
        values = np.unique(self._labels).astype(np.int64)
        if len(values) < 2:
            return self._constant(values)
        if self._model is None:
            self._model = _sklearn_logistic(class_weights)
        self._model.C = c
        with warnings.catch_warnings():
            # Weak regularisation may not converge; the validation score decides.
            warnings.simplefilter("ignore")
            self._model.fit(self._features, self._labels)
        rows = np.column_stack([self._model.coef_, self._model.intercept_]).astype(np.float64)
        if self._num_logits > 1:
            rows = self._by_class(rows, values)
        return rows[:, :-1], rows[:, -1]

    def _constant(self, values: NDArray[np.int64]) -> tuple[Floats, Floats]:
        bias = np.full(self._num_logits, -_SURE)
        bias[values if self._num_logits > 1 else values[values == 1] - 1] = _SURE
        return np.zeros((self._num_logits, self._features.shape[1])), bias

    def _by_class(self, rows: Floats, values: NDArray[np.int64]) -> Floats:
        """Return a row for each class; a class without examples gets a negligible probability."""
        if len(values) == 2:
            # For two classes scikit-learn has one logit, the difference between theirs.
            rows = np.concatenate([-rows, rows]) / 2
        all_rows = np.zeros((self._num_logits, rows.shape[1]))
        all_rows[:, -1] = -_SURE
        all_rows[values] = rows
        return all_rows


def _sklearn_logistic(class_weights: dict[float, float] | None) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(
        class_weight=class_weights, max_iter=_MOST_STEPS, tol=1e-3, warm_start=True
    )


def _ridges(
    features: Floats32, labels: Floats32, task: LabelTask
) -> Iterator[tuple[float, Linear]]:
    """Fit with each alpha; columns that are known for the same rows are fitted together."""
    targets = task.targets(labels.reshape(-1, task.num_columns)).reshape(labels.shape)
    known = ~np.isnan(targets)
    if known.all():
        fits = [_fit_ridge(features, targets)]
    else:
        columns = [(rows, targets[rows, i : i + 1]) for i, rows in enumerate(known.T)]
        fits = [_fit_ridge(features[rows], column) for rows, column in columns]
    for n, alpha in enumerate(RIDGE_ALPHA):
        weights, bias = (np.concatenate([fit[i][n] for fit in fits]) for i in (0, 1))
        yield alpha, Linear(weights, bias)


def _fit_ridge(features: Floats32, targets: Floats32) -> tuple[Floats, Floats]:
    """Return weights, (alphas, columns, features), and bias, (alphas, columns)."""
    from sklearn.linear_model import Ridge

    num_alphas, num_columns = len(RIDGE_ALPHA), targets.shape[1]
    # With an alpha for each target, scikit-learn computes the Gram matrix only once.
    model = Ridge(np.repeat(RIDGE_ALPHA, num_columns), solver="cholesky", copy_X=False)
    model.fit(features.astype(np.float64), np.tile(targets.astype(np.float64), (1, num_alphas)))
    shape = num_alphas, num_columns
    return model.coef_.reshape(*shape, -1), np.reshape(model.intercept_, shape)


MOST_KMERS = 10_000
"""Maximum k-mers of a split, over both strands; beyond it a sample is drawn by the seed."""

_WINDOWS = 64  # windows per pass


def kmers_of(length_bp: int, k: int) -> int:
    """Return the k-mers of a sequence, the tail included."""
    return -(-length_bp // k)


class KmerStates(NamedTuple):
    """k-mers in the order of their examples.

    Attributes:
        vectors: (k-mers, width).
        labels: (k-mers, k x columns) of their bases, base after base; NaN where unknown, and after
            the end of a sequence.
        total: number of k-mers before sampling.
    """

    vectors: Floats32
    labels: Floats32
    total: int


def read_kmers(
    averager: Averager, examples: Examples, method: MethodConfig, seed: int
) -> KmerStates:
    """Return k-mers of each strand, at most `MOST_KMERS`.

    Args:
        averager: gives one vector per k-mer.
        examples: with a label for every base.
        method: strands to read, and the rule for long sequences.
        seed: seed of the sample.
    """
    tile = method.too_long == "tile"
    windows = list(averager.windows(examples.sequences, method.strands, tile=tile))
    sizes = [kmers_of(len(window.bases), averager.k) for window in windows]
    drawn = _drawn(sizes, seed)
    read = [number for number, indices in enumerate(drawn) if len(indices)]
    vectors, labels = [], []
    blocks = [read[first : first + _WINDOWS] for first in range(0, len(read), _WINDOWS)]
    for block in track(blocks, "reading states", len(blocks)):
        for number, states in zip(block, averager.read([windows[n] for n in block]), strict=True):
            vectors.append(states[drawn[number]])
            labels.append(_labels_of(windows[number], examples, averager.k)[drawn[number]])
    return KmerStates(np.concatenate(vectors), np.concatenate(labels), sum(sizes))


def _drawn(sizes: list[int], seed: int) -> list[NDArray[np.int64]]:
    """Return the indices of the sampled k-mers of each window, in order."""
    order = np.random.default_rng(seed).permutation(sum(sizes))
    sampled = np.sort(order[:MOST_KMERS])
    ends = np.cumsum(sizes)
    by_window = np.split(sampled, np.searchsorted(sampled, ends[:-1]))
    return [rows - (end - size) for rows, end, size in zip(by_window, ends, sizes, strict=True)]


def _labels_of(window: SequenceWindow, examples: Examples, k: int) -> Floats32:
    first = int(examples.starts[window.sequence]) + window.start
    of_bases = examples.labels[first : first + len(window.bases)]
    num_bases, num_columns = of_bases.shape
    padded = np.full((k * kmers_of(num_bases, k), num_columns), np.nan, dtype=np.float32)
    padded[:num_bases] = of_bases[::-1] if window.is_turned else of_bases
    return padded.reshape(-1, k * num_columns)


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
        examples: number of examples, or of k-mers for a label of every base.
        score: on the validation split.
    """

    examples: int
    score: float


class ProbeResult(NamedTuple):
    """The best probe, the scores of all layers, and the learning curve.

    `notes` has a sentence on sampled k-mers.
    """

    linear: Linear
    best: LayerScore
    layers: tuple[LayerScore, ...]
    sizes: tuple[SubsetScore, ...]
    notes: tuple[str, ...]


class LayerStates(nn.Module):
    """The vectors of a batch after several layers, from one pass: (rows, layers x width).

    Each vector is computed when its layer is done, so that no other states stay in memory. For a
    label of every base a row is a k-mer, and its vector has the states of both passes.
    """

    def __init__(
        self, backbone: Any, layers: Sequence[int | None], variant_input: VariantInput = "alt"
    ) -> None:
        """Select layers; None is all of them and the final norm, 0 the embeddings."""
        super().__init__()
        self.backbone, self.layers = backbone, tuple(layers)
        self.variant_input = variant_input

    def forward(self, batch: Batch) -> Tensor:
        """Return vectors, layer after layer."""
        vectors: dict[int | None, Tensor] = {}

        def vectors_from(states: Tensor) -> Tensor:
            if batch.pairs is not None:
                return both_sides(states, batch)
            return vectors_of_rows(states, batch, self.variant_input)

        def observed(module: nn.Module, layer: int | None) -> nn.Module:
            def observe(states: Tensor) -> None:
                vectors[layer] = vectors_from(states)

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
    variant_input: VariantInput,
) -> tuple[NDArray[np.float32], NDArray[np.float32], tuple[str, ...]]:
    """Return vectors, (rows, layers, width), labels, (rows, columns), and notes on sampling.

    A row is an example, or a k-mer with a column for each of its bases.
    """
    if not examples.per_base:
        vectors = vectors_of(opened, layers, examples.inputs, method, variant_input)
        return vectors, examples.labels, ()
    averager = kmers_averager(opened, layers)
    vectors, labels, total = read_kmers(averager, examples, method, seed)
    is_drawn = total > len(labels)
    what = f"{len(labels):,} of {total:,} {averager.k}-mers"
    notes = f"The probe was fitted to {what}, drawn by seed {seed}."
    return vectors.reshape(len(labels), len(layers), -1), labels, (notes,) * is_drawn


def kmers_averager(opened: OpenedModel, layers: Sequence[int | None]) -> Averager:
    """Return an averager of each k-mer's states in both passes, layer after layer."""
    width = len(layers) * 2 * opened.backbone.config.hidden_size
    return Averager(
        LayerStates(opened.backbone, layers),
        opened.backbone,
        opened.model.vocabulary,
        "mean",
        width,
        per_base=True,
        size_of=partial(kmers_of, k=opened.model.vocabulary.k),
    )


def vectors_of(
    opened: OpenedModel,
    layers: Sequence[int | None],
    sequences: Sequence[Input],
    method: MethodConfig,
    variant_input: VariantInput = "alt",
) -> NDArray[np.float32]:
    """Return (sequences, layers, width): means over strands and windows.

    A linear map of the mean is the mean of the map, so a probe fitted to these vectors gives the
    mean logits of both strands. For both alleles of a variant the width is that of `COMBINED`,
    which combines them on each strand.
    """
    width = opened.backbone.config.hidden_size * num_alleles(variant_input)
    network = LayerStates(opened.backbone, layers, variant_input)
    size = len(layers) * width
    averager = Averager(network, opened.backbone, opened.model.vocabulary, method.pool, size)

    def read() -> Iterator[NDArray[Any]]:
        for block in blocks(sequences, input_bp):
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
    variant_input: VariantInput = "alt",
) -> ProbeResult:
    """Fit a linear probe to each layer and return the one with the best validation score.

    The lowest layer wins ties. For a label of every base the probe has k maps, one for each base
    of a k-mer.

    Args:
        opened: the model.
        task: the fitted task.
        train: examples to fit.
        validation: examples that select strength and layer.
        method: pool, layer, strands and the rule for long sequences.
        seed: seed of the k-mer sample for a label of every base.
        variant_input: what is read of a variant.

    Raises:
        UserError: no score is defined.
    """
    layers = layers_of(opened, method.layer)
    opened.backbone.train(False)
    vectors, labels, notes = _read(opened, layers, train, method, seed, variant_input)
    validation_vectors, validation_labels, _ = _read(
        opened, layers, validation, method, seed, variant_input
    )
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
