"""The values of scoring functions as the rewards of trl, for samples of whole 6-mers."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from carbon.design.functions import ScoringFunction
from carbon.design.goals import Floats, Goal, gains
from carbon.tokenizer import Vocabulary, decode_ids

Reward = Callable[..., list[float | None]]


class Rewards:
    """Computes the values of each group, whose samples may come from several processes.

    Attributes:
        sequences: of the last group.
        values: (samples, functions), of the last group.
    """

    def __init__(
        self,
        functions: Sequence[ScoringFunction],
        goals: Sequence[Goal],
        vocabulary: Vocabulary,
        rank: int = 0,
    ) -> None:
        """Create rewards.

        Args:
            functions: scoring functions.
            goals: one for each function.
            vocabulary: of the ids of samples.
            rank: of this process.
        """
        self.functions, self.goals = functions, goals
        self.vocabulary, self.rank = vocabulary, rank
        self.sequences: list[str] = []
        self.values: list[list[float]] = []
        self._own_gains: Floats = np.zeros((0, len(goals)))

    @property
    def names(self) -> list[str]:
        """Return the names of the scoring functions."""
        return [function.name for function in self.functions]

    @property
    def gains(self) -> Floats:
        """Return larger-is-better values of the last group, (samples, functions)."""
        return gains(self.values, self.goals)

    @property
    def means(self) -> dict[str, float]:
        """Return the mean value of each scoring function in the last group."""
        return dict(zip(self.names, np.mean(self.values, axis=0).tolist(), strict=True))

    def reward_functions(self) -> list[Any]:
        """Return trl's reward function for each scoring function; the first computes all."""
        return [self._reward_function(number) for number in range(len(self.functions))]

    def _reward_function(self, number: int) -> Reward:
        def reward(
            completion_ids: Sequence[Sequence[int]],
            function_values: list[list[float]] | None = None,
            **_: Any,
        ) -> list[float | None]:
            if number == 0:
                self._update(completion_ids, function_values)
            rewards: list[float | None] = self._own_gains[:, number].tolist()
            return rewards

        reward.__name__ = self.functions[number].name
        return reward

    def _update(
        self, completion_ids: Sequence[Sequence[int]], values: list[list[float]] | None
    ) -> None:
        """Compute the values of this process's samples, unless given, and gather the group's."""
        from accelerate.utils import gather_object

        sequences = [decode_ids(np.array(ids), self.vocabulary) for ids in completion_ids]
        if values is None:
            values = function_values(self.functions, sequences, 1 + self.rank * len(sequences))
        self._own_gains = gains(values, self.goals)
        group: list[tuple[str, list[float]]] = gather_object(
            list(zip(sequences, values, strict=True))
        )
        self.sequences = [sequence for sequence, _ in group]
        self.values = [sample_values for _, sample_values in group]


def function_values(
    functions: Sequence[ScoringFunction], sequences: Sequence[str], first: int = 1
) -> list[list[float]]:
    """Return (samples, functions); messages number the samples from `first`.

    Raises:
        UserError: a scoring function fails.
    """
    names = [f"sample_{n}" for n in range(first, first + len(sequences))]
    columns = [function.values(names, sequences) for function in functions]
    return [list(row) for row in zip(*columns, strict=True)]
