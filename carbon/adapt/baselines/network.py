"""A small convolutional network, as one without pre-training would be."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from carbon.adapt.baselines.features import one_hot
from carbon.adapt.examples import Examples
from carbon.adapt.question import Floats32, Question


class Size(NamedTuple):
    """Of the network and its learning: minutes on one thread.

    Attributes:
        widths_bp: of the filters of each layer.
        filters: of each layer.
        batch: sequences a step.
        rate: of Adam.
        most_steps: that are taken.
        looks: at the validation part, evenly.
        patience: looks without a better score, after which learning ends.
    """

    widths_bp: tuple[int, ...] = (11, 7, 7)
    filters: tuple[int, ...] = (32, 64, 64)
    batch: int = 64
    rate: float = 1e-3
    most_epochs: int = 30
    most_steps: int = 2000
    looks: int = 20
    patience: int = 5


class Network(nn.Module):
    """Convolutions, each with ReLU, batch norm and pooling by two; of bases, without pooling.

    What is behind the end of a shorter sequence is zero in every layer, so that an answer does not
    depend on what else is read with it.
    """

    def __init__(self, num_outputs: int, per_base: bool, size: Size) -> None:
        """Draw weights from torch's generator."""
        super().__init__()
        self._per_base = per_base
        channels = [4, *size.filters]
        self._convolutions = nn.ModuleList(
            nn.Conv1d(channels[i], channels[i + 1], width, padding=width // 2)
            for i, width in enumerate(size.widths_bp)
        )
        self._norms = nn.ModuleList(nn.BatchNorm1d(number) for number in size.filters)
        self._dropout = nn.Dropout(0.3)
        self._answer = nn.Linear(channels[-1], num_outputs)

    def forward(self, bases: Tensor, lengths: Tensor) -> Tensor:
        """Return logits, (rows, outputs), of one-hot bases, (sequences, 4, longest)."""
        there = torch.arange(bases.shape[2])[None, :] < lengths[:, None]
        whole = there
        states = bases
        for convolution, norm in zip(self._convolutions, self._norms, strict=True):
            states = norm(convolution(states)).relu() * there[:, None]
            if not self._per_base:
                states = nn.functional.max_pool1d(states, 2, ceil_mode=True)
                there = there[:, ::2]
        if self._per_base:
            return torch.as_tensor(self._answer(self._dropout(states.transpose(1, 2)[whole])))
        return torch.as_tensor(self._answer(self._dropout(states.amax(dim=2))))


def fit_network(
    train: Examples, validation: Examples, question: Question, seed: int, size: Size
) -> Network:
    """Learn, and return the network as it was best on the validation part."""
    random = np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Network(question.num_outputs, question.per_base, size)
        optimizer = torch.optim.Adam(network.parameters(), size.rate)
        steps_an_epoch = -(-len(train) // size.batch)
        num_steps = min(size.most_steps, size.most_epochs * steps_an_epoch)
        look_every = max(1, num_steps // size.looks)
        best, best_score, since = None, -np.inf, 0
        for step, (bases, lengths, targets) in enumerate(_batches(train, question, random, size)):
            network.train()
            # Batch norm has nothing to do with one number.
            if len(targets) > 1:
                loss = question.loss_of(network(bases, lengths), targets, alone=True)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            if (step + 1) % look_every and step + 1 < num_steps:
                continue
            score = question.score(answers(network, validation, question), validation.labels)
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
def answers(network: Network, examples: Examples, question: Question) -> Floats32:
    """Return predictions, (rows, outputs): the mean of the logits of both strands."""
    network.eval()
    parts = []
    for first in range(0, len(examples), 256):
        hot = [one_hot(each) for each in examples.sequences[first : first + 256]]
        there = network(*_padded(hot))
        back = network(*_padded([_reversed(each) for each in hot]))
        if question.per_base:
            back = torch.cat([each.flip(0) for each in back.split([len(each) for each in hot])])
        parts.append(((there + back) / 2).numpy())
    logits = np.concatenate(parts) if parts else np.zeros((0, question.num_outputs))
    return question.predictions(logits)


def _batches(
    train: Examples, question: Question, random: np.random.Generator, size: Size
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield one-hot bases, lengths and targets, epoch after epoch; half as reverse complement."""
    targets = question.targets(train.labels)
    while True:
        order = random.permutation(len(train))
        for first in range(0, len(order), size.batch):
            hot, of = [], []
            for i in order[first : first + size.batch].tolist():
                bases, target = one_hot(train.sequences[i]), targets[train.rows_of(i)]
                turned = random.random() < 0.5
                hot.append(_reversed(bases) if turned else bases)
                of.append(target[::-1] if turned else target)
            yield *_padded(hot), torch.from_numpy(np.concatenate(of))


def _reversed(hot: Floats32) -> Floats32:
    """Return the other strand: bases are in an order in which neighbours pair."""
    return hot[::-1, [1, 0, 3, 2]]


def _padded(hot: Sequence[Floats32]) -> tuple[Tensor, Tensor]:
    lengths = [len(each) for each in hot]
    bases = np.zeros((len(hot), max(lengths), 4), dtype=np.float32)
    for i, each in enumerate(hot):
        bases[i, : len(each)] = each
    return torch.from_numpy(bases.transpose(0, 2, 1).copy()), torch.tensor(lengths)
