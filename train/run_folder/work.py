"""How much training there was: tokens, steps, seconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """Training behind a change of the weights, or behind a model.

    Attributes:
        tokens: predicted.
        steps: taken.
        seconds: that these took.
    """

    tokens: int = 0
    steps: int = 0
    seconds: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        """Return both together."""
        return Work(
            self.tokens + other.tokens, self.steps + other.steps, self.seconds + other.seconds
        )

    def __sub__(self, other: "Work") -> "Work":
        """Return what is left without the other."""
        return self + Work(-other.tokens, -other.steps, -other.seconds)

    def times(self, share: float) -> "Work":
        """Return a share of it, tokens and steps rounded."""
        return Work(round(self.tokens * share), round(self.steps * share), self.seconds * share)
