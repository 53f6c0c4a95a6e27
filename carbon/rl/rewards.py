"""The values of oracles as the rewards that trl asks for, of samples of whole 6-mers."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from carbon.design.functions import Oracle
from carbon.design.goals import Floats, Goal, gains
from carbon.tokenizer import Vocabulary, decode_ids

Reward = Callable[..., list[float | None]]


class Rewards:
    """What the oracles say of each group, whose samples may be those of several processes.

    Attributes:
        sequences: of the last group.
        values: (samples, oracles), of the last group.
    """

    def __init__(
        self,
        oracles: Sequence[Oracle],
        goals: Sequence[Goal],
        vocabulary: Vocabulary,
        rank: int = 0,
    ) -> None:
        """Take what measures, what is wanted of it, whose ids samples are, and which process."""
        self.oracles, self.goals, self.vocabulary, self.rank = oracles, goals, vocabulary, rank
        self.sequences: list[str] = []
        self.values: list[list[float]] = []
        self._own_gains: Floats = np.zeros((0, len(goals)))

    @property
    def names(self) -> list[str]:
        """Return what the oracles are called."""
        return [oracle.name for oracle in self.oracles]

    @property
    def gains(self) -> Floats:
        """Return (samples, oracles) of the last group: what is the larger the better."""
        return gains(self.values, self.goals)

    @property
    def means(self) -> dict[str, float]:
        """Return the mean value by each oracle, of the last group."""
        return dict(zip(self.names, np.mean(self.values, axis=0).tolist(), strict=True))

    def functions(self) -> list[Any]:
        """Return a function for each oracle; the first one asks them all."""
        return [self._function(number) for number in range(len(self.oracles))]

    def _function(self, number: int) -> Reward:
        def reward(
            completion_ids: Sequence[Sequence[int]],
            oracle_values: list[list[float]] | None = None,
            **_: Any,
        ) -> list[float | None]:
            if number == 0:
                self._measure(completion_ids, oracle_values)
            found: list[float | None] = self._own_gains[:, number].tolist()
            return found

        reward.__name__ = self.oracles[number].name
        return reward

    def _measure(
        self, completion_ids: Sequence[Sequence[int]], values: list[list[float]] | None
    ) -> None:
        """Ask of the samples of this process, if nobody has, and tell all processes."""
        from accelerate.utils import gather_object

        sequences = [decode_ids(np.array(ids), self.vocabulary) for ids in completion_ids]
        if values is None:
            values = measured(self.oracles, sequences, 1 + self.rank * len(sequences))
        self._own_gains = gains(values, self.goals)
        group: list[tuple[str, list[float]]] = gather_object(
            list(zip(sequences, values, strict=True))
        )
        self.sequences = [bases for bases, _ in group]
        self.values = [found for _, found in group]


def measured(
    oracles: Sequence[Oracle], sequences: Sequence[str], first: int = 1
) -> list[list[float]]:
    """Return (samples, oracles); in messages samples are numbered from `first`.

    Raises:
        UserError: an oracle fails.
    """
    names = [f"sample_{n}" for n in range(first, first + len(sequences))]
    columns = [oracle.values(names, sequences) for oracle in oracles]
    return [list(row) for row in zip(*columns, strict=True)]
