"""Baselines without a language model: constant, composition, k-mer counts and a small CNN."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from carbon.finetune.calibration import odds_of
from carbon.finetune.probe import Linear, fit_linear
from carbon.finetune.split import Examples
from carbon.finetune.tasks import LabelTask
from carbon.genome.kmers import NO_BASE, canonical_kmers, digits_of

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

LARGEST_K = 6
_AROUND_BP = (25, 101)  # window sizes of the composition around a base
_FLANK_BP = 10  # on either side of a base


def digits(sequence: str) -> NDArray[np.uint8]:
    """Return the digit of each letter, `NO_BASE` for letters other than ACGT."""
    return digits_of(np.frombuffer(sequence.encode("ascii"), dtype=np.uint8))


def one_hot(sequence: str) -> Floats32:
    """Return (bases, 4); zeros for unknown bases."""
    return _ROWS[digits(sequence)]


_ROWS = np.vstack([np.eye(NO_BASE, dtype=np.float32), np.zeros((1, NO_BASE), dtype=np.float32)])


def composition(examples: Examples) -> Floats32:
    """Return length, and shares of G or C and of unknown bases, (rows, features).

    For each base: also its position in the sequence, from 0 to 1, and the shares in windows around
    it.
    """
    if not examples.per_base:
        return np.array([_composition(each) for each in examples.sequences], dtype=np.float32)
    return np.concatenate([_composition_around(each) for each in examples.sequences])


def _composition(sequence: str) -> tuple[float, float, float]:
    unknown = 1 - sum(map(sequence.count, "ACGT")) / len(sequence)
    return np.log(len(sequence)), _gc(sequence), unknown


def _gc(sequence: str) -> float:
    known = sum(map(sequence.count, "ACGT"))
    return (sequence.count("G") + sequence.count("C")) / known if known else 0.5


def _composition_around(sequence: str) -> Floats32:
    hot = one_hot(sequence)
    bases = np.array([base in "GC" for base in sequence], dtype=np.float64)
    columns = [
        np.full(len(hot), np.log(len(hot))),
        np.linspace(0, 1, len(hot)),
        *(_share_around(bases, width) for width in _AROUND_BP),
        1 - hot.sum(axis=1),
    ]
    return np.stack(columns, axis=1).astype(np.float32)


def _share_around(values: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Return the mean of a window around each value, clipped at the ends."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    first, last = np.maximum(at - width // 2, 0), np.minimum(at + width // 2 + 1, len(values))
    shares: NDArray[np.float64] = (sums[last] - sums[first]) / (last - first)
    return shares


def kmers(examples: Examples) -> Floats32:
    """Return log1p of the counts of 1- to 6-mers, both strands summed, (rows, 2,772).

    For each base: one-hot bases up to ten to its left and right.
    """
    if examples.per_base:
        return np.concatenate([_bases_around(each) for each in examples.sequences])
    tables = [_canonical_codes(k) for k in range(1, LARGEST_K + 1)]
    counts = [_kmers_of(sequence, tables) for sequence in examples.sequences]
    return np.log1p(np.array(counts, dtype=np.float32).reshape(len(counts), -1))


def _canonical_codes(k: int) -> NDArray[np.uint64]:
    """Return the codes of k-mers not larger than their reverse complements."""
    codes = np.arange(4**k, dtype=np.uint64)
    reverse, left = np.zeros_like(codes), codes.copy()
    for _ in range(k):
        reverse = reverse << np.uint64(2) | (left & np.uint64(3)) ^ np.uint64(1)
        left >>= np.uint64(2)
    return codes[codes <= reverse]


def _kmers_of(sequence: str, tables: Sequence[NDArray[np.uint64]]) -> Floats32:
    counts = [
        np.bincount(canonical_kmers(sequence, k).astype(np.int64), minlength=4**k)[table]
        for k, table in enumerate(tables, start=1)
    ]
    return np.concatenate(counts).astype(np.float32)


def _bases_around(sequence: str) -> Floats32:
    padded = np.pad(one_hot(sequence), ((_FLANK_BP, _FLANK_BP), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * _FLANK_BP + 1, axis=0)
    return np.ascontiguousarray(windows).reshape(len(sequence), -1)


class CnnSettings(NamedTuple):
    """Architecture and training of the CNN: minutes on one thread.

    Attributes:
        widths_bp: filter width of each layer.
        filters: number of filters of each layer.
        batch: sequences per step.
        rate: learning rate of Adam.
        most_epochs: maximum passes over the train split.
        most_steps: maximum steps.
        validations: number of validation steps, evenly spaced.
        patience: validation steps without a better score before training ends.
    """

    widths_bp: tuple[int, ...] = (11, 7, 7)
    filters: tuple[int, ...] = (32, 64, 64)
    batch: int = 64
    rate: float = 1e-3
    most_epochs: int = 30
    most_steps: int = 2000
    validations: int = 20
    patience: int = 5


class ConvNet(nn.Module):
    """Convolutions, each with batch norm, ReLU and max pooling by two; no pooling for bases.

    Positions after the end of a shorter sequence are zero in every layer, so that a prediction does
    not depend on the rest of its batch.
    """

    def __init__(self, num_outputs: int, per_base: bool, size: CnnSettings) -> None:
        """Draw weights from torch's generator."""
        super().__init__()
        self._per_base = per_base
        channels = [4, *size.filters]
        self._convolutions = nn.ModuleList(
            nn.Conv1d(channels[i], channels[i + 1], width, padding=width // 2, dtype=torch.float32)
            for i, width in enumerate(size.widths_bp)
        )
        self._norms = nn.ModuleList(
            nn.BatchNorm1d(number, dtype=torch.float32) for number in size.filters
        )
        self._dropout = nn.Dropout(0.3)
        self._output = nn.Linear(channels[-1], num_outputs, dtype=torch.float32)

    def forward(self, bases: Tensor, lengths: Tensor) -> Tensor:
        """Return logits, (rows, outputs), of one-hot bases, (sequences, 4, longest)."""
        mask = is_base = torch.arange(bases.shape[2])[None, :] < lengths[:, None]
        states = bases
        for convolution, norm in zip(self._convolutions, self._norms, strict=True):
            states = norm(convolution(states)).relu() * mask[:, None]
            if not self._per_base:
                states = nn.functional.max_pool1d(states, 2, ceil_mode=True)
                mask = mask[:, ::2]
        if self._per_base:
            return torch.as_tensor(self._output(self._dropout(states.transpose(1, 2)[is_base])))
        return torch.as_tensor(self._output(self._dropout(states.amax(dim=2))))


def fit_cnn(
    train: Examples, validation: Examples, task: LabelTask, seed: int, size: CnnSettings
) -> ConvNet:
    """Train, and return the network with its best validation score."""
    random = np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = ConvNet(task.num_outputs, task.per_base, size)
        optimizer = torch.optim.Adam(network.parameters(), size.rate)
        steps_an_epoch = -(-len(train) // size.batch)
        num_steps = min(size.most_steps, size.most_epochs * steps_an_epoch)
        validate_every = max(1, num_steps // size.validations)
        best, best_score, since = None, -np.inf, 0
        for step, (bases, lengths, targets) in enumerate(_batches(train, task, random, size)):
            network.train()
            if len(targets) > 1:  # batch norm needs two
                loss = task.loss_of(network(bases, lengths), targets, alone=True)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            if (step + 1) % validate_every and step + 1 < num_steps:
                continue
            score = task.score(predict_cnn(network, validation, task), validation.labels)
            since += 1
            if best is None or score > best_score:
                best = {name: value.clone() for name, value in network.state_dict().items()}
                best_score, since = score, 0
            if since >= size.patience or step + 1 >= num_steps:
                break
    assert best is not None
    network.load_state_dict(best)
    return network


@torch.no_grad()
def predict_cnn(network: ConvNet, examples: Examples, task: LabelTask) -> Floats:
    """Return `LabelTask.unsaturated`, (rows, outputs), of the mean logits of both strands."""
    network.eval()
    logits = []
    for first in range(0, len(examples), 256):
        hot = [one_hot(each) for each in examples.sequences[first : first + 256]]
        forward = network(*_padded(hot))
        reverse = network(*_padded([_reversed(each) for each in hot]))
        if task.per_base:
            sizes = [len(each) for each in hot]
            reverse = torch.cat([each.flip(0) for each in reverse.split(sizes)])
        logits.append(((forward + reverse) / 2).numpy())
    joined = np.concatenate(logits) if logits else np.zeros((0, task.num_outputs))
    return task.unsaturated(joined)


def _batches(
    train: Examples, task: LabelTask, random: np.random.Generator, size: CnnSettings
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield one-hot bases, lengths and targets without end; half of them as reverse complements."""
    targets = task.targets(train.labels)
    while True:
        order = random.permutation(len(train))
        for first in range(0, len(order), size.batch):
            hot, target_rows = [], []
            for i in order[first : first + size.batch].tolist():
                bases, target = one_hot(train.sequences[i]), targets[train.rows_of(i)]
                turned = random.random() < 0.5
                hot.append(_reversed(bases) if turned else bases)
                target_rows.append(target[::-1] if turned else target)
            yield *_padded(hot), torch.from_numpy(np.concatenate(target_rows))


def _reversed(hot: Floats32) -> Floats32:
    """Return the other strand: column order makes complements neighbours."""
    return hot[::-1, [1, 0, 3, 2]]


def _padded(hot: Sequence[Floats32]) -> tuple[Tensor, Tensor]:
    lengths = [len(each) for each in hot]
    bases = np.zeros((len(hot), max(lengths), 4), dtype=np.float32)
    for i, each in enumerate(hot):
        bases[i, : len(each)] = each
    return torch.from_numpy(bases.transpose(0, 2, 1).copy()), torch.tensor(lengths)


def has_deltas(examples: Examples) -> bool:
    """Return whether each row of labels is a variant, which `deltas` has one number for."""
    return bool(examples.variants) and not examples.per_base


def deltas(examples: Examples) -> Floats32:
    """Return the base model's zero-shot deltas in nats, (rows, 1); 0 where a variant has none."""
    column = [[each.delta] for each in examples.variants]
    return np.nan_to_num(np.array(column, dtype=np.float32).reshape(-1, 1))


Predict = Callable[[Examples], Floats]
"""Maps examples to what scores take, (rows, num_outputs), as `LabelTask.unsaturated`."""
Fit = Callable[[Examples, Examples, LabelTask, int], Predict]
"""Maps train and validation split, task and seed to a `Predict`."""

MOST_ROWS = 30_000
"""Maximum rows of a linear baseline; beyond it a sample is drawn by the seed."""


def _constant(train: Examples, validation: Examples, task: LabelTask, seed: int) -> Predict:
    """Predict class frequencies, or means, for every sequence."""
    if task.task_type.one_column:
        known = train.labels[~np.isnan(train.labels)].astype(int)
        shares = np.bincount(known, minlength=len(task.names)) / len(known)
        constant = shares[-task.num_outputs :]
    else:
        constant = np.nanmean(train.labels.astype(np.float64), axis=0)
    outputs = constant.astype(np.float32) if task.task_type.is_number else odds_of(constant)
    return lambda examples: np.tile(outputs, (len(examples.labels), 1))


def _linear(
    read: Callable[[Examples], Floats32],
    train: Examples,
    validation: Examples,
    task: LabelTask,
    seed: int,
) -> Predict:
    sample = _sample(train, seed)
    linear: Linear = fit_linear(
        (read(sample), sample.labels), (read(validation), validation.labels), task
    ).linear
    return lambda examples: task.unsaturated(linear.logits(read(examples)))


def _sample(examples: Examples, seed: int) -> Examples:
    """Return examples of at most `MOST_ROWS` rows."""
    if len(examples.labels) <= MOST_ROWS:
        return examples
    order = np.random.default_rng(seed).permutation(len(examples))
    sizes = np.diff(examples.starts)[order]
    return examples.subset(order[: max(1, int(np.searchsorted(np.cumsum(sizes), MOST_ROWS)))])


def _cnn(train: Examples, validation: Examples, task: LabelTask, seed: int) -> Predict:

    network = fit_cnn(train, validation, task, seed, CnnSettings())
    return lambda examples: predict_cnn(network, examples, task)


FITS: dict[str, Fit] = {
    "constant": _constant,
    "composition": partial(_linear, composition),
    "kmers": partial(_linear, kmers),
    "cnn": _cnn,
    "delta": partial(_linear, deltas),
}
"""The function of each of `BASELINES`."""
