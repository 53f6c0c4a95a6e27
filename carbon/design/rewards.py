"""The values of oracles as the rewards that trl asks for, of samples of whole 6-mers."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from carbon.design.goals import Floats, Goal, gains
from carbon.design.oracles import Oracle
from carbon.tokenizer import Vocabulary, decode_ids

Reward = Callable[..., list[float | None]]


class Rewards:
    """What the oracles say of each group.

    Attributes:
        sequences: of the last group.
        values: (samples, oracles), of the last group.
        means: of the values of every group so far, by oracle.
    """

    def __init__(
        self, oracles: Sequence[Oracle], goals: Sequence[Goal], vocabulary: Vocabulary
    ) -> None:
        """Take what measures, what is wanted of it, and whose ids samples are."""
        self.oracles, self.goals, self.vocabulary = oracles, goals, vocabulary
        self.sequences: list[str] = []
        self.values: list[list[float]] = []
        self.means: list[dict[str, float]] = []

    @property
    def gains(self) -> Floats:
        """Return (samples, oracles) of the last group: what is the larger the better."""
        return gains(self.values, self.goals)

    def functions(self) -> list[Any]:
        """Return a function for each oracle; the first one asks them all."""
        return [self._function(number) for number in range(len(self.oracles))]

    def _function(self, number: int) -> Reward:
        def reward(completion_ids: Sequence[Sequence[int]], **_: Any) -> list[float | None]:
            if number == 0:
                self._measure(completion_ids)
            found: list[float | None] = self.gains[:, number].tolist()
            return found

        reward.__name__ = self.oracles[number].name
        return reward

    def _measure(self, completion_ids: Sequence[Sequence[int]]) -> None:
        self.sequences = [decode_ids(np.array(ids), self.vocabulary) for ids in completion_ids]
        names = [f"sample_{n}" for n in range(1, len(self.sequences) + 1)]
        columns = [oracle.values(names, self.sequences) for oracle in self.oracles]
        self.values = [list(row) for row in zip(*columns, strict=True)]
        means = np.mean(self.values, axis=0).tolist()
        self.means.append(dict(zip((each.name for each in self.oracles), means, strict=True)))
