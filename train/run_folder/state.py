"""What a run has to remember beside its tensors; all else follows from its settings."""

from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import NonNegativeInt


@dataclass(slots=True)
class RunState:
    """Where a run stands.

    There is no random state: rows follow from their numbers, weights from their names, and a
    network without dropout draws nothing.

    Attributes:
        step: the next one, from 0; it says what is read next.
        updates: how many steps have changed the weights.
        skipped: first and last of the steps that were left out, for each time.
        ended: steps of the stages that a signal has ended, by their number.
        history: loss and gradient norm of good steps of the stage, the last or all of them.
        gaps: of sequence recovery between fp32 and bf16, one a probe of the stage.
        stage: number of the stage of the step before; None: that follows from the step.
        meetings: where a learner stands among the others.
    """

    step: NonNegativeInt = 0
    updates: NonNegativeInt = 0
    skipped: list[list[int]] = field(default_factory=list)
    ended: dict[int, int] = field(default_factory=dict)
    history: list[list[float]] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    stage: int | None = None
    meetings: dict[str, Any] = field(default_factory=dict)

    def to_table(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return asdict(self)
