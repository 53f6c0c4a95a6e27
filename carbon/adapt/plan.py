"""Which examples a step reads, in which part of it and on which process: a function of the seed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch.utils.data import Sampler


class Key(NamedTuple):
    """An example as a step reads it.

    Attributes:
        example: its number.
        is_turned: it is read as its reverse complement.
        counts: otherwise it fills a part that would be empty, and its targets are unknown.
        epoch: from 0.
        step: of the epoch, from 0.
    """

    example: int
    is_turned: bool
    counts: bool
    epoch: int
    step: int


@dataclass(frozen=True, kw_only=True)
class Steps:
    """How examples are dealt out.

    Attributes:
        num_examples: to learn from.
        batch: of a step, over all processes and parts; of an epoch's last what is left.
        seed: of the order, and of the strands.
        augment: half of the examples are turned, each epoch others.
        parts: that a step is accumulated of.
        rank: of this process.
        num_processes: of all.
    """

    num_examples: int
    batch: int
    seed: int
    augment: bool
    parts: int = 1
    rank: int = 0
    num_processes: int = 1

    @property
    def num_steps(self) -> int:
        """Steps of an epoch."""
        return -(-self.num_examples // self.batch)

    def step(self, epoch: int, step: int) -> list[Key]:
        """Return the examples of a step, over all processes."""
        numbers = np.random.default_rng([self.seed, epoch])
        order = numbers.permutation(self.num_examples)
        turned = numbers.random(self.num_examples) < (0.5 if self.augment else 0.0)
        return [
            Key(int(n), bool(turned[n]), True, epoch, step)
            for n in order[step * self.batch : (step + 1) * self.batch]
        ]

    def mine(self, epoch: int) -> Iterator[list[Key]]:
        """Yield the parts that this process reads: `parts` a step, none of them empty."""
        for step in range(self.num_steps):
            keys = self.step(epoch, step)
            for part in range(self.parts):
                first = part * self.num_processes + self.rank
                mine = keys[first :: self.parts * self.num_processes]
                yield mine or [keys[0]._replace(counts=False)]


class StepSampler(Sampler[list[Key]]):
    """`Steps.mine` of the epoch that `transformers.Trainer` names."""

    def __init__(self, steps: Steps) -> None:
        """Begin with the first epoch."""
        self.steps, self.epoch = steps, 0

    def set_epoch(self, epoch: int) -> None:
        """Be told the epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.steps.num_steps * self.steps.parts

    def __iter__(self) -> Iterator[list[Key]]:
        return self.steps.mine(self.epoch)
